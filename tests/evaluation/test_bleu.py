"""BLEU, chrF and TER: golden numbers, several references, reasons for a zero."""

import json
from pathlib import Path

import pytest

from attnjax.evaluation import bleu
from attnjax.evaluation.bleu import bleu_tokenizer, corpus_scores, tokenizer_note

GOLDEN = json.loads(
    (Path(__file__).parents[1] / "golden" / "sacrebleu.json").read_text("utf-8")
)


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({}, "bleu"),
        ({"tokenizer": "intl"}, "bleu_intl"),
        ({"lowercase": True}, "bleu_lc"),
    ],
)
def test_equals_the_golden_bleu_and_chrf(settings, name):
    scores = corpus_scores(
        GOLDEN["hypotheses"], GOLDEN["references"], target_language="en", **settings
    )
    assert scores.bleu == pytest.approx(GOLDEN[name], abs=1e-9)
    assert scores.chrf == pytest.approx(GOLDEN["chrf"], abs=1e-9)
    assert scores.zero_reason is None


def test_equals_the_golden_ter_which_is_computed_only_when_asked_for():
    columns = GOLDEN["hypotheses"], GOLDEN["references"]
    scores = corpus_scores(*columns, target_language="en", with_ter=True)
    assert scores.ter == pytest.approx(GOLDEN["ter"], abs=1e-9)
    assert "tok:tercom|norm:no" in scores.ter_signature
    without = corpus_scores(*columns, target_language="en")
    assert without.ter is None
    assert without.ter_signature is None


def test_ter_counts_edits_and_shifts_by_hand():
    scores = corpus_scores(
        ["c d a b x", "e f g"],  # one shift and one substitution; one insertion
        ["a b c d y", "e f"],
        target_language="en",
        with_ter=True,
    )
    assert scores.ter == pytest.approx(100 * 3 / 7)


def test_ter_of_chinese_counts_characters():
    scores = corpus_scores(
        ["我们今天去学校。"], ["他们今天去学校。"], target_language="zh", with_ter=True
    )
    assert scores.ter == pytest.approx(100 / 8)
    assert "norm:yes" in scores.ter_signature
    assert "asian:yes" in scores.ter_signature


def test_one_set_of_references_is_one_column():
    hypotheses, references = GOLDEN["hypotheses"], GOLDEN["references"]
    column = corpus_scores(hypotheses, references, target_language="en")
    assert corpus_scores(hypotheses, [references], target_language="en") == column
    assert corpus_scores(hypotheses, tuple(references), target_language="en") == column


def test_several_references_by_hand():
    scores = corpus_scores(
        ["a b c d e", "f g h i"],
        [["a b x d e", "f g h i"], ["a b c x x x", "f g h i j k l"]],
        target_language="en",
        with_ter=True,
    )
    # All 9 words match one of the two references; so do 4 + 3 - 1 (c d) of 7 bigrams.
    assert scores.precisions[:2] == (100.0, pytest.approx(100 * 6 / 7))
    assert (scores.hypothesis_length, scores.reference_length) == (9, 5 + 4)
    # One substitution against the first reference of line 1; the mean length counts.
    assert scores.ter == pytest.approx(100 * 1 / (5.5 + 5.5))
    for signature in (
        scores.bleu_signature,
        scores.chrf_signature,
        scores.ter_signature,
    ):
        assert signature.startswith("nrefs:2|")


def test_a_better_reference_in_any_set_counts():
    hypotheses, references = GOLDEN["hypotheses"][6:], GOLDEN["references"][6:]
    both = corpus_scores(
        hypotheses, [references, hypotheses], target_language="en", with_ter=True
    )
    assert (both.bleu, both.chrf, both.ter) == (100.0, 100.0, 0.0)


def test_the_signature_says_how_the_number_came_about():
    scores = corpus_scores(
        ["Ein Hund"],
        ["ein Hund"],
        target_language="de",
        tokenizer="intl",
        lowercase=True,
    )
    assert "tok:intl" in scores.bleu_signature
    assert "case:lc" in scores.bleu_signature
    assert "version:" in scores.bleu_signature
    assert "nc:6" in scores.chrf_signature


@pytest.mark.parametrize(
    ("language", "mecab", "expected"),
    [
        ("de", False, "13a"),
        ("zh", False, "zh"),
        ("zh_Hant", False, "zh"),
        ("zho_Hans", False, "zh"),
        ("zh-CN", False, "zh"),
        ("yue", False, "zh"),
        ("ja", False, "char"),
        ("ja", True, "ja-mecab"),
        ("jpn_Jpan", False, "char"),
        ("ko_KR", False, "13a"),
        ("ko", True, "ko-mecab"),
        ("kor_Hang", True, "ko-mecab"),
        ("th", False, "char"),
        ("tha_Thai", False, "char"),
        ("pt-BR", False, "13a"),
    ],
)
def test_the_target_language_chooses_the_tokenizer(
    monkeypatch, language, mecab, expected
):
    monkeypatch.setattr(bleu, "_installed", lambda *modules: mecab)
    assert bleu_tokenizer(language) == expected
    note = tokenizer_note(language)
    if language[:2] in ("ja", "jp", "ko") and not mecab:
        assert f"the tokenizer {expected}," in note
        assert "pip install 'sacrebleu[" in note
    else:
        assert note is None


def test_a_fallback_is_said_once(monkeypatch, caplog):
    monkeypatch.setattr(bleu, "_installed", lambda *modules: False)
    for _ in range(2):
        corpus_scores(["犬"], ["犬"], target_language="ja_TEST")
    assert caplog.text.count("MeCab is not installed") == 1


@pytest.mark.parametrize(
    ("hypotheses", "expected"),
    [
        (["", ""], "every hypothesis is empty"),
        (["x y z v", "w"], "no word"),
        (["dog ran", "cat"], "no hypothesis has the 3 tokens of a 3-gram"),
        (["the", "cat"], "no hypothesis has the 2 tokens of a 2-gram"),
        (["the dog ran off fast or so", ""], None),
    ],
)
def test_a_score_of_zero_is_explained(hypotheses, expected):
    scores = corpus_scores(
        hypotheses, ["the dog ran away fast", "the cat sat"], target_language="en"
    )
    if expected is None:
        assert scores.bleu > 0
        assert scores.zero_reason is None
    else:
        assert scores.bleu == 0.0
        assert expected in scores.zero_reason


def test_a_score_that_is_only_smoothing_is_explained():
    hypotheses = ["a " + " ".join(f"x{i}" for i in range(4_000))]
    scores = corpus_scores(hypotheses, ["a b c d"], target_language="en")
    assert 0 < scores.bleu < 0.05
    assert "no 2-gram" in scores.zero_reason


def test_a_score_of_a_very_short_output_is_explained():
    scores = corpus_scores(
        ["a b c d"], ["a b c d " * 500], target_language="en", tokenizer="13a"
    )
    assert scores.bleu < 0.05
    assert "far shorter" in scores.zero_reason
