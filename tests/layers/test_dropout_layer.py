import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from flax.errors import InvalidRngError

from attnjax.layers.dropout import Dropout


class TwoDropouts(nn.Module):
    @nn.compact
    def __call__(self, x, *, train):
        return Dropout(0.5)(x, train=train), Dropout(0.5)(x, train=train)


def test_acts_in_training_only():
    x = jnp.ones((5, 7))
    rngs = {"dropout": jax.random.key(0)}
    np.testing.assert_array_equal(Dropout(0.5).apply({}, x, train=False), x)
    dropped = Dropout(0.5).apply({}, x, train=True, rngs=rngs)
    assert set(np.unique(dropped)) == {0.0, 2.0}


def test_each_layer_and_each_rng_drops_elsewhere():
    x = jnp.ones((5, 7))
    masks = [
        mask
        for seed in (0, 1)
        for mask in TwoDropouts().apply(
            {}, x, train=True, rngs={"dropout": jax.random.key(seed)}
        )
    ]
    for index, mask in enumerate(masks):
        for other in masks[:index]:
            assert np.any(mask != other)


def test_training_without_rng_is_refused():
    with pytest.raises(InvalidRngError):
        Dropout(0.5).apply({}, jnp.ones(3), train=True)
