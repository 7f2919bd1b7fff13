"""FAVOR+: the golden numbers, no bias, 1 / sqrt(features), and when to redraw."""

import functools
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnjax.ops import favor
from attnjax.ops.attend import dense_attention
from attnjax.ops.entry import Sizes
from attnjax.types import Mask

GOLDEN = Path(__file__).parents[1] / "golden" / "performer_favor.npz"
B, H, S, K, V = 2, 3, 7, 11, 13


def arrays(width=K, scale=1.0, length=S):
    rngs = jax.random.split(jax.random.key(0), 3)
    shapes = ((B, H, length, width), (B, H, length, width), (B, H, length, V))
    query, key, value = (
        jax.random.normal(*pair) for pair in zip(rngs, shapes, strict=True)
    )
    return scale * query, scale * key, value


@pytest.fixture(scope="module")
def golden():
    with np.load(GOLDEN) as file:
        return dict(file)


def test_output_equals_that_of_performer_pytorch(golden):
    inputs = [golden[name] for name in ("query_bhtk", "key_bhsk", "value_bhsv")]
    epsilon = float(golden["kernel_eps"])
    got = favor.favor_attention(
        *inputs, Mask(), projection=golden["projection"], epsilon=epsilon
    )
    np.testing.assert_allclose(got.context, golden["output"], atol=1e-5)


def test_features_equal_those_of_performer_pytorch(golden):
    epsilon = float(golden["kernel_eps"])
    for name, axes in (("query_bhtk", ()), ("key_bhsk", (-1,))):
        exponent, highest = favor.feature_exponents(golden[name], golden["projection"])
        highest = highest.max(axes, keepdims=True)[..., None]
        got = favor.positive_features(exponent, highest, epsilon)
        expected = golden[f"{name.split('_')[0]}_features"]
        np.testing.assert_allclose(got, expected, atol=1e-6)


def estimates(projection, *vectors):
    """``phi(q) · phi(k)`` without epsilon, for projections ``[draws, F, K]``."""
    product = 1.0
    for vector in vectors:
        rows = jnp.broadcast_to(vector, (len(projection), 1, vector.shape[-1]))
        exponent, _ = favor.feature_exponents(rows, projection)
        product = product * favor.positive_features(exponent, 0.0, 0.0)
    return np.asarray(product.sum((-1, -2)))


def test_the_kernel_is_estimated_without_bias_and_better_than_by_independent_rows():
    width, draws = 4, 20_000
    query = jnp.array([0.9, -0.4, 0.3, 0.5])
    key = jnp.array([0.6, 0.8, -0.7, 0.2])
    exact = np.exp(query @ key / np.sqrt(width))
    shape = (width, width)
    rngs = jax.random.split(jax.random.key(1), draws)
    orthogonal = estimates(
        jax.vmap(lambda rng: favor.orthogonal_projection(rng, shape))(rngs), query, key
    )
    independent = estimates(
        jax.random.normal(jax.random.key(2), (draws, *shape)), query, key
    )
    for got in (orthogonal, independent):
        assert abs(got.mean() - exact) < 4 * got.std() / np.sqrt(draws)
    assert orthogonal.var() < 0.95 * independent.var()


def test_rows_are_orthogonal_in_groups_with_normal_lengths():
    projection = favor.orthogonal_projection(jax.random.key(0), (50, 30, K))
    assert projection.shape == (50, 30, K)
    for start in (0, K, 2 * K):
        group = projection[:, start : start + K]
        products = jnp.einsum("efk,eck->efc", group, group)
        crossed = products * (1 - jnp.eye(group.shape[1])[None])
        np.testing.assert_allclose(crossed, 0.0, atol=1e-4)
    squares = jnp.square(projection).sum(-1)
    assert abs(squares.mean() - K) < 0.4  # chi-squared of K
    assert abs(squares.var() - 2 * K) < 3.0


def test_error_falls_as_one_over_the_root_of_the_features():
    """Where every pair's relative variance is below F; the rate is that of the limit.

    For longer vectors it sets in later: from 32 to 2048 features the slope was -0.49,
    -0.48, -0.41 and -0.22 at scales 0.2, 0.35, 0.5 and 0.8, with epsilon or without.
    """
    width, counts = 8, np.array([32, 128, 512, 2048])
    query, key, value = arrays(width=width, scale=0.35, length=16)
    exact = dense_attention(query, key, value, Mask()).context
    sums = query[..., :, None, :] + key[..., None, :, :]
    variance = np.exp(np.square(sums).sum(-1) / np.sqrt(width)) - 1
    assert variance.max() < counts[0]

    def squared_error(rng, features):
        projection = favor.orthogonal_projection(rng, (H, features, width))
        got = favor.favor_attention(query, key, value, Mask(), projection=projection)
        return jnp.square(got.context - exact).mean()

    rngs = jax.random.split(jax.random.key(4), 16)
    errors = []
    for features in counts.tolist():
        run = jax.jit(functools.partial(squared_error, features=features))
        errors.append(np.sqrt(np.mean([run(rng) for rng in rngs])))
    slope = np.polyfit(np.log(counts), np.log(errors), 1)[0]
    assert abs(slope + 0.5) < 0.05, (slope, errors)


def test_causal_sums_equal_the_quadratic_form():
    """In float64, with the largest projection so far taken off and epsilon added."""
    query, key, value = arrays()
    projection = favor.orthogonal_projection(jax.random.key(5), (H, 16, K))
    got = favor.favor_attention(
        query, key, value, Mask(causal=True), projection=projection, chunk=3
    ).context
    query, key, value, rows = (
        np.asarray(x, np.float64) for x in (query, key, value, projection)
    )
    expected = np.zeros_like(value)
    for b, h, t in np.ndindex(B, H, S):
        phi = {}
        highest = -np.inf
        for name, x in (("q", query[b, h, t]), *enumerate(key[b, h, : t + 1])):
            x = x / K**0.25
            largest = (rows[h] @ x).max()
            highest = largest if name == "q" else max(highest, largest)
            phi[name] = np.exp(rows[h] @ x - x @ x / 2) + 1e-6 * np.exp(highest)
            highest = -np.inf if name == "q" else highest
        weights = np.array([phi["q"] @ phi[s] for s in range(t + 1)])
        expected[b, h, t] = weights / weights.sum() @ value[b, h, : t + 1]
    np.testing.assert_allclose(got, expected, atol=1e-4)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_huge_keys_overflow_nowhere(causal, sign):
    """Keys that grow along the sentence, towards the projection or away from it.

    Away from it the largest projection is far below 0, and taken off it would lift the
    masked keys, which are 0, beyond any float.
    """
    query, key, value = arrays()
    valid = jnp.arange(S)[None, None, :] < jnp.array([S, 4])[:, None, None]
    growth = sign * 100.0 * 3.0 ** jnp.arange(S)[None, None, :]
    growth = jnp.where(valid, growth, 0.0)[..., None]
    projection = jnp.ones((H, 1, K))

    def total(query, key, value):
        mask = Mask(valid=valid, causal=causal)
        context = favor.favor_attention(
            query, jnp.abs(key) * growth, value, mask, projection=projection, chunk=2
        ).context
        return context.sum(), context

    gradients, context = jax.grad(total, argnums=(0, 1, 2), has_aux=True)(
        query, key, jnp.ones_like(value)
    )
    np.testing.assert_allclose(context, 1.0, atol=1e-5)
    assert all(np.all(np.isfinite(gradient)) for gradient in gradients)


@pytest.mark.parametrize(
    ("every", "redrawn_at"), [(3, {3, 6}), (1, {1, 2, 3, 4, 5, 6, 7}), (0, set())]
)
def test_projection_is_redrawn_every_so_many_training_steps(every, redrawn_at):
    sizes = Sizes(H, K, V, S)
    buffers = {
        name: init(jax.random.key(0), shape)
        for name, (shape, init) in favor.buffers(sizes, features=16).items()
    }
    assert buffers["projection"].shape == (H, 16, K)
    options = {"features": 16, "redraw_every": every, "chunk": 2}
    update = jax.jit(
        lambda buffers, rng: favor.update(buffers, None, None, Mask(), rng, **options)
    )
    changed = set()
    for number in range(1, 8):
        before = buffers["projection"]
        buffers = update(buffers, jax.random.key(number))
        if np.any(before != buffers["projection"]):
            changed.add(number)
    assert changed == redrawn_at
    assert buffers["num_updates"] == 7


def test_heads_have_projections_of_their_own():
    projection = favor.orthogonal_projection(jax.random.key(0), (H, 16, K))
    query, key, value = arrays()
    whole = favor.favor_attention(query, key, value, Mask(), projection=projection)
    for head in range(H):
        alone = favor.favor_attention(
            query[0, head],
            key[0, head],
            value[0, head],
            Mask(),
            projection=projection[head],
        )
        np.testing.assert_allclose(alone.context, whole.context[0, head], atol=1e-5)
