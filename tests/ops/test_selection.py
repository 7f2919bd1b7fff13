"""Local and top-k weights against float64 loops, and windows against all keys."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnjax.ops import selection

B, T, S, K, A = 2, 5, 11, 3, 7
LENGTHS = np.array([11, 4])
VALID = np.arange(S)[None] < LENGTHS[:, None]


def _normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


_local_weights = jax.jit(
    selection.local_weights, static_argnames=("window", "gaussian")
)
_top_k_weights = jax.jit(selection.top_k_weights, static_argnums=2)


def _softmax_over(scores: np.ndarray, kept: list[int]) -> np.ndarray:
    """Float64 weights of one row; zeros where nothing is kept."""
    weights = np.zeros(len(scores))
    exponentials = [np.exp(np.float64(scores[s])) for s in kept]
    for s, exponential in zip(kept, exponentials, strict=True):
        weights[s] = exponential / sum(exponentials)
    return weights


def _real_keys(b: int) -> list[int]:
    return [s for s in range(S) if VALID[b, s]]


@pytest.mark.parametrize("top_k", [1, 3, S, S + 1])
def test_top_k_is_the_softmax_over_the_best_real_keys(top_k):
    scores = _normal(B, T, S)
    weights = np.asarray(_top_k_weights(scores, VALID[:, None], top_k))
    for b, t in np.ndindex(B, T):
        order = sorted(_real_keys(b), key=lambda s: -scores[b, t, s])
        expected = _softmax_over(scores[b, t], sorted(order[:top_k]))
        np.testing.assert_allclose(weights[b, t], expected, atol=1e-6)


def test_top_k_keeps_the_earlier_of_equal_keys_and_none_of_an_empty_row():
    scores = np.zeros((2, 1, S), np.float32)
    allowed = np.ones((2, 1, S), bool)
    allowed[1] = False

    def total(scores):
        weights = selection.top_k_weights(scores, allowed, 2)
        return jnp.square(weights).sum(), weights

    run = jax.jit(jax.grad(total, has_aux=True))
    gradient, weights = jax.device_get(run(scores))
    np.testing.assert_allclose(weights[0, 0], [0.5, 0.5] + [0.0] * 9)
    np.testing.assert_array_equal(weights[1], 0.0)
    assert np.isfinite(gradient).all()


@pytest.mark.parametrize("gaussian", [False, True])
def test_local_weights_are_those_of_luong(gaussian):
    scores, window = _normal(B, T, S), 2
    centre = np.array([[0.0, 0.4, 5.7, 10.0, 11.0], [0.2, 1.0, 2.5, 3.9, 4.0]])
    weights = _local_weights(
        scores,
        np.arange(S)[None, None],
        centre.astype(np.float32),
        VALID[:, None],
        window=window,
        gaussian=gaussian,
    )
    weights = np.asarray(weights)
    for b, t in np.ndindex(B, T):
        p = centre[b, t]
        near = [s for s in _real_keys(b) if p - window <= s <= p + window]
        expected = _softmax_over(scores[b, t], near)
        if gaussian:
            sigma = window / 2
            expected = expected * np.exp(-((np.arange(S) - p) ** 2) / (2 * sigma**2))
        np.testing.assert_allclose(weights[b, t], expected, atol=1e-6)


def test_a_window_gives_the_weights_of_all_keys():
    window, scores = 2, _normal(B, S, 1)
    width = selection.window_width(window, S)
    assert width == 5
    options = {"window": window, "gaussian": True}

    @jax.jit
    def run(centre):
        """The weights of all keys, and those of a window at their places."""
        full = selection.local_weights(
            scores.swapaxes(1, 2),
            *(jnp.arange(S)[None, None], centre, VALID[:, None]),
            **options,
        )
        start = selection.window_start(centre[:, 0], window, S)
        inside = selection.local_weights(
            selection.take_window(scores, start, width).swapaxes(1, 2),
            start[:, None, None] + jnp.arange(width)[None, None],
            centre,
            selection.take_window(VALID[..., None], start, width).swapaxes(1, 2),
            **options,
        )
        return full, selection.spread_window(inside, start[:, None], S)

    for p in [0.0, 0.1, 1.9, 2.0, 2.1, 3.9, 5.5, 8.0, 8.6, 10.0, 11.0]:
        centre = np.minimum(np.full((B, 1), p), LENGTHS[:, None])
        full, spread = jax.device_get(run(centre.astype(np.float32)))
        np.testing.assert_allclose(spread, full, atol=1e-6, err_msg=str(p))
        assert full.sum() > 0


def test_a_wide_gaussian_is_the_softmax():
    scores = _normal(B, T, S)
    weights = _local_weights(
        scores,
        np.arange(S)[None, None],
        _normal(B, T, seed=1),
        VALID[:, None],
        window=100_000,
        gaussian=True,
    )
    weights = np.asarray(weights)
    for b, t in np.ndindex(B, T):
        expected = _softmax_over(scores[b, t], _real_keys(b))
        np.testing.assert_allclose(weights[b, t], expected, atol=1e-6)


def test_the_predicted_centre_is_a_share_of_the_real_length():
    query, kernel, vector = _normal(B, T, K), _normal(K, A, seed=1), _normal(A, seed=2)
    run = jax.jit(selection.predicted_centre)
    centre = np.asarray(run(query, kernel, vector, LENGTHS))
    for b, t in np.ndindex(B, T):
        raw = np.tanh(query[b, t].astype(np.float64) @ kernel) @ vector
        expected = LENGTHS[b] / (1 + np.exp(-raw))
        np.testing.assert_allclose(centre[b, t], expected, rtol=1e-5)


def test_the_monotonic_centre_is_the_position_within_the_source():
    position = jnp.array([[0, 3, 10, 12], [0, 3, 10, 12]])
    centre = selection.monotonic_centre(position, LENGTHS)
    np.testing.assert_array_equal(centre, [[0, 3, 10, 10], [0, 3, 3, 3]])
    empty = selection.monotonic_centre(position[:1], jnp.array([0]))
    np.testing.assert_array_equal(empty, 0.0)


def test_the_centre_learns_from_the_gaussian():
    def near_key_7(raw):
        weights = selection.local_weights(
            jnp.zeros((1, S)),
            *(jnp.arange(S)[None], raw, None),
            window=4,
            gaussian=True,
        )
        return weights[0, 7]

    slope = jax.jit(jax.grad(near_key_7))
    assert slope(np.float32([5.5])) > 0
    assert slope(np.float32([8.5])) < 0
