"""The rows B18 to B21 of the table "BLEU and text": traps that users fell into."""

import logging

import pytest
from sacrebleu.metrics.bleu import BLEU

from attnjax.evaluation.bleu import corpus_scores
from attnjax.evaluation.panel import bleu_panel

DOG, CAT = "a dog ran in the park", "the cat sat on the mat"


def scores_of(hypotheses, references, language="en", **settings):
    return corpus_scores(hypotheses, references, target_language=language, **settings)


class TestB18ReferencesPerSentence:
    """sacrebleu#239, #275: one list of references per sentence."""

    def test_sets_of_references(self):
        scores = scores_of(["", DOG], [[CAT, DOG], ["the cat sat on it now", DOG]])
        assert scores.bleu == pytest.approx(36.79, abs=0.01)

    @pytest.mark.parametrize("num_references", [1, 2, 4])
    def test_one_list_per_sentence_is_refused_with_the_remedy(self, num_references):
        hypotheses = [CAT, DOG, CAT]
        transposed = [[line] * num_references for line in hypotheses]
        with pytest.raises(
            ValueError, match="one list of references per sentence"
        ) as e:
            scores_of(hypotheses, transposed)
        assert f"set 1 of 3 has {num_references}" in str(e.value)
        mended = list(zip(*transposed, strict=True))
        assert scores_of(hypotheses, mended).bleu == 100.0

    def test_sentences_with_different_numbers_of_references_are_refused(self):
        with pytest.raises(ValueError, match="set 2 of 2 has 3"):
            scores_of([CAT, DOG], [[CAT, CAT], [DOG, DOG, DOG]])

    def test_a_set_that_lacks_lines_is_refused(self):
        with pytest.raises(ValueError, match="set 2 of 2 has 2; look for lines lost"):
            scores_of([CAT, DOG, CAT], [[CAT, DOG, CAT], [CAT, DOG]])

    def test_fewer_references_than_hypotheses_are_refused(self):
        alone = BLEU().corpus_score([DOG, "any words at all"], [[DOG]])
        assert round(alone.score, 9) == 100.0  # what the library says
        with pytest.raises(ValueError, match="2 hypotheses, 1 references"):
            scores_of([DOG, "any words at all"], [DOG])

    @pytest.mark.parametrize(
        ("hypotheses", "references", "named"),
        [
            (["a", "b"], ["a"], "2 hypotheses, 1 references"),
            (["a", "b"], [], "2 hypotheses, 0 references"),
            ([], [], "no lines"),
            ([], [[], []], "no lines"),
            ("a dog", ["a dog"], "hypotheses must be"),
            (["a dog"], "a dog", "references must be"),
            ([None], ["a dog"], "hypotheses must be"),
            (["a"], [None], "references must be"),
            (["a", "b"], ["a", ["b", "c"]], "references must be"),
            (["a", "b"], [["a", "b"], ["a", None]], "references of set 2 must be"),
        ],
    )
    def test_columns_that_do_not_match_are_refused(self, hypotheses, references, named):
        with pytest.raises(ValueError, match=named):
            scores_of(hypotheses, references)


class TestB19EmptyLines:
    """sacrebleu#161, #132: empty hypotheses and references."""

    def test_all_hypotheses_empty(self):
        scores = scores_of(["", ""], ["the dog ran away fast", CAT], with_ter=True)
        assert scores.bleu == 0.0
        assert scores.chrf == 0.0
        assert scores.ter == 100.0
        assert (scores.hypothesis_length, scores.reference_length) == (0, 11)
        assert scores.zero_reason == "every hypothesis is empty."

    def test_one_of_two_hypotheses_empty(self):
        scores = scores_of(["", CAT], ["the dog ran away fast", CAT])
        assert scores.bleu == pytest.approx(43.46, abs=0.01)
        assert scores.precisions == (100.0,) * 4
        assert (scores.hypothesis_length, scores.reference_length) == (6, 11)
        assert scores.brevity_penalty == pytest.approx(0.4346, abs=1e-4)

    def test_an_empty_hypothesis_has_length_0_beside_several_references(self):
        scores = scores_of(["", CAT], [["the dog ran away fast", CAT], [DOG, CAT]])
        assert (scores.hypothesis_length, scores.reference_length) == (6, 5 + 6)
        assert scores.bleu == pytest.approx(43.46, abs=0.01)

    def test_a_reference_missing_from_a_set_does_not_excuse_empty_output(self, caplog):
        hypotheses, full = ["", CAT], ["the dog ran away fast", CAT]
        excused = BLEU().corpus_score(hypotheses, [full, ["", CAT]])
        assert round(excused.score, 9) == 100.0  # what the library says
        with caplog.at_level(logging.WARNING):
            scores = scores_of(hypotheses, [full, [" ", CAT]])
        assert scores.bleu == pytest.approx(43.46, abs=0.01)
        assert scores.empty_references == (1,)
        assert "nrefs:var" in scores.bleu_signature
        assert "line 1" in caplog.text

    def test_empty_references_are_scored_and_reported_with_their_lines(self, caplog):
        with caplog.at_level(logging.WARNING):
            scores = scores_of(
                ["a dog ran off", "b", "c"], ["a dog ran off", "", " "], with_ter=True
            )
        assert scores.empty_references == (2, 3)
        assert scores.bleu < 100
        assert scores.ter == pytest.approx(100 * 2 / 4)
        assert (
            "2 of 3 lines have an empty reference, the first is line 2" in caplog.text
        )

    def test_lines_that_are_empty_in_all_sets_count_as_wrong(self):
        scores = scores_of([CAT, "b"], [[CAT, ""], [CAT, ""]])
        assert scores.empty_references == (2,)
        assert scores.precisions[0] == pytest.approx(100 * 6 / 7)


class TestB20TokenisedOutput:
    """tensor2tensor#522: the score of tokenised text is another number."""

    REFERENCE = "It wasn't cheap, he said."

    def test_only_detokenised_text_compares(self):
        tokenised = scores_of(["It was n't cheap , he said ."], [self.REFERENCE])
        plain = scores_of([self.REFERENCE], [self.REFERENCE])
        assert tokenised.bleu == pytest.approx(54.11, abs=0.01)
        assert plain.bleu == 100.0
        assert plain.chrf == 100.0
        assert "tok:13a" in plain.bleu_signature

    def test_tokenised_scores_are_named_otherwise(self):
        panel = bleu_panel([self.REFERENCE], [self.REFERENCE], target_language="en")
        [other] = [figure for figure in panel if "tok:13a|" not in figure.signature][1:]
        assert other.name == "compound-split"
        assert "not comparable with sacreBLEU" in other.note
        assert "not comparable with sacreBLEU" in other.signature
        assert not other.headline


class TestB21ScriptsWithoutSpaces:
    """sacrebleu#147, #181, #171: the default tokenizer takes sentences for words."""

    HYPOTHESIS = ["我们今天去学校学习新的知识"]
    REFERENCE = ["我们今天去学校学习旧的知识"]

    @pytest.mark.parametrize(
        ("tokenizer", "expected"),
        [("13a", 0.0), ("intl", 0.0), ("zh", 76.12), ("char", 76.12)],
    )
    def test_measured_values(self, tokenizer, expected):
        scores = scores_of(self.HYPOTHESIS, self.REFERENCE, tokenizer=tokenizer)
        assert scores.bleu == pytest.approx(expected, abs=0.01)

    @pytest.mark.parametrize(
        ("language", "tokenizer"),
        [("zh", "zh"), ("zho_Hans", "zh"), ("th", "char"), ("en", "13a")],
    )
    def test_the_target_language_decides_and_the_signature_says_so(
        self, language, tokenizer
    ):
        scores = scores_of(self.HYPOTHESIS, self.REFERENCE, language)
        expected = 0.0 if tokenizer == "13a" else 76.12
        assert scores.bleu == pytest.approx(expected, abs=0.01)
        assert f"tok:{tokenizer}|" in scores.bleu_signature
