import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnjax.layers.feed_forward import FeedForward

B, T, D, F = 2, 5, 11, 7

ACTIVATIONS = {
    "relu": lambda x: max(x, 0.0),
    "gelu": lambda x: x * 0.5 * (1.0 + math.erf(x / math.sqrt(2.0))),
    "swish": lambda x: x / (1.0 + math.exp(-x)),
}


@pytest.fixture(scope="module")
def x():
    return jax.random.normal(jax.random.key(0), (B, T, D))


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_is_two_maps_around_the_activation(x, name):
    layer = FeedForward(F, activation=name)
    params = layer.init(jax.random.key(1), x, train=False)["params"]
    params["hidden"]["bias"] = jnp.arange(float(F)) / 5.0
    first, second = (
        jax.tree.map(np.float64, params[key]) for key in ("hidden", "output")
    )
    hidden = np.float64(x) @ first["kernel"] + first["bias"]
    hidden = np.vectorize(ACTIVATIONS[name])(hidden)
    expected = hidden @ second["kernel"] + second["bias"]
    output = layer.apply({"params": params}, x, train=False)
    np.testing.assert_allclose(output, expected, atol=1e-5)


def test_dropout_acts_on_hidden_units_in_training_only(x):
    plain = FeedForward(F)
    dropping = FeedForward(F, dropout=0.5)
    variables = plain.init(jax.random.key(1), x, train=False)
    rngs = {"dropout": jax.random.key(2)}
    expected = plain.apply(variables, x, train=False)
    quiet = dropping.apply(variables, x, train=False)
    noisy = dropping.apply(variables, x, train=True, rngs=rngs)
    np.testing.assert_array_equal(quiet, expected)
    assert np.any(np.abs(noisy - expected) > 1e-3)
