"""Minimum Bayes risk: utilities equal sacreBLEU's, choices equal a plain loop's."""

import numpy as np
import pytest
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from attnjax.evaluation.minimum_risk import expected_utilities, minimum_bayes_risk

WORDS = "the a dog cat runs fast, in of park tree house. it's übung".split()
METRICS = {"bleu": BLEU(effective_order=True), "chrf": CHRF()}
both_utilities = pytest.mark.parametrize("utility", METRICS)


def random_texts(count, seed):
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, rng.integers(0, 13))) for _ in range(count)]


def loop(candidates, weights, utility):
    """Every candidate against every candidate, by sacreBLEU, one pair at a time."""
    risks = []
    for candidate in candidates:
        utilities = [
            100.0
            if candidate == reference
            else METRICS[utility].sentence_score(candidate, [reference]).score
            for reference in candidates
        ]
        risks.append(np.average(utilities, weights=weights))
    return risks


@both_utilities
def test_utilities_are_those_of_sacrebleu(utility):
    texts = list(dict.fromkeys([*random_texts(25, 1), "a", "a a a a a a", "", "dog a"]))
    weights = np.random.default_rng(2).random(len(texts))
    expected = loop(texts, weights, utility)
    found = expected_utilities(texts, weights, utility=utility, target_language="en")
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9)


@both_utilities
@pytest.mark.parametrize("seed", range(5))
def test_the_choice_is_that_of_a_loop_over_all_pairs(utility, seed):
    rng = np.random.default_rng(seed)
    candidates = list(rng.choice(random_texts(6, seed), 15))  # many twice or more
    for weights in (None, rng.random(15)):
        risks = loop(candidates, weights, utility)
        found = minimum_bayes_risk(
            candidates, weights, utility=utility, target_language="en"
        )
        assert risks[found] == pytest.approx(max(risks), abs=1e-9)
        assert found == candidates.index(candidates[found])


@both_utilities
def test_the_consensus_wins_over_the_first_and_the_longest(utility):
    candidates = [
        "a cat sat there",
        "the dog runs in the park",
        "the dog runs in a park",
        "the dog ran in the park",
        "rivers flow and flow and flow and flow and flow",
    ]
    found = minimum_bayes_risk(candidates, utility=utility, target_language="en")
    assert found == 1


@both_utilities
def test_copies_and_weights_count_alike(utility):
    texts = ["the dog runs in the park", "the dog runs in a park", "a cat sat on it"]
    settings = {"utility": utility, "target_language": "en"}
    copies = [texts[0], texts[1], *[texts[2]] * 4]
    assert minimum_bayes_risk(texts, **settings) != 2
    assert minimum_bayes_risk(copies, **settings) == 2
    assert minimum_bayes_risk(texts, [1, 1, 4], **settings) == 2
    assert minimum_bayes_risk(texts, [0.1, 0.1, 0.4], **settings) == 2
    assert minimum_bayes_risk(texts, [0, 5, 1], **settings) == 1


@both_utilities
def test_a_candidate_of_weight_0_can_be_chosen_but_is_no_reference(utility):
    settings = {"utility": utility, "target_language": "en"}
    around = ["a b c d e f x y", "u v c d e f g h", "a b z d e f g h"]
    middle = "a b c d e f g h"
    assert minimum_bayes_risk([*around, middle], [1, 1, 1, 0], **settings) == 3
    candidates = ["a cat sat on it", *["the dog ran off", "the dog ran on"]]
    assert minimum_bayes_risk(candidates, [1.2, 1, 1], **settings) != 0
    assert minimum_bayes_risk(candidates, [1.2, 1, 0], **settings) == 0


@both_utilities
def test_equally_good_candidates_give_the_first(utility):
    settings = {"utility": utility, "target_language": "en"}
    assert minimum_bayes_risk(["ab cd", "ef gh", "ij kl"], **settings) == 0
    assert minimum_bayes_risk(["x y", "ef gh", "ef gh"], **settings) == 1
    assert minimum_bayes_risk(["only one"], **settings) == 0
    # In floating point 0.1 + 0.2 exceeds 0.3.
    assert minimum_bayes_risk(["x y", *["ef"] * 2], [0.3, 0.1, 0.2], **settings) == 0


@both_utilities
def test_empty_candidates_agree_with_each_other(utility):
    settings = {"utility": utility, "target_language": "en"}
    assert minimum_bayes_risk(["a dog", "", "", ""], **settings) == 1
    assert minimum_bayes_risk(["", "a dog", "a dog"], **settings) == 1
    assert minimum_bayes_risk([""], **settings) == 0


def test_the_target_language_chooses_the_tokenizer_of_bleu():
    candidates = [
        "你好世界",
        "我们今天去学校学习",
        "我们今天去学校睡觉",
        "我们今天去公园",
    ]
    for language, best in (("zh", 1), ("en", 0)):  # in English, four unlike words
        assert best == minimum_bayes_risk(
            candidates, utility="bleu", target_language=language
        )


@pytest.mark.parametrize(
    ("candidates", "weights", "named"),
    [
        ([], None, "at least one text"),
        ("a dog", None, "at least one text"),
        (["a", "b"], [1.0], "2 candidates and 1 weights"),
        (["a", "b"], [-0.5, -2.0], "log-probabilities need exp"),
        (["a", "b"], [2.0, -0.5], "0 or more"),
        (["a", "b"], [0, 0], "not all 0"),
        (["a", "b"], [1, float("nan")], "finite"),
        (["a", "b"], [1, float("inf")], "finite"),
    ],
)
def test_candidates_and_weights_that_do_not_fit_are_refused(candidates, weights, named):
    with pytest.raises(ValueError, match=named):
        minimum_bayes_risk(candidates, weights, target_language="en")
