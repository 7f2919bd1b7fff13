"""Scores against float64 loops written from the equations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnjax.ops import scorers

B, H, T, S, K, A = 2, 3, 5, 7, 11, 13


@pytest.fixture(scope="module")
def arrays() -> dict[str, np.ndarray]:
    shapes = {
        "query": (B, H, T, K),
        "key": (B, H, S, K),
        "weight": (H, K, K),
        "query_projected": (B, H, T, A),
        "key_projected": (B, H, S, A),
        "vector": (H, A),
        "narrow_key": (B, H, S, K - 1),
        "joined_weight": (H, 2 * K - 1, A),
        "table": (H, K, 2 * S),
    }
    rng = np.random.default_rng(0)
    return {name: rng.normal(size=shape) for name, shape in shapes.items()}


def _reference(score) -> np.ndarray:
    scores = np.empty((B, H, T, S))
    for index in np.ndindex(B, H, T, S):
        scores[index] = score(*index)
    return scores


def _single(*names: str, arrays) -> list[np.ndarray]:
    return [arrays[name].astype(np.float32) for name in names]


def test_dot_scores_are_inner_products(arrays):
    query, key = arrays["query"], arrays["key"]
    expected = _reference(lambda b, h, t, s: sum(query[b, h, t] * key[b, h, s]))
    got = scorers.dot_scores(*_single("query", "key", arrays=arrays))
    np.testing.assert_allclose(got, expected, atol=1e-5)


def test_scaled_dot_scores_divide_by_the_root_of_the_width(arrays):
    query, key = arrays["query"], arrays["key"]
    expected = (
        _reference(lambda b, h, t, s: sum(query[b, h, t] * key[b, h, s])) / 11**0.5
    )
    got = scorers.scaled_dot_scores(*_single("query", "key", arrays=arrays))
    np.testing.assert_allclose(got, expected, atol=1e-5)


def test_general_scores_are_a_bilinear_form_of_each_head(arrays):
    query, key, weight = (arrays[name] for name in ("query", "key", "weight"))

    def score(b, h, t, s):
        return sum(
            query[b, h, t, i] * weight[h, i, j] * key[b, h, s, j]
            for i in range(K)
            for j in range(K)
        )

    got = scorers.general_scores(*_single("query", "key", "weight", arrays=arrays))
    np.testing.assert_allclose(got, _reference(score), atol=1e-4)


def test_additive_scores_pass_a_tanh_layer(arrays):
    names = ("query_projected", "key_projected", "vector")
    query, key, vector = (arrays[name] for name in names)

    def score(b, h, t, s):
        return sum(vector[h] * np.tanh(query[b, h, t] + key[b, h, s]))

    got = scorers.additive_scores(*_single(*names, arrays=arrays))
    np.testing.assert_allclose(got, _reference(score), atol=1e-5)


def test_additive_scores_keep_no_activations_for_the_gradient():
    num_keys, width = 64, 32
    query, key, vector = (
        jnp.ones((1, num_keys, width)),
        jnp.ones((1, num_keys, width)),
        jnp.ones(width),
    )
    _, pullback = jax.vjp(scorers.additive_scores, query, key, vector)
    kept = sum(leaf.size for leaf in jax.tree.leaves(pullback))
    assert kept <= 2 * (query.size + key.size + vector.size)


def test_concat_scores_map_the_joined_vectors_of_each_head(arrays):
    names = ("query", "narrow_key", "joined_weight", "vector")
    query, key, weight, vector = (arrays[name] for name in names)

    def score(b, h, t, s):
        joined = np.concatenate([query[b, h, t], key[b, h, s]])
        return sum(vector[h] * np.tanh(joined @ weight[h]))

    got = scorers.concat_scores(*_single(*names, arrays=arrays))
    np.testing.assert_allclose(got, _reference(score), atol=1e-5)


def test_location_scores_read_the_query_and_no_key(arrays):
    query, table = arrays["query"], arrays["table"]
    expected = _reference(lambda b, h, t, s: sum(query[b, h, t] * table[h, :, s]))
    got = scorers.location_scores(*_single("query", "table", arrays=arrays), S)
    np.testing.assert_allclose(got, expected, atol=1e-5)


def test_location_scores_refuse_more_keys_than_columns():
    with pytest.raises(ValueError, match="knows 3 key positions, got 4 keys"):
        scorers.location_scores(jnp.ones((T, K)), jnp.ones((K, 3)), 4)


def test_dot_scores_refuse_unequal_widths():
    with pytest.raises(ValueError, match="equal width, got 11 and 13"):
        scorers.dot_scores(jnp.ones((T, K)), jnp.ones((S, A)))
