"""BLEU and chrF: golden numbers, and the traps that users of sacreBLEU fell into."""

import json
import logging
from pathlib import Path

import pytest

from attnjax.evaluation import bleu
from attnjax.evaluation.bleu import bleu_tokenizer, corpus_scores

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


def test_parts_of_the_score_by_hand():
    scores = corpus_scores(
        ["", "the cat sat on the mat"],
        ["the dog ran away fast", "the cat sat on the mat"],
        target_language="en",
    )
    # sacrebleu#161: one of two hypotheses is empty; 6 of 11 tokens, all right.
    assert scores.bleu == pytest.approx(43.46, abs=0.01)
    assert scores.precisions == (100.0,) * 4
    assert (scores.hypothesis_length, scores.reference_length) == (6, 11)
    assert scores.brevity_penalty == pytest.approx(0.4346, abs=1e-4)


def test_only_detokenised_text_compares():
    # tensor2tensor#522: the same words, tokenised, lose half of the score.
    reference = ["It wasn't cheap, he said."]
    tokenised = corpus_scores(
        ["It was n't cheap , he said ."], reference, target_language="en"
    )
    plain = corpus_scores(reference, reference, target_language="en")
    assert tokenised.bleu == pytest.approx(54.11, abs=0.01)
    assert plain.bleu == 100.0
    assert plain.chrf == 100.0


@pytest.mark.parametrize(("language", "expected"), [("zh", 76.12), ("en", 0.0)])
def test_chinese_needs_its_own_tokenizer(language, expected):
    scores = corpus_scores(
        ["我们今天去学校学习新的知识"],
        ["我们今天去学校学习旧的知识"],
        target_language=language,
    )
    assert scores.bleu == pytest.approx(expected, abs=0.01)


@pytest.mark.parametrize(
    ("language", "mecab", "expected"),
    [
        ("de", False, "13a"),
        ("zh", False, "zh"),
        ("zh_Hant", False, "zh"),
        ("zh-CN", False, "zh"),
        ("yue", False, "zh"),
        ("ja", False, "char"),
        ("ja", True, "ja-mecab"),
        ("ko_KR", False, "13a"),
        ("ko", True, "ko-mecab"),
        ("th", False, "char"),
        ("pt-BR", False, "13a"),
    ],
)
def test_the_target_language_chooses_the_tokenizer(
    monkeypatch, language, mecab, expected
):
    monkeypatch.setattr(bleu, "_installed", lambda *modules: mecab)
    assert bleu_tokenizer(language) == expected


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


def test_empty_references_are_scored_and_reported(caplog):
    with caplog.at_level(logging.WARNING):
        scores = corpus_scores(
            ["a dog ran off", "b", "c"],
            ["a dog ran off", "", " "],
            target_language="en",
        )
    assert scores.empty_references == (2, 3)
    assert scores.bleu < 100
    assert "line 2" in caplog.text


@pytest.mark.parametrize(
    ("hypotheses", "references", "named"),
    [
        (["a", "b"], ["a"], "2 hypotheses, 1 references"),
        ([], [], "no lines"),
        (["", "a dog ran"], [["a cat"], ["a dog ran"]], "references must be"),
        ("a dog", ["a dog"], "hypotheses must be"),
        ([None], ["a dog"], "hypotheses must be"),
    ],
)
def test_columns_that_do_not_match_are_refused(hypotheses, references, named):
    with pytest.raises(ValueError, match=named):
        corpus_scores(hypotheses, references, target_language="en")
