"""Memory-compressed attention against loops, dense attention and its own steps."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnjax.ops import compressed
from attnjax.ops.attend import dense_attention
from attnjax.ops.compressed import (
    incremental,
    memory_compressed_attention,
    memory_compressed_parameters,
)
from attnjax.ops.entry import Sizes
from attnjax.types import Mask

B, H, T, S, K, V = 2, 3, 5, 8, 11, 13
LENGTHS = (8, 4)
SIZES = Sizes(num_heads=H, key_width=K, value_width=V, max_keys=S)


def arrays(num_queries=S):
    rngs = jax.random.split(jax.random.key(3), 3)
    shapes = ((B, H, num_queries, K), (B, H, S, K), (B, H, S, V))
    return [jax.random.normal(r, s) for r, s in zip(rngs, shapes, strict=True)]


def kernels(stride):
    rngs = jax.random.split(jax.random.key(8), 2)
    made = memory_compressed_parameters(SIZES, stride=stride).items()
    return {
        name: init(rng, shape)
        for rng, (name, (shape, init)) in zip(rngs, made, strict=True)
    }


def ragged(causal=False):
    valid = jnp.arange(S)[None, :] < jnp.asarray(LENGTHS)[:, None]
    return Mask(valid=valid, causal=causal).over_heads()


def run(inputs, mask, **more):
    stride = more.pop("stride")
    attend = jax.jit(functools.partial(memory_compressed_attention, stride=stride))
    return attend(*inputs, mask, **more).context


def loop(inputs, stride, is_causal, learned):
    """From the equation, float64; the context of every query."""
    query, key, value = (np.asarray(x, np.float64) for x in inputs)
    num_queries = query.shape[2]
    context = np.zeros((B, H, num_queries, V))
    for row, head, t in np.ndindex(B, H, num_queries):
        keys, values = [], []
        for start in range(0, LENGTHS[row], stride):
            if is_causal and start + stride - 1 > t + S - num_queries:
                continue
            places = range(start, min(start + stride, LENGTHS[row]))
            if learned is None:
                keys.append(np.mean([key[row, head, p] for p in places], 0))
                values.append(np.mean([value[row, head, p] for p in places], 0))
            else:
                kernel_k, kernel_v = (np.asarray(x)[head] for x in learned.values())
                keys.append(
                    sum(key[row, head, p] @ kernel_k[p - start] for p in places)
                )
                values.append(
                    sum(value[row, head, p] @ kernel_v[p - start] for p in places)
                )
        if keys:
            weights = np.exp(np.stack(keys) @ query[row, head, t] / np.sqrt(K))
            context[row, head, t] = weights @ np.stack(values) / weights.sum()
    return context


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("is_learned", [False, True])
@pytest.mark.parametrize("num_queries", [S, T])
def test_is_its_equation(is_causal, is_learned, num_queries):
    inputs = arrays(num_queries)
    learned = kernels(3) if is_learned else None
    got = run(inputs, ragged(is_causal), stride=3, **(learned or {}))
    expected = loop(inputs, 3, is_causal, learned)
    real = np.ones((B, num_queries), bool)
    if num_queries == S:  # what fills up the batch also asks, its answer is unused
        real = np.arange(S)[None] < np.asarray(LENGTHS)[:, None]
    real = np.broadcast_to(real[:, None, :, None], got.shape)
    np.testing.assert_allclose(got[real], expected[real], atol=1e-5)


def test_stride_zero_is_that_of_the_paper():
    learned = kernels(0)
    assert learned["key_kernel"].shape == (H, 3, K, K)
    assert learned["value_kernel"].shape == (H, 3, V, V)
    zero, three = (run(arrays(), Mask(), stride=n, **learned) for n in (0, 3))
    np.testing.assert_array_equal(zero, three)


@pytest.mark.parametrize("is_learned", [False, True])
@pytest.mark.parametrize("is_causal", [False, True])
def test_stride_one_that_copies_is_dense_attention(is_learned, is_causal):
    more = {}
    if is_learned:  # one kernel for all heads
        more = {"key_kernel": jnp.eye(K)[None], "value_kernel": jnp.eye(V)[None]}
    inputs = arrays(T)
    mask = Mask(causal=is_causal)
    got = run(inputs, mask, stride=1, **more)
    np.testing.assert_allclose(got, dense_attention(*inputs, mask).context, atol=1e-5)


def test_means_give_back_a_constant_value():
    query, key, value = arrays()
    got = run((query, key, jnp.ones_like(value)), ragged(), stride=3)
    np.testing.assert_allclose(got, 1.0, atol=1e-6)


def test_a_causal_query_sees_whole_blocks_that_end_before_it():
    query, key, value = arrays()
    learned = kernels(3)

    def context_of(value):
        mask = Mask(causal=True)
        context = memory_compressed_attention(query, key, value, mask, **learned)
        return context.context[0, 0].sum(-1)

    influence_ts = jax.jit(jax.jacobian(context_of))(value)[:, 0, 0].sum(-1)
    seen = [(t + 1) // 3 * 3 for t in range(S)]
    np.testing.assert_array_equal(
        influence_ts != 0.0, np.arange(S)[None] < np.asarray(seen)[:, None]
    )


def test_queries_in_several_chunks(monkeypatch):
    inputs, learned = arrays(), kernels(3)
    whole = run(inputs, ragged(causal=True), stride=3, **learned)
    monkeypatch.setattr(compressed, "_QUERIES_AT_ONCE", 3)
    parts = run(inputs, ragged(causal=True), stride=3, **learned)
    np.testing.assert_allclose(parts, whole, atol=1e-6)


def test_rows_may_be_at_different_positions_of_their_sentences():
    inputs, learned = arrays(), kernels(3)
    whole = run(inputs, Mask(causal=True), stride=3, **learned)
    cache = incremental.begin(B, S, SIZES, jnp.float32, stride=3)
    step = jax.jit(functools.partial(incremental.step, stride=3))
    for turn in range(S):
        position = jnp.asarray([turn, max(turn - 1, 0)])  # row 1 begins twice
        rows = [
            jnp.take_along_axis(x, position[:, None, None, None], axis=2)
            for x in inputs
        ]
        context, cache = step(*rows, cache, position, **learned)
        for row in range(B):
            np.testing.assert_allclose(
                context[row, :, 0], whole[row, :, position[row]], atol=1e-5
            )


def test_a_cache_holds_a_vector_per_block():
    cache = incremental.begin(B, 3_000, SIZES, jnp.bfloat16, stride=0)
    assert cache.key.shape == (B, H, 1_000, K)
    assert cache.recent_value.shape == (B, H, 3, V)
    assert cache.recent_key.dtype == jnp.bfloat16


def test_a_kernel_of_another_stride_is_refused():
    with pytest.raises(ValueError, match="kernel must end in the axes .stride 2"):
        memory_compressed_attention(*arrays(), Mask(), stride=2, **kernels(3))
