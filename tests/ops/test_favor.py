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
    rng = np.random.default_rng(0)
    shapes = ((B, H, length, width), (B, H, length, width), (B, H, length, V))
    query, key, value = (rng.normal(size=shape) for shape in shapes)
    return [np.float32(x) for x in (scale * query, scale * key, value)]


@functools.partial(jax.jit, static_argnames=("epsilon", "chunk"))
def attend(inputs, mask, projection, epsilon=1e-6, chunk=256):
    options = {"epsilon": epsilon, "chunk": chunk}
    return favor.favor_attention(*inputs, mask, projection=projection, **options)


@pytest.fixture(scope="module")
def golden():
    with np.load(GOLDEN) as file:
        return dict(file)


def test_output_equals_that_of_performer_pytorch(golden):
    inputs = [golden[name] for name in ("query_bhtk", "key_bhsk", "value_bhsv")]
    epsilon = float(golden["kernel_eps"])
    got = attend(inputs, Mask(), golden["projection"], epsilon)
    np.testing.assert_allclose(got.context, golden["output"], atol=1e-5)


def test_features_equal_those_of_performer_pytorch(golden):
    epsilon = float(golden["kernel_eps"])

    @functools.partial(jax.jit, static_argnames="axes")
    def features(vectors, axes):
        exponent, highest = favor.feature_exponents(vectors, golden["projection"])
        highest = highest.max(axes, keepdims=True)[..., None]
        return favor.positive_features(exponent, highest, epsilon)

    for name, axes in (("query_bhtk", ()), ("key_bhsk", (-1,))):
        expected = golden[f"{name.split('_')[0]}_features"]
        np.testing.assert_allclose(features(golden[name], axes), expected, atol=1e-6)


def estimates(projection, *vectors):
    """``phi(q) · phi(k)`` without epsilon, for projections ``[draws, F, K]``."""
    product = 1.0
    for vector in vectors:
        rows = jnp.broadcast_to(vector, (len(projection), 1, vector.shape[-1]))
        exponent, _ = favor.feature_exponents(rows, projection)
        product = product * favor.positive_features(exponent, 0.0, 0.0)
    return product.sum((-1, -2))


def test_the_kernel_is_estimated_without_bias_and_better_than_by_independent_rows():
    width, draws = 4, 20_000
    query = np.array([0.9, -0.4, 0.3, 0.5], np.float32)
    key = np.array([0.6, 0.8, -0.7, 0.2], np.float32)
    exact = np.exp(query @ key / np.sqrt(width))
    shape = (width, width)

    @jax.jit
    def run(rng):
        rngs = jax.random.split(rng, draws)
        rows = jax.vmap(lambda rng: favor.orthogonal_projection(rng, shape))(rngs)
        normal = jax.random.normal(rng, (draws, *shape))
        return estimates(rows, query, key), estimates(normal, query, key)

    orthogonal, independent = jax.device_get(run(jax.random.key(1)))
    for got in (orthogonal, independent):
        assert abs(got.mean() - exact) < 4 * got.std() / np.sqrt(draws)
    assert orthogonal.var() < 0.95 * independent.var()


def test_rows_are_orthogonal_in_groups_with_normal_lengths():
    draw = jax.jit(favor.orthogonal_projection, static_argnums=1)
    projection = np.asarray(draw(jax.random.key(0), (50, 30, K)))
    assert projection.shape == (50, 30, K)
    for start in (0, K, 2 * K):
        group = projection[:, start : start + K]
        products = np.einsum("efk,eck->efc", group, group)
        crossed = products * (1 - np.eye(group.shape[1])[None])
        np.testing.assert_allclose(crossed, 0.0, atol=1e-4)
    squares = np.square(projection).sum(-1)
    assert abs(squares.mean() - K) < 0.4  # chi-squared of K
    assert abs(squares.var() - 2 * K) < 3.0


def test_error_falls_as_one_over_the_root_of_the_features():
    """Where every pair's relative variance is below F; the rate is that of the limit.

    For longer vectors it sets in later: from 32 to 2048 features the slope was -0.49,
    -0.48, -0.41 and -0.22 at scales 0.2, 0.35, 0.5 and 0.8, with epsilon or without.
    """
    width, counts = 8, np.array([32, 128, 512, 2048])
    query, key, value = arrays(width=width, scale=0.35, length=16)
    exact = np.asarray(jax.jit(dense_attention)(query, key, value, Mask()).context)
    sums = query[..., :, None, :] + key[..., None, :, :]
    variance = np.exp(np.square(sums).sum(-1) / np.sqrt(width)) - 1
    assert variance.max() < counts[0]

    @functools.partial(jax.jit, static_argnums=1)
    def squared_errors(rngs, features):
        def squared_error(rng):
            rows = favor.orthogonal_projection(rng, (H, features, width))
            got = favor.favor_attention(query, key, value, Mask(), projection=rows)
            return jnp.square(got.context - exact).mean()

        return jax.lax.map(squared_error, rngs)

    rngs = jax.random.split(jax.random.key(4), 16)
    errors = [np.sqrt(squared_errors(rngs, n).mean()) for n in counts.tolist()]
    slope = np.polyfit(np.log(counts), np.log(errors), 1)[0]
    assert abs(slope + 0.5) < 0.05, (slope, errors)


draw_projection = jax.jit(favor.orthogonal_projection, static_argnums=1)


def projection_of(seed):
    return np.asarray(draw_projection(jax.random.key(seed), (H, 16, K)))


def test_causal_sums_equal_the_quadratic_form():
    """In float64, with the largest projection so far taken off and epsilon added."""
    query, key, value = arrays()
    projection = projection_of(5)
    inputs = query, key, value
    got = attend(inputs, Mask(causal=True), projection, chunk=3).context
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
    valid = np.arange(S)[None, None, :] < np.array([S, 4])[:, None, None]
    growth = sign * 100.0 * 3.0 ** np.arange(S)[None, None, :]
    growth = np.float32(np.where(valid, growth, 0.0)[..., None])
    mask = Mask(valid=valid, causal=causal)
    inputs = query, np.abs(key) * growth, np.ones_like(value)
    gradients, context = pull_ones(inputs, mask, np.ones((H, 1, K), np.float32))
    np.testing.assert_allclose(context, 1.0, atol=1e-5)
    # By the chain rule also those of the keys before they grew.
    assert np.all(np.isfinite(gradients[1] * growth))
    assert all(np.all(np.isfinite(gradient)) for gradient in gradients)


@jax.jit
def pull_ones(inputs, mask, projection):
    """The gradients of the sum of the context, and the context."""
    context, pull = jax.vjp(
        lambda inputs: attend(inputs, mask, projection, chunk=2).context, inputs
    )
    return *pull(jnp.ones_like(context)), context


@pytest.mark.parametrize(
    ("every", "redrawn_at"), [(3, {3, 6}), (1, {1, 2, 3, 4, 5, 6, 7}), (0, set())]
)
def test_projection_is_redrawn_every_so_many_training_steps(every, redrawn_at):
    sizes = Sizes(H, K, V, S)
    options = {"features": 16, "redraw_every": every, "chunk": 2}

    @jax.jit
    def run(rng):
        """The buffers at the start, and after each of seven updates."""
        start = {
            name: init(rng, shape)
            for name, (shape, init) in favor.buffers(sizes, features=16).items()
        }

        def update(buffers, rng):
            buffers = favor.update(buffers, None, None, Mask(), rng, **options)
            return buffers, buffers

        return start, jax.lax.scan(update, start, jax.random.split(rng, 7))[1]

    start, after = jax.device_get(run(jax.random.key(0)))
    assert start["projection"].shape == (H, 16, K)
    rows = [start["projection"], *after["projection"]]
    changed = {
        number for number in range(1, 8) if np.any(rows[number] != rows[number - 1])
    }
    assert changed == redrawn_at
    assert after["num_updates"][-1] == 7


def test_heads_have_projections_of_their_own():
    projection = projection_of(0)
    inputs = arrays()
    whole = jax.device_get(attend(inputs, Mask(), projection))
    for head in range(H):
        alone = attend([x[0, head] for x in inputs], Mask(), projection[head])
        np.testing.assert_allclose(alone.context, whole.context[0, head], atol=1e-5)
