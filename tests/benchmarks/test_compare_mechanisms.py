"""The comparison's commands are those of the command line, its table honest."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from attnjax import cli, experiment
from attnjax.benchmarks import compare_mechanisms as compare
from attnjax.config import Experiment
from attnjax.ops.attend import Dense
from attnjax.ops.catalog import CATALOG, MECHANISMS

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("slot", ["encoder", "decoder", "cross"])
def test_commands_are_accepted_and_change_one_slot_only(slot, monkeypatch):
    seen: list[Experiment] = []
    done = SimpleNamespace(
        interrupted=False,
        signal=None,
        stopped_early=False,
        step=0,
        best_step=None,
        best_score=None,
    )
    monkeypatch.setattr(experiment, "train", lambda e, **_: seen.append(e) or done)
    arguments = compare.Arguments(config=ROOT / "configs/quickstart.py", slot=slot)
    names = [name for name, line in CATALOG.items() if slot in line.slots]
    for name in names:
        command = compare.train_command(arguments, name, Path("runs") / name)
        assert cli.main(command) == 0
    chosen = [getattr(e.model, f"{slot}_attention") for e in seen]
    assert [MECHANISMS.name(each) for each in chosen] == names
    others = {"encoder", "decoder", "cross"} - {slot}
    for each in seen:
        assert each.training.num_steps == 600
        for other in others:
            assert getattr(each.model, f"{other}_attention") == Dense()


def test_table_shows_a_failed_run():
    row = {
        "mechanism": "dense",
        "bleu": 12.34,
        "bleu_over_20_words": "1.0 / 2.0",
        "parameters": 1_234,
        "tokens_per_second": 5_678.0,
        "temporary_megabytes": 9.0,
    }
    text = compare.table([row, {"mechanism": "linear", "bleu": None}])
    assert "| dense | 12.3 | 1.0 / 2.0 | 1,234 | 5,678 | 9 |" in text
    assert "| linear | failed |" in text
