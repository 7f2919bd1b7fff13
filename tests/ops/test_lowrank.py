"""Linformer and Nystrom attention against a library, loops and dense attention."""

import functools
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnjax.ops.attend import dense_attention
from attnjax.ops.entry import Sizes
from attnjax.ops.lowrank import (
    linformer_attention,
    linformer_parameters,
    nystrom_attention,
    pseudo_inverse,
)
from attnjax.types import Mask

GOLDEN = pathlib.Path(__file__).parents[1] / "golden"
B, H, T, S, K, V = 2, 3, 5, 7, 12, 14
LENGTHS = (7, 5)


def arrays(num_queries=S, num_keys=S):
    rngs = jax.random.split(jax.random.key(3), 3)
    shapes = ((B, H, num_queries, K), (B, H, num_keys, K), (B, H, num_keys, V))
    return [jax.random.normal(r, s) for r, s in zip(rngs, shapes, strict=True)]


def ragged(num_keys=S):
    valid = jnp.arange(num_keys)[None, :] < jnp.asarray(LENGTHS)[:, None]
    return Mask(valid=valid).over_heads()


def softmax(scores):
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def linformer(inputs, mask, key_projection, value_projection):
    run = jax.jit(linformer_attention)
    projections = {
        "key_projection": key_projection,
        "value_projection": value_projection,
    }
    return run(*inputs, mask, **projections).context


def test_linformer_is_that_of_the_linformer_library():
    golden = np.load(GOLDEN / "linformer_self.npz")
    heads = int(golden["heads"])

    def split(name):
        projected_bsd = golden["inputs"] @ golden[f"param:to_{name}.weight"].T
        batch, length, width = projected_bsd.shape
        return projected_bsd.reshape(batch, length, heads, width // heads).swapaxes(
            1, 2
        )

    projections = golden["param:proj_k"].T, golden["param:proj_v"].T
    context = linformer([split(name) for name in "qkv"], Mask(), *projections)
    joined = np.asarray(context).swapaxes(1, 2).reshape(golden["inputs"].shape)
    output = joined @ golden["param:to_out.weight"].T + golden["param:to_out.bias"]
    np.testing.assert_allclose(output, golden["output"], atol=1e-5)


def test_linformer_is_its_equation_with_heads_padding_and_few_queries():
    query, key, value = arrays(num_queries=T)
    rngs = jax.random.split(jax.random.key(5), 2)
    # two columns more than there are keys
    mix_k, mix_v = (np.asarray(jax.random.normal(r, (H, 3, S + 2))) for r in rngs)
    got = linformer((query, key, value), ragged(), mix_k, mix_v)
    query, key, value = (np.asarray(x, np.float64) for x in (query, key, value))
    for row, length in enumerate(LENGTHS):
        for head in range(H):
            keys = mix_k[head, :, :length] @ key[row, head, :length]
            values = mix_v[head, :, :length] @ value[row, head, :length]
            weights = softmax(query[row, head] @ keys.T / np.sqrt(K))
            np.testing.assert_allclose(got[row, head], weights @ values, atol=1e-4)


def test_linformer_of_full_rank_with_identities_is_dense():
    identity = jnp.eye(S)
    inputs = arrays(num_queries=T)
    got = linformer(inputs, Mask(), identity, identity)
    np.testing.assert_allclose(got, dense_attention(*inputs, Mask()).context, atol=1e-5)


def test_linformer_heads_may_share_a_projection():
    mix = jax.random.normal(jax.random.key(0), (3, S))
    each = jnp.broadcast_to(mix, (H, 3, S))
    inputs = arrays()
    np.testing.assert_allclose(
        linformer(inputs, ragged(), mix, mix),
        linformer(inputs, ragged(), each, each),
        atol=1e-6,
    )


def test_linformer_refuses_more_keys_than_it_has_columns_for():
    mix = jnp.ones((3, S - 1))
    with pytest.raises(ValueError, match="projections for 6 keys, got 7"):
        linformer(arrays(), Mask(), mix, mix)
    with pytest.raises(ValueError, match=r"axes \[rank 4, max_keys\], got \(3, 6\)"):
        linformer_attention(
            *arrays(), Mask(), rank=4, key_projection=mix, value_projection=mix
        )


def test_linformer_mixtures_are_as_large_as_what_they_mix():
    sizes = Sizes(num_heads=H, key_width=K, value_width=V, max_keys=500)
    made = linformer_parameters(sizes, rank=40)
    shape, init = made["key_projection"]
    assert shape == made["value_projection"].shape == (H, 40, 500)
    mixed = init(jax.random.key(1), shape) @ np.random.default_rng(0).normal(size=500)
    assert 0.8 < np.std(mixed) < 1.2


def loop_nystrom(query, key, value, rank, iterations):
    """The paper's algorithm 1 for one head of one sentence, float64."""
    length = len(key)
    count = min(rank, length)
    segments = [[] for _ in range(rank)]
    for position in range(length):
        segments[position * rank // length].append(position)
    segments = [segment for segment in segments if segment]
    assert len(segments) == count
    query_mark = np.stack([query[segment].mean(0) for segment in segments])
    key_mark = np.stack([key[segment].mean(0) for segment in segments])
    scale = np.sqrt(query.shape[-1])
    near = softmax(query @ key_mark.T / scale)
    between = softmax(query_mark @ key_mark.T / scale)
    far = softmax(query_mark @ key.T / scale)
    one, inverse = np.eye(count), between.T
    inverse = inverse / between.sum(0).max() / between.sum(1).max()
    for _ in range(iterations):
        product = between @ inverse
        inner = 15 * one - product @ (7 * one - product)
        inverse = inverse @ (13 * one - product @ inner) / 4
    return near @ inverse @ far @ value


@pytest.mark.parametrize("rank", [2, 3, 6])
def test_nystrom_is_its_algorithm_on_the_real_positions(rank):
    """Rank 6 lies between the two lengths: one sentence has a landmark a position."""
    inputs = arrays()
    run = jax.jit(functools.partial(nystrom_attention, rank=rank))
    got = run(*inputs, ragged()).context
    exact = [np.asarray(x, np.float64) for x in inputs]
    for row, length in enumerate(LENGTHS):
        for head in range(H):
            expected = loop_nystrom(
                *(x[row, head, :length] for x in exact), rank, iterations=6
            )
            np.testing.assert_allclose(got[row, head, :length], expected, atol=1e-5)


def test_nystrom_of_full_rank_nears_dense_attention():
    inputs = arrays()
    expected = dense_attention(*inputs, Mask()).context
    errors = []
    for iterations in (2, 6, 15):
        run = functools.partial(nystrom_attention, rank=S, iterations=iterations)
        context = jax.jit(run)(*inputs, Mask()).context
        errors.append(float(jnp.abs(context - expected).max()))
    assert errors[0] > 10 * errors[1] > 100 * errors[2]
    assert errors[2] < 2e-5


def test_pseudo_inverse_leaves_zero_rows_alone():
    matrix = softmax(np.random.default_rng(2).normal(size=(4, 5, 5)))
    matrix[2, 4] = matrix[2, :, 4] = 0.0  # a landmark that is not there
    got = jax.jit(functools.partial(pseudo_inverse, iterations=25))(
        matrix.astype(np.float32)
    )
    np.testing.assert_allclose(got, np.linalg.pinv(matrix), rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(got[2, 4], 0.0)
    np.testing.assert_array_equal(got[2, :, 4], 0.0)


@pytest.mark.parametrize("mechanism", ["linformer", "nystrom"])
def test_every_query_sees_every_real_key_and_no_other(mechanism):
    inputs = arrays()
    mix = jax.random.normal(jax.random.key(4), (3, S))
    attend = (
        functools.partial(nystrom_attention, rank=3)
        if mechanism == "nystrom"
        else functools.partial(
            linformer_attention, key_projection=mix, value_projection=mix
        )
    )

    def context_of(value):
        return attend(inputs[0], inputs[1], value, ragged()).context[1, 0].sum(-1)

    influence_ts = jax.jit(jax.jacobian(context_of))(inputs[2])[:, 1, 0].sum(-1)
    assert np.all(influence_ts[:, : LENGTHS[1]] != 0.0)
    np.testing.assert_array_equal(influence_ts[:, LENGTHS[1] :], 0.0)
