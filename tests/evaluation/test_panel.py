"""The panel of BLEU figures: which ones, which is to be reported, compounds by hand."""

import json
from pathlib import Path

import pytest

from attnjax.evaluation import bleu
from attnjax.evaluation.bleu import corpus_scores
from attnjax.evaluation.panel import bleu_panel, split_compounds

GOLDEN = json.loads(
    (Path(__file__).parents[1] / "golden" / "sacrebleu.json").read_text("utf-8")
)
HYPOTHESES = ["Der „Rich-Text“ ist schön, sagt er.", "So geht's nun bald genug."]
REFERENCES = ["Der „rich-Text“ ist schön, sagte er.", "so geht's nun bald genug."]


def figures(hypotheses, references, language):
    panel = bleu_panel(hypotheses, references, target_language=language)
    return {figure.name: figure for figure in panel}


def test_equals_the_golden_figures():
    panel = figures(GOLDEN["hypotheses"], GOLDEN["references"], "de")
    assert panel["13a"].bleu == pytest.approx(GOLDEN["bleu"], abs=1e-9)
    assert panel["intl"].bleu == pytest.approx(GOLDEN["bleu_intl"], abs=1e-9)
    assert panel["13a lower-cased"].bleu == pytest.approx(GOLDEN["bleu_lc"], abs=1e-9)
    # Neither hyphens nor marks, and all orders match: splitting changes nothing.
    assert panel["compound-split"].bleu == pytest.approx(GOLDEN["bleu"], abs=1e-9)


@pytest.mark.parametrize(
    ("language", "mecab", "names"),
    [
        ("de", False, ["13a", "intl", "13a lower-cased", "compound-split"]),
        ("zh", False, ["zh", "13a", "intl", "13a lower-cased"]),
        ("ja", False, ["char", "13a", "intl", "13a lower-cased"]),
        ("th", False, ["char", "13a", "intl", "13a lower-cased"]),
        ("ko", False, ["13a", "intl", "13a lower-cased", "compound-split"]),
    ],
)
def test_figures_and_their_order(monkeypatch, language, mecab, names):
    monkeypatch.setattr(bleu, "_installed", lambda *modules: mecab)
    panel = bleu_panel(HYPOTHESES, REFERENCES, target_language=language)
    assert [figure.name for figure in panel] == names
    assert [figure.headline for figure in panel] == [True, False, False, False]
    assert "figure to report" in panel[0].note


def test_each_figure_is_the_score_of_its_settings():
    panel = figures(HYPOTHESES, REFERENCES, "de")
    for name, settings in {
        "13a": {},
        "intl": {"tokenizer": "intl"},
        "13a lower-cased": {"lowercase": True},
    }.items():
        scores = corpus_scores(HYPOTHESES, REFERENCES, target_language="de", **settings)
        assert panel[name].bleu == scores.bleu
        assert panel[name].signature == scores.bleu_signature
    assert len({figure.bleu for figure in panel.values()}) == 4


def test_figures_for_spaced_scripts_are_marked_where_there_are_no_spaces():
    panel = figures(["我们今天去学校学习新的"], ["我们今天去学校学习旧的"], "zh")
    assert panel["zh"].bleu > 70
    for name in ("13a", "intl", "13a lower-cased"):
        assert panel[name].bleu == 0.0
        assert "meaningless" in panel[name].note
    panel = figures(HYPOTHESES, REFERENCES, "de")
    assert all("meaningless" not in figure.note for figure in panel.values())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("rich-text format", "rich ##AT##-##AT## text format"),
        ("Aix-en-Provence.", "Aix ##AT##-##AT## en ##AT##-##AT## Provence ."),
        ("a-b-c", "a ##AT##-##AT## b-c"),  # as the Perl substitution leaves it
        ("pre- and post-war", "pre- and post ##AT##-##AT## war"),
        ("- no -", "- no -"),
        ("„Zitat“ – x_y", "„ Zitat “ – x _ y"),
        ("20€ more", "20 € more"),
        ("don't stop, 3.5", "don't stop , 3.5"),
        ("a &quot;b&quot;", 'a " b "'),
        ("हिन्दी भाषा", "हिन्दी भाषा"),  # vowel signs are no punctuation
        ("", ""),
    ],
)
def test_compounds_are_split(text, expected):
    assert split_compounds(text) == expected


def test_compound_split_by_hand():
    # 6 of 7 words, 4 of 6 pairs, 3 of 5 triples, 2 of 4 quadruples.
    panel = figures(
        ["we like rich-text here now"], ["we like rich-texts here now"], "en"
    )
    matches = (6 / 7) * (4 / 6) * (2 / 5) * (1 / 4)
    assert panel["compound-split"].bleu == pytest.approx(100 * matches**0.25)
    assert panel["compound-split"].bleu > panel["13a"].bleu


def test_compound_split_is_not_smoothed():
    panel = figures(["we like it here now"], ["we like them here now"], "en")
    assert panel["13a"].bleu > 0
    assert panel["compound-split"].bleu == 0.0
    assert "smooth:none" in panel["compound-split"].signature
    assert "tok:13a+compound-split" in panel["compound-split"].signature


def test_several_references_some_missing():
    panel = figures(HYPOTHESES, [[HYPOTHESES[0], ""], ["", HYPOTHESES[1]]], "de")
    assert [figure.bleu for figure in panel.values()] == [100.0] * 4
    assert all("nrefs:1|" in figure.signature for figure in panel.values())


def test_lines_that_do_not_match_are_refused():
    with pytest.raises(ValueError, match="2 hypotheses, 1 references"):
        bleu_panel(["a", "b"], ["a"], target_language="en")
