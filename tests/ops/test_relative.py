"""Relative positions against numbers from the papers and their authors' code."""

import jax
import numpy as np
import pytest

from attnjax.ops.relative import alibi, alibi_slopes, relative_bucket, rotate

# The first distance of each bucket that holds several, for T5's 32 buckets and 128
# positions: 8 * 16^(k / 8) in both directions, 16 * 8^(k / 16) in one.
FAR_OF_BOTH = [8, 12, 16, 23, 32, 46, 64, 91]
FAR_OF_ONE = [16, 19, 21, 24, 27, 31, 35, 40, 46, 52, 59, 67, 77, 87, 99, 113]


def t5_bucket(offset, bidirectional):
    """By the edges of the buckets; key position minus query position."""
    edges = FAR_OF_BOTH if bidirectional else FAR_OF_ONE
    edges = [*range(1, len(edges)), *edges]
    distance = abs(offset) if bidirectional else max(-offset, 0)
    first = len(edges) + 1 if bidirectional and offset > 0 else 0
    return first + sum(distance >= edge for edge in edges)


@pytest.mark.parametrize("bidirectional", [True, False])
def test_buckets_are_those_of_t5(bidirectional):
    offsets = np.arange(-200, 201)
    settings = {"num_buckets": 32, "max_distance": 128}
    got = jax.jit(
        lambda offsets: relative_bucket(
            offsets, bidirectional=bidirectional, **settings
        )
    )(offsets)
    expected = [t5_bucket(offset, bidirectional) for offset in offsets.tolist()]
    np.testing.assert_array_equal(got, expected)
    unused = {16} if bidirectional else set()  # of later keys at distance 0
    assert set(np.unique(got)) == set(range(32)) - unused


def test_buckets_that_could_not_grow_are_refused():
    for num_buckets, max_distance in ((3, 128), (32, 8)):
        with pytest.raises(ValueError, match="at least 2 in each direction"):
            relative_bucket(
                np.arange(3),
                num_buckets=num_buckets,
                bidirectional=True,
                max_distance=max_distance,
            )


@pytest.mark.parametrize(
    ("num_heads", "exponents"),
    [
        (1, [8]),
        (4, [2, 4, 6, 8]),
        (8, [1, 2, 3, 4, 5, 6, 7, 8]),  # the paper's example
        (6, [2, 4, 6, 8, 1, 3]),  # as in its authors' code: every second one of 8
        (12, [1, 2, 3, 4, 5, 6, 7, 8, 0.5, 1.5, 2.5, 3.5]),
    ],
)
def test_slopes_are_those_of_alibi(num_heads, exponents):
    assert alibi_slopes(num_heads) == [2.0**-exponent for exponent in exponents]
    offsets = np.array([[0, -1, -5], [3, 1, 0]])
    expected = [-np.abs(offsets) * 2.0**-exponent for exponent in exponents]
    np.testing.assert_allclose(alibi(num_heads)(offsets), expected, rtol=1e-6)


def test_rotary_turns_pairs_forward_as_complex_numbers_do():
    """RoFormer, eq. 13, 15: ``x_m e^(i m theta_j)``, ``theta_j = 10000^(-2j / K)``."""
    positions = np.array([0, 1, 2, 300])
    x = np.random.default_rng(0).normal(size=(2, 4, 6)).astype(np.float32)
    pairs = x[..., 0::2] + 1j * x[..., 1::2].astype(np.float64)
    frequency = 10_000.0 ** (-np.arange(0, 6, 2) / 6)
    turned = pairs * np.exp(1j * positions[:, None] * frequency)
    got = jax.jit(rotate)(x, positions)
    np.testing.assert_allclose(got[..., 0::2], turned.real, atol=1e-4)
    np.testing.assert_allclose(got[..., 1::2], turned.imag, atol=1e-4)
    with pytest.raises(ValueError, match="even head width"):
        rotate(x[..., :5], positions)
