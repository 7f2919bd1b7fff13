"""Update rules against loops in numpy, or against optax's own where it has one."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from attnjax.config import OptimizerConfig, ScheduleConfig
from attnjax.training.optimizers import (
    clip_by_norm,
    decay_mask,
    latest_rate,
    make_optimizer,
)

CONSTANT = ScheduleConfig(kind="constant", peak=0.1, warmup_steps=1)
PARAMS = {
    "dense": {"kernel": np.full((3, 2), 2.0, np.float32), "bias": np.ones(2, "f")},
    "fused": {"bias": np.ones((2, 3), np.float32)},
    "norm": {"scale": np.ones(3, np.float32)},
}


def gradients(seed):
    generator = np.random.default_rng(seed)
    return jax.tree.map(lambda p: generator.normal(size=p.shape).astype("f"), PARAMS)


def run(optimizer, num_updates=3):
    params, state = jax.tree.map(jnp.asarray, PARAMS), optimizer.init(PARAMS)
    for seed in range(num_updates):
        updates, state = optimizer.update(gradients(seed), state, params)
        params = optax.apply_updates(params, updates)
    return params, state


def adam_by_hand(leaf, path, *, decay):
    """Kingma and Ba 2015, algorithm 1, in float64; decay decoupled."""
    first = second = np.zeros(leaf.shape)
    value = leaf.astype(np.float64)
    for t in range(1, 4):
        gradient = gradients(t - 1)
        for name in path:
            gradient = gradient[name]
        first = 0.9 * first + 0.1 * gradient
        second = 0.98 * second + 0.02 * gradient.astype(np.float64) ** 2
        step = first / (1 - 0.9**t) / (np.sqrt(second / (1 - 0.98**t)) + 1e-9)
        value = value - 0.1 * (step + decay * value)
    return value


@pytest.mark.parametrize(
    ("path", "decayed"),
    [
        (("dense", "kernel"), True),
        (("dense", "bias"), False),
        (("fused", "bias"), False),
        (("norm", "scale"), False),
    ],
)
@pytest.mark.parametrize("kind", ["adam", "adamw"])
def test_adam_is_the_paper_s_and_decay_is_for_matrices(kind, path, decayed):
    weight_decay = 0.3 if kind == "adamw" else 0.0
    config = OptimizerConfig(
        kind=kind, weight_decay=weight_decay, clip_norm=None, schedule=CONSTANT
    )
    found, _ = run(make_optimizer(config, 10))
    leaf = PARAMS[path[0]][path[1]]
    decay = weight_decay if decayed else 0.0
    expected = adam_by_hand(leaf, path, decay=decay)
    np.testing.assert_allclose(found[path[0]][path[1]], expected, rtol=2e-5)


def test_decay_mask_reads_names_because_fused_biases_have_rank_two():
    mask = decay_mask({**PARAMS, "scorer": {"vector": np.ones(3, np.float32)}})
    assert mask == {
        "scorer": {"vector": False},
        "dense": {"kernel": True, "bias": False},
        "fused": {"bias": False},
        "norm": {"scale": False},
    }


def test_adafactor_is_that_of_optax():
    config = OptimizerConfig(kind="adafactor", clip_norm=None, schedule=CONSTANT)
    found, _ = run(make_optimizer(config, 10))
    expected, _ = run(optax.adafactor(0.1))
    for mine, theirs in zip(
        jax.tree.leaves(found), jax.tree.leaves(expected), strict=True
    ):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5)


def test_clipping_scales_all_gradients_by_their_common_norm():
    config = OptimizerConfig(clip_norm=0.5, epsilon=10.0, schedule=CONSTANT)
    unclipped = OptimizerConfig(clip_norm=None, epsilon=10.0, schedule=CONSTANT)
    clipped, plain = make_optimizer(config, 10), make_optimizer(unclipped, 10)
    norm = optax.global_norm(gradients(0))
    shrunk = jax.tree.map(lambda g: g * 0.5 / norm, gradients(0))
    updates, _ = clipped.update(gradients(0), clipped.init(PARAMS), PARAMS)
    expected, _ = plain.update(shrunk, plain.init(PARAMS), PARAMS)
    assert norm > 0.5
    for mine, theirs in zip(
        jax.tree.leaves(updates), jax.tree.leaves(expected), strict=True
    ):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5)


@pytest.mark.parametrize("kind", ["adam", "adafactor"])
def test_weight_decay_of_another_rule_is_refused(kind):
    with pytest.raises(ValueError, match=r"weight_decay.*adamw.*kind='adamw'"):
        make_optimizer(OptimizerConfig(kind=kind, weight_decay=0.1), 10)


def test_the_state_tells_the_rate_of_the_latest_update():
    schedule = ScheduleConfig(kind="constant", peak=0.6, warmup_steps=4)
    optimizer = make_optimizer(OptimizerConfig(schedule=schedule), 10)
    _, state = run(optimizer, num_updates=2)
    assert float(latest_rate(state)) == pytest.approx(0.3)
    assert latest_rate(optax.sgd(0.1).init(PARAMS)) is None


@pytest.mark.parametrize("most", [1.0, 4.9, 5.0, 5.1])
def test_clipping_by_a_known_norm_is_that_of_optax(most):
    gradients = {"a": jnp.float32([3.0, 0.0]), "b": jnp.float32([[-4.0]])}
    expected, _ = optax.clip_by_global_norm(most).update(gradients, optax.EmptyState())
    clip = clip_by_norm(most)
    state = clip.init(gradients)
    for known in ({}, {"gradient_norm": jnp.float32(5.0), "other": 1}):
        found, _ = clip.update(gradients, state, **known)
        chex.assert_trees_all_equal(found, expected)
    found, _ = clip.update(gradients, state, gradient_norm=jnp.float32(2 * most))
    chex.assert_trees_all_close(found, jax.tree.map(lambda g: g / 2, gradients))
