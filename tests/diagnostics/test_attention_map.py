"""Attention with the texts of its tokens."""

import numpy as np
import pytest

from attnjax.diagnostics.attention_map import AttentionMap

WEIGHTS = np.random.default_rng(0).dirichlet(np.ones(5), (2, 3))  # [H, T, S]


def attention(weights=WEIGHTS, keys="abcde", queries="xyz"):
    return AttentionMap(weights=weights, queries=list(queries), keys=list(keys))


def test_one_head_or_their_mean_is_taken_by_its_name():
    second, mean = attention().of_head(1), attention().of_head("mean")
    np.testing.assert_array_equal(second.weights, WEIGHTS[1:])
    assert second.heads == ("head 1",)
    np.testing.assert_allclose(mean.weights[0], (WEIGHTS[0] + WEIGHTS[1]) / 2)
    assert mean.heads == ("mean of 2 heads",)
    assert second.keys == list("abcde")


def test_several_heads_have_names_and_a_single_one_needs_none():
    assert attention().heads == ("head 0", "head 1")
    assert attention(WEIGHTS[:1]).heads == ("",)


@pytest.mark.parametrize("head", [2, -1, "first"])
def test_a_head_that_is_not_there_is_refused(head):
    with pytest.raises(ValueError, match="heads 0 to 1, and 'mean'"):
        attention().of_head(head)


@pytest.mark.parametrize(
    ("weights", "keys", "queries"),
    [
        (WEIGHTS.swapaxes(1, 2), "abcde", "xyz"),
        (WEIGHTS[0], "abcde", "xyz"),
        (WEIGHTS[None], "abcde", "xyz"),
        (WEIGHTS[:0], "abcde", "xyz"),
        (WEIGHTS[:, :, :0], "", "xyz"),
    ],
)
def test_weights_that_do_not_fit_the_tokens_are_refused(weights, keys, queries):
    with pytest.raises(ValueError, match=r"weights must be \[H, T, S\]"):
        attention(weights, keys, queries)
