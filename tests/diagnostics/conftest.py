"""Looks into figures before they become pixels."""

import pytest
from matplotlib.figure import Figure


@pytest.fixture
def saved_figures(monkeypatch):
    """Every figure that is saved during the test, which is written all the same."""
    figures = []
    save = Figure.savefig

    def keep(self, *args, **settings):
        figures.append(self)
        return save(self, *args, **settings)

    monkeypatch.setattr(Figure, "savefig", keep)
    return figures
