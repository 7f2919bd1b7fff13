"""Fonts for any script."""

import logging

import pytest

from attnjax.diagnostics import fonts


@pytest.fixture(autouse=True)
def _nothing_was_told(monkeypatch):
    monkeypatch.setattr(fonts, "_told", set())


@pytest.fixture
def installed(monkeypatch):
    """Pretends that only these fonts are installed, each with a few characters."""
    characters = {"Han": "我们日", "Hangul": "한", "Broken": ""}
    own = fonts._characters

    def of(path):
        return (
            frozenset(map(ord, characters[path])) if path in characters else own(path)
        )

    monkeypatch.setattr(fonts, "_characters", of)
    monkeypatch.setattr(
        fonts, "_installed_fonts", lambda: [(name, name) for name in characters]
    )


@pytest.mark.usefixtures("installed")
def test_fonts_are_added_for_what_is_missing_only():
    assert fonts.fonts_for(["▁Straße", "λόγος"])[0] == ["DejaVu Sans"]
    assert fonts.fonts_for(["a", "我们"])[0] == ["DejaVu Sans", "Han"]
    assert fonts.fonts_for(["한", "日"])[0] == ["DejaVu Sans", "Han", "Hangul"]


@pytest.mark.usefixtures("installed")
def test_what_no_font_shows_becomes_a_square_with_one_line_in_the_log(caplog):
    with caplog.at_level(logging.WARNING):
        families, texts = fonts.fonts_for(["我🤗", "\U00012000x"])
        for text in ("한\ue000", "\U00012001"):  # other pictures of the run
            fonts.fonts_for([text])
    assert families == ["DejaVu Sans", "Han"]
    assert texts == ["我□", "□x"]
    assert len(caplog.records) == 1


def test_white_space_and_controls_are_drawn_as_spaces():
    texts = ["a\tb", "c\xa0d\u202fe", "\n", "\x00f\x85g\u2028", ""]
    assert fonts.fonts_for(texts)[1] == ["a b", "c d e", " ", " f g ", ""]


@pytest.mark.usefixtures("installed")
def test_an_svg_keeps_its_text_without_a_warning(caplog):
    texts = ["日\U00012000\ue000", "a\u200db\U000e0001", "\ud800\uffff"]
    assert fonts.fonts_for(texts, is_svg=True)[1] == [*texts[:2], "\ufffd\ufffd"]
    assert caplog.records == []


@pytest.mark.usefixtures("installed")
def test_marks_that_no_font_has_are_left_out():
    families, texts = fonts.fonts_for(["a\U000e0001b", "می\u200cخواهم"])
    assert texts == ["ab", "می\u200cخواهم"]


def test_a_file_that_is_no_font_shows_nothing(tmp_path):
    broken = tmp_path / "broken.ttf"
    broken.write_bytes(b"no font")
    assert fonts._characters(str(broken)) == frozenset()
    assert ord("a") in fonts._characters(
        str(fonts.font_manager.findfont(fonts.BASE_FAMILY))
    )


def test_installed_fonts_are_found():
    assert "DejaVu Sans" in dict(fonts._installed_fonts())
