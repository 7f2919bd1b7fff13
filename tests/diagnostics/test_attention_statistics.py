"""Entropy and distance of attention, by hand."""

import numpy as np

from attnjax.diagnostics.attention_statistics import (
    attention_distance_tokens,
    attention_entropy_nats,
)

WEIGHTS = np.array(
    [
        [[1.0, 0.0, 0.0], [0.0, 0.5, 0.5]],
        [[1 / 3] * 3, [0.0, 0.0, 0.0]],
    ]
)  # [H, T, S]


def test_entropy_is_zero_for_one_key_and_the_log_of_their_number_for_equal_ones():
    np.testing.assert_allclose(
        attention_entropy_nats(WEIGHTS), [[0.0, np.log(2)], [np.log(3), 0.0]]
    )


def test_distance_is_the_mean_number_of_tokens_looked_over():
    np.testing.assert_allclose(
        attention_distance_tokens(WEIGHTS), [[0.0, 0.5], [1.0, 0.0]]
    )
