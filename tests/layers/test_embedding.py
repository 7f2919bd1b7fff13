import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnjax.layers.embedding import Embedding

V, D = 13, 11


@pytest.fixture(scope="module")
def variables():
    return Embedding(V, D).init(jax.random.key(0), jnp.zeros((1,), int))


def test_reads_rows_scaled_by_the_root_of_the_width(variables):
    ids = jnp.array([[3, 0, 12], [3, 3, 5]])
    vectors = Embedding(V, D).apply(variables, ids)
    table = np.asarray(variables["params"]["table"])
    np.testing.assert_allclose(vectors, table[np.asarray(ids)] * D**0.5, rtol=1e-6)


def test_vectors_start_with_unit_variance():
    layer = Embedding(1_000, 64)
    ids = jnp.arange(1_000)
    vectors = layer.apply(layer.init(jax.random.key(0), ids), ids)
    np.testing.assert_allclose(vectors.std(), 1.0, rtol=0.02)


@pytest.mark.parametrize("bad", [-1, -V, V, 100])
def test_id_outside_the_table_gives_nan_and_no_other_token(variables, bad):
    vectors = Embedding(V, D).apply(variables, jnp.array([V - 1, bad, 0]))
    assert np.all(np.isnan(vectors[1]))
    assert np.all(np.isfinite(vectors[::2]))


def test_logits_are_products_with_the_table(variables):
    states = jax.random.normal(jax.random.key(1), (2, 5, D))
    logits = Embedding(V, D).apply(variables, states, method="logits")
    table = np.asarray(variables["params"]["table"], np.float64)
    np.testing.assert_allclose(logits, np.float64(states) @ table.T, atol=1e-5)


def test_gradient_adds_up_repeated_tokens(variables):
    def total(variables):
        return Embedding(V, D).apply(variables, jnp.array([5, 2, 5])).sum()

    gradient = jax.grad(total)(variables)["params"]["table"]
    expected = np.zeros((V, D))
    expected[5], expected[2] = 2.0 * D**0.5, D**0.5
    np.testing.assert_allclose(gradient, expected, rtol=1e-6)


def test_computes_in_its_type_and_keeps_a_float32_table():
    layer = Embedding(V, D, dtype=jnp.bfloat16)
    ids = jnp.array([1, 2])
    variables = layer.init(jax.random.key(0), ids)
    vectors = layer.apply(variables, ids)
    assert variables["params"]["table"].dtype == jnp.float32
    assert vectors.dtype == jnp.bfloat16
    logits = layer.apply(variables, vectors, method="logits")
    assert logits.dtype == jnp.bfloat16
