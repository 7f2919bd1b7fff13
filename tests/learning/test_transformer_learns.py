"""The Transformer learns to reverse a sequence within a fixed number of steps."""

import jax
import jax.numpy as jnp
import optax
import pytest

from attnjax.config import TransformerConfig
from attnjax.models.transformer import Transformer
from attnjax.training.losses import cross_entropy
from attnjax.types import Tokens

B, T, V = 32, 4, 8
BOS = 1
STEPS = 300


def batch(rng):
    labels = jax.random.randint(rng, (B, T), 4, V)
    valid = jnp.ones((B, T), bool)
    shifted = jnp.pad(labels[:, :-1], ((0, 0), (1, 0)), constant_values=BOS)
    return Tokens(labels[:, ::-1], valid), Tokens(shifted, valid), labels


@pytest.mark.slow
@pytest.mark.parametrize(
    ("norm_position", "layers", "dropout", "limit"),
    [("post", 1, 0.1, 0.15), ("pre", 2, 0.0, 0.05)],
)
def test_reverses(norm_position, layers, dropout, limit):
    config = TransformerConfig(
        width=32,
        num_heads=2,
        feed_forward_width=32,
        encoder_layers=1,
        decoder_layers=layers,
        norm_position=norm_position,
        dropout=dropout,
    )
    model = Transformer(config, V, V)
    schedule = optax.warmup_cosine_decay_schedule(0.0, 8e-3, 30, STEPS)
    optimizer = optax.adam(schedule, b2=0.98)

    def loss(variables, rng, *, train):
        source, inputs, labels = batch(jax.random.fold_in(rng, 0))
        rngs = {"dropout": jax.random.fold_in(rng, 1)}
        decoded = model.apply(variables, source, inputs, train=train, rngs=rngs)
        sums = cross_entropy(decoded.logits, labels, jnp.ones((B, T)))
        return sums.loss / sums.weight

    @jax.jit
    def held_out_loss(rng):
        variables = model.init(rng, *batch(rng)[:2], train=False)

        def step(state, rng):
            variables, moments = state
            gradient = jax.grad(loss)(variables, rng, train=True)
            updates, moments = optimizer.update(gradient, moments)
            return (optax.apply_updates(variables, updates), moments), None

        state = variables, optimizer.init(variables)
        rngs = jax.random.split(jax.random.key(2), STEPS)
        (variables, _), _ = jax.lax.scan(step, state, rngs)
        return loss(variables, jax.random.key(9), train=False)

    assert held_out_loss(jax.random.key(0)) < limit  # a guess costs log(4) = 1.4
