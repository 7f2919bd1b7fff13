"""Every sparse pattern, held against the same pattern written as a loop."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnjax.ops.block_sparse import (
    BlockPattern,
    block_sparse_attention,
    random_blocks,
)
from attnjax.ops.catalog import CATALOG
from attnjax.ops.entry import Sizes
from attnjax.ops.local import sliding_window_attention
from attnjax.ops.local_global import local_global_attention
from attnjax.ops.relative import alibi
from attnjax.ops.scorers import scaled_dot_scores
from attnjax.ops.softmax import masked_softmax
from attnjax.ops.sparse import fixed_attention, strided_attention
from attnjax.types import Mask

B, H, K, V = 2, 3, 5, 7
N = 157  # a prime, and more than two of the smallest blocks
BLOCKS = BlockPattern(block=7, num_global=2, num_random=3, seed=5)


def block_sees(i, j):
    query_block, key_block = i // 7, j // 7
    return (
        abs(query_block - key_block) <= 1
        or min(query_block, key_block) < 2
        or key_block in random_blocks(23, BLOCKS)[query_block]
    )


CASES = {
    "window": (
        functools.partial(sliding_window_attention, window=5),
        lambda i, j: abs(i - j) <= 5,
    ),
    "window of more than a block": (
        functools.partial(sliding_window_attention, window=70),
        lambda i, j: abs(i - j) <= 70,
    ),
    "dilated window": (
        functools.partial(sliding_window_attention, window=4, dilation=3),
        lambda i, j: i - j in (-12, -9, -6, -3, 0, 3, 6, 9, 12),
    ),
    "window dilated beyond the end": (
        functools.partial(sliding_window_attention, window=2, dilation=200),
        lambda i, j: i == j,
    ),
    "window and global": (
        functools.partial(local_global_attention, window=5, num_global=3),
        lambda i, j: abs(i - j) <= 5 or i < 3 or j < 3,
    ),
    "window and none global": (
        functools.partial(local_global_attention, window=5, num_global=0),
        lambda i, j: abs(i - j) <= 5,
    ),
    "strided": (
        functools.partial(strided_attention, stride=11),
        lambda i, j: abs(i - j) <= 11 or (i - j) % 11 == 0,
    ),
    "strided by about sqrt(n)": (
        strided_attention,
        lambda i, j: abs(i - j) <= 13 or (i - j) % 13 == 0,
    ),
    "fixed": (
        functools.partial(fixed_attention, stride=11, num_global=2),
        lambda i, j: i // 11 == j // 11 or j % 11 in (9, 10),
    ),
    "blocks": (
        functools.partial(
            block_sparse_attention, block=7, num_global=2, num_random=3, seed=5
        ),
        block_sees,
    ),
}
every = pytest.mark.parametrize("name", CASES)


def pattern_of(name, mask=Mask()):  # noqa: B008  # a frozen dataclass
    """Bool ``[N, N]`` by loops, with the causal and window facts."""
    _, sees = CASES[name]
    left, right = mask.window or (N, 0 if mask.causal else N)
    if mask.causal:
        right = 0
    return np.array(
        [[sees(i, j) and -left <= j - i <= right for j in range(N)] for i in range(N)]
    )


@every
@pytest.mark.parametrize("mask", [Mask(), Mask(causal=True, window=(30, 4))])
def test_one_hot_values_show_the_receptive_field(name, mask):
    """With the value e_j of key j, the context is the row of weights."""
    attend, _ = CASES[name]
    query, key = (jax.random.normal(jax.random.key(i), (N, K)) for i in (0, 1))
    weights = jax.jit(attend)(query, key, jnp.eye(N), mask).context
    np.testing.assert_array_equal(weights > 0, pattern_of(name, mask))
    np.testing.assert_allclose(weights.sum(-1), 1.0, atol=1e-6)


@every
def test_equals_dense_attention_under_the_pattern(name):
    """In value and gradient: heads, a ragged batch, a bias and a causal mask."""
    attend, _ = CASES[name]
    rngs = jax.random.split(jax.random.key(2), 3)
    inputs = tuple(
        jax.random.normal(rng, (B, H, N, width))
        for rng, width in zip(rngs, (K, K, V), strict=True)
    )
    valid = np.arange(N)[None, :] < np.array([[N], [70]])
    mask = Mask(valid=valid, causal=True).over_heads()
    allowed = pattern_of(name, mask)[None, None] & mask.valid[:, :, None]
    offset = np.arange(N)[None, :] - np.arange(N)[:, None]
    weigh = jax.random.normal(jax.random.key(3), (B, H, N, V))

    def dense(query, key, value):
        scores = scaled_dot_scores(query, key) + alibi(H)(offset)[None]
        return masked_softmax(scores, allowed) @ value

    def sparse(query, key, value):
        return attend(query, key, value, mask, bias=alibi(H)).context

    def with_gradients(function):
        def total(*inputs):
            context = function(*inputs)
            return (weigh * context).sum(), context

        run = jax.value_and_grad(total, argnums=(0, 1, 2), has_aux=True)
        (_, context), gradients = jax.jit(run)(*inputs)
        return context, *gradients

    pairs = zip(with_gradients(sparse), with_gradients(dense), strict=True)
    for got, expected in pairs:
        np.testing.assert_allclose(got, expected, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "options", "places"),
    [
        ("sliding_window", {"window": 3, "dilation": 2}, 7),
        ("sliding_window", {"window": 50, "dilation": 1}, 31),
        ("local_global", {"window": 4, "num_global": 2}, 7),
        ("strided", {"stride": 4}, 31),
        ("fixed", {"stride": 4, "num_global": 2}, 31),
        ("block_sparse", {"block": 3, "num_global": 1, "num_random": 2, "seed": 1}, 31),
    ],
)
def test_steps_at_positions_of_their_own_equal_all_at_once(name, options, places):
    """Row 1 starts four steps late; the cache has the size that is claimed."""
    length, late = 31, 4
    line = CATALOG[name]
    rngs = jax.random.split(jax.random.key(4), 3)
    inputs = [
        jax.random.normal(rng, (B, H, length, width))
        for rng, width in zip(rngs, (K, K, V), strict=True)
    ]
    attend = jax.jit(functools.partial(line.attend, bias=alibi(H), **options))
    whole = attend(*inputs, Mask(causal=True)).context
    sizes = Sizes(H, K, V, length)
    cache = line.incremental.begin(B, length, sizes, jnp.float32, **options)
    assert cache.key.shape == (B, H, places, K)

    @jax.jit
    def advance(cache, position):
        at = position[:, None, None, None]
        tokens = [jnp.take_along_axis(x, at, axis=2) for x in inputs]
        return line.incremental.step(*tokens, cache, position, bias=alibi(H), **options)

    for now in range(length):
        position = np.array([now, max(now - late, 0)])
        context, cache = advance(cache, position)
        for row in range(B):
            np.testing.assert_allclose(
                context[row, :, 0], whole[row, :, position[row]], atol=1e-5
            )
