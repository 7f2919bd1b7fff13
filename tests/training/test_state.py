"""The state holds data only, and float32 master weights."""

import chex
import jax
import jax.numpy as jnp
import pytest

from attnjax.training.state import init_state


def test_a_seed_decides_the_state(linear_task, adam):
    first = init_state(linear_task(), adam, 5)
    chex.assert_trees_all_equal(first.params, init_state(linear_task(), adam, 5).params)
    other = init_state(linear_task(), adam, 6)
    assert not jnp.array_equal(first.params["kernel"], other.params["kernel"])
    assert not jnp.array_equal(
        jax.random.key_data(first.rng), jax.random.key_data(other.rng)
    )


def test_weights_and_dropout_have_different_keys(linear_task, adam):
    seen = []

    class Spying(linear_task):
        def init(self, rng):
            seen.append(jax.random.key_data(rng))
            return super().init(rng)

    state = init_state(Spying(), adam, 5)
    assert not jnp.array_equal(seen[0], jax.random.key_data(state.rng))


def test_variables_are_the_collections(linear_task, adam):
    state = init_state(linear_task(), adam, 5)
    assert set(state.variables) == {"params", "statistics"}
    assert int(state.step) == 0
    assert state.step.dtype == jnp.int32


def test_master_weights_must_be_float32(linear_task, adam):
    class Half(linear_task):
        def init(self, rng):
            variables = super().init(rng)
            kernel = variables["params"]["kernel"].astype(jnp.bfloat16)
            return {"params": {**variables["params"], "kernel": kernel}}

    with pytest.raises(ValueError, match=r"float32.*kernel.*bfloat16"):
        init_state(Half(), adam, 5)
