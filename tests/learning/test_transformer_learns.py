"""The Transformer learns to reverse a sequence within a fixed number of steps."""

import functools

import jax
import jax.numpy as jnp
import optax
import pytest

from attnjax.config import TransformerConfig
from attnjax.models.transformer import Transformer
from attnjax.training.losses import cross_entropy
from attnjax.types import Tokens

B, T, V = 32, 6, 13
BOS = 1
STEPS = 600


def batch(rng):
    labels = jax.random.randint(rng, (B, T), 4, V)
    valid = jnp.ones((B, T), bool)
    shifted = jnp.pad(labels[:, :-1], ((0, 0), (1, 0)), constant_values=BOS)
    return Tokens(labels[:, ::-1], valid), Tokens(shifted, valid), labels


@pytest.mark.slow
@pytest.mark.parametrize(
    ("norm_position", "layers", "dropout", "scorer", "limit"),
    [
        ("post", 3, 0.1, "scaled_dot", 0.2),
        ("pre", 1, 0.0, "scaled_dot", 0.02),
    ],
)
def test_reverses(norm_position, layers, dropout, scorer, limit):
    config = TransformerConfig(
        width=32,
        num_heads=2,
        feed_forward_width=64,
        encoder_layers=layers,
        decoder_layers=layers,
        norm_position=norm_position,
        scorer=scorer,
        dropout=dropout,
    )
    model = Transformer(config, V, V)
    schedule = optax.warmup_cosine_decay_schedule(0.0, 3e-3, 60, STEPS)
    optimizer = optax.adam(schedule, b2=0.98)

    def loss(variables, rng, *, train):
        source, inputs, labels = batch(jax.random.fold_in(rng, 0))
        rngs = {"dropout": jax.random.fold_in(rng, 1)}
        decoded = model.apply(variables, source, inputs, train=train, rngs=rngs)
        sums = cross_entropy(decoded.logits, labels, jnp.ones((B, T)))
        return sums.loss / sums.weight

    @functools.partial(jax.jit, donate_argnums=0)
    def train(state, rngs):
        def step(state, rng):
            variables, moments = state
            gradient = jax.grad(loss)(variables, rng, train=True)
            updates, moments = optimizer.update(gradient, moments)
            return (optax.apply_updates(variables, updates), moments), None

        return jax.lax.scan(step, state, rngs)[0]

    variables = model.init(
        jax.random.key(0), *batch(jax.random.key(1))[:2], train=False
    )
    state = variables, optimizer.init(variables)
    state = train(state, jax.random.split(jax.random.key(2), STEPS))
    held_out = jax.jit(loss, static_argnames="train")(
        state[0], jax.random.key(9), train=False
    )
    assert float(held_out) < limit  # a guess costs log(9) = 2.2
