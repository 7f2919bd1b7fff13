"""The scorer as a layer: prepared once, with and without heads."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnjax.layers.scorer import Scorer
from attnjax.ops import scorers

B, H, T, S, K, A = 2, 3, 5, 7, 11, 13
KINDS = ("dot", "scaled_dot", "general", "additive", "concat", "location")


def _scores(scorer: Scorer, query, key):
    return scorer(query, scorer.prepare(key))


def _scorer(kind: str, num_heads: int | None = None, **fields) -> Scorer:
    fields = {"query_width": K, "key_width": K, "width": A, "max_keys": S + 1} | fields
    return Scorer(kind, num_heads=num_heads, **fields)


@functools.cache
def _compiled(scorer: Scorer):
    return jax.jit(functools.partial(scorer.apply, method=_scores))


def _apply(scorer: Scorer, variables, query, key) -> np.ndarray:
    return np.asarray(_compiled(scorer)(variables, query, key))


def _inputs(*leading: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return (
        rng.normal(size=(*leading, T, K)).astype(np.float32),
        rng.normal(size=(*leading, S, K)).astype(np.float32),
    )


def _random_variables(scorer: Scorer, query, key):
    """Normal numbers everywhere: biases that start at 0 would hide mistakes."""
    init = functools.partial(scorer.init, method=_scores)
    shapes = jax.eval_shape(init, jax.random.key(0), query, key)
    rng = np.random.default_rng(1)
    return jax.tree.map(
        lambda leaf: 0.3 * rng.normal(size=leaf.shape).astype(leaf.dtype), shapes
    )


@pytest.mark.parametrize("kind", KINDS)
def test_each_head_has_its_own_parameters(kind):
    query, key = _inputs(B, H)
    scorer = _scorer(kind, H)
    variables = _random_variables(scorer, query, key)
    scores = _apply(scorer, variables, query, key)
    assert scores.shape == (B, H, T, S)
    for head in range(H):
        own = jax.tree.map(lambda leaf, head=head: leaf[head], variables)
        alone = _apply(_scorer(kind), own, query[:, head], key[:, head])
        np.testing.assert_allclose(scores[:, head], alone, atol=1e-5)


def test_general_is_the_bilinear_form():
    query, key = _inputs(B)
    scorer = _scorer("general")
    variables = _random_variables(scorer, query, key)
    expected = scorers.general_scores(query, key, variables["params"]["weight"])
    got = _apply(scorer, variables, query, key)
    np.testing.assert_allclose(got, expected, atol=1e-5)


def test_additive_projects_query_and_key():
    query, key = _inputs(B)
    scorer = _scorer("additive")
    variables = _random_variables(scorer, query, key)
    params = jax.tree.map(
        lambda leaf: np.asarray(leaf, np.float64), variables["params"]
    )
    query_bta = np.asarray(query, np.float64) @ params["query_kernel"]
    key_bsa = np.asarray(key, np.float64) @ params["key_kernel"] + params["bias"]
    hidden_btsa = np.tanh(query_bta[:, :, None] + key_bsa[:, None])
    got = _apply(scorer, variables, query, key)
    np.testing.assert_allclose(got, hidden_btsa @ params["vector"], atol=1e-5)


def test_concat_is_the_score_of_the_joined_vectors():
    query, key = _inputs(B)
    scorer = _scorer("concat")
    variables = _random_variables(scorer, query, key)
    params = variables["params"]
    assert {name: leaf.shape for name, leaf in params.items()} == {
        "weight": (2 * K, A),
        "vector": (A,),
    }
    expected = scorers.concat_scores(query, key, params["weight"], params["vector"])
    got = _apply(scorer, variables, query, key)
    np.testing.assert_allclose(got, expected, atol=1e-5)


def test_location_ignores_what_the_keys_contain():
    query, key = _inputs(B)
    scorer = _scorer("location")
    variables = _random_variables(scorer, query, key)
    scores = _apply(scorer, variables, query, key)
    other = _apply(scorer, variables, query, -3 * key)
    np.testing.assert_array_equal(scores, other)
    assert np.ptp(scores, axis=-1).min() > 0


def test_location_refuses_more_keys_than_its_table():
    query, key = _inputs(B)
    scorer = _scorer("location", max_keys=S - 1)
    with pytest.raises(ValueError, match="knows 6 key positions, got 7 keys"):
        scorer.init(jax.random.key(0), query, key, method=_scores)


@pytest.mark.parametrize("kind", ["dot", "scaled_dot"])
def test_dot_products_refuse_unequal_widths(kind):
    query, key = _inputs(B)
    with pytest.raises(ValueError, match=f"{kind} scorer needs .* got 11 and 12"):
        _scorer(kind, key_width=K + 1).init(
            jax.random.key(0), query, key, method=_scores
        )


@pytest.mark.parametrize("kind", ["general", "additive", "concat", "location"])
def test_other_kinds_accept_unequal_widths(kind):
    query, key = _inputs(B)
    key = key[..., :-1]
    scorer = _scorer(kind, key_width=K - 1)
    variables = _random_variables(scorer, query, key)
    assert _apply(scorer, variables, query, key).shape == (B, T, S)


@pytest.mark.parametrize("kind", KINDS)
def test_bfloat16_gives_bfloat16_from_float32_parameters(kind):
    query, key = _inputs(B)
    scorer = _scorer(kind, dtype=jnp.bfloat16)
    variables = _random_variables(scorer, query, key)
    got = _apply(scorer, variables, query, key)
    expected = _apply(_scorer(kind), variables, query, key)
    assert got.dtype == jnp.bfloat16
    assert {leaf.dtype for leaf in jax.tree.leaves(variables)} <= {jnp.dtype("float32")}
    np.testing.assert_allclose(got.astype(np.float32), expected, atol=0.2)
