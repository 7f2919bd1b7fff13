"""Every sparse pattern, held against the same pattern written as a loop."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnjax.ops.block_sparse import (
    BlockSparse,
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
OFFSET = np.arange(N)[None, :] - np.arange(N)[:, None]
BLOCKS = BlockSparse(block=7, num_global=2, num_random=3, seed=5)


CHOSEN = {causal: random_blocks(23, BLOCKS, causal=causal) for causal in (False, True)}


def block_sees(i, j, causal):
    query_block, key_block = i // 7, j // 7
    return (
        abs(query_block - key_block) <= 1
        or min(query_block, key_block) < 2
        or key_block in np.asarray(CHOSEN[causal])[query_block]
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
        CATALOG["strided"].bind(sizes=Sizes(H, K, V, N)),
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


@functools.cache
def seen(name, causal):
    """Bool ``[N, N]`` by loops."""
    _, sees = CASES[name]
    if name == "blocks":
        sees = functools.partial(sees, causal=causal)
    return np.array([[sees(i, j) for j in range(N)] for i in range(N)])


def pattern_of(name, mask=Mask()):  # noqa: B008  # a frozen dataclass
    """The same with the causal and window facts."""
    left, right = mask.window or (N, 0 if mask.causal else N)
    if mask.causal:
        right = 0
    return seen(name, mask.causal) & (OFFSET >= -left) & (OFFSET <= right)


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


@every
@pytest.mark.parametrize("mask", [Mask(), Mask(causal=True, window=(30, 4))])
def test_one_hot_values_show_the_receptive_field(name, mask):
    """With the value e_j of key j, the context is the row of weights."""
    attend, _ = CASES[name]
    query, key = (normal(N, K, seed=seed) for seed in (0, 1))
    eye = np.eye(N, dtype=np.float32)
    weights = np.asarray(jax.jit(attend)(query, key, eye, mask).context)
    np.testing.assert_array_equal(weights > 0, pattern_of(name, mask))
    np.testing.assert_allclose(weights.sum(-1), 1.0, atol=1e-6)


def with_gradients(function):
    """Context and its gradients, weighed by the last argument but one."""

    def run(inputs, weigh, facts):
        context, pull = jax.vjp(lambda *inputs: function(*inputs, facts), *inputs)
        return context, *pull(weigh)

    return jax.jit(run)


@with_gradients
def dense(query, key, value, allowed):
    scores = scaled_dot_scores(query, key) + alibi(H)(OFFSET)[None]
    return masked_softmax(scores, allowed) @ value


@every
def test_equals_dense_attention_under_the_pattern(name):
    """In value and gradient: heads, a ragged batch, a bias and a causal mask."""
    attend, _ = CASES[name]
    inputs = [normal(B, H, N, width, seed=n) for n, width in enumerate((K, K, V))]
    valid = np.arange(N)[None, :] < np.array([[N], [70]])
    mask = Mask(valid=valid, causal=True).over_heads()
    allowed = pattern_of(name, mask)[None, None] & mask.valid[:, :, None]
    weigh = normal(B, H, N, V, seed=3)

    @with_gradients
    def sparse(query, key, value, mask):
        return attend(query, key, value, mask, bias=alibi(H)).context

    pairs = zip(sparse(inputs, weigh, mask), dense(inputs, weigh, allowed), strict=True)
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
    inputs = [normal(B, H, length, width, seed=n) for n, width in enumerate((K, K, V))]
    attend = jax.jit(functools.partial(line.attend, bias=alibi(H), **options))
    whole = np.asarray(attend(*inputs, Mask(causal=True)).context)
    sizes = Sizes(H, K, V, length)
    cache = line.incremental.begin(B, length, sizes, jnp.float32, **options)
    assert cache.key.shape == (B, H, places, K)

    @jax.jit
    def advance(tokens, cache, position):
        return line.incremental.step(*tokens, cache, position, bias=alibi(H), **options)

    for now in range(length):
        position = np.array([now, max(now - late, 0)], np.int32)
        rows = np.arange(B), slice(None), position
        tokens = [x[rows][:, :, None] for x in inputs]
        context, cache = advance(tokens, cache, position)
        np.testing.assert_allclose(np.asarray(context)[:, :, 0], whole[rows], atol=1e-5)
