"""Recurrent models learn to reverse sentences within a fixed number of updates."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from attnjax.config import RNNConfig
from attnjax.models.rnn import RNNSeq2Seq
from attnjax.training.losses import cross_entropy
from attnjax.types import Tokens

WORDS, LONGEST, ROWS, UPDATES = 6, 6, 64, 250
EOS, BOS, FIRST = 2, 1, 4
SIZES = {"embedding_width": 16, "hidden_width": 32, "attention_width": 32}


def _pairs(rng: jax.Array, rows: int):
    """Random sentences of 2 to LONGEST words, and the same words backwards."""
    word_rng, length_rng = jax.random.split(rng)
    words = jax.random.randint(word_rng, (rows, LONGEST), FIRST, FIRST + WORDS)
    length = jax.random.randint(length_rng, (rows, 1), 2, LONGEST + 1)
    position = jnp.arange(LONGEST + 1)[None]
    padded = jnp.pad(words, ((0, 0), (0, 1)))
    ends = jnp.where(position == length, EOS, 0)
    source = jnp.where(position < length, padded, ends)
    backwards = jnp.take_along_axis(padded, jnp.maximum(length - 1 - position, 0), 1)
    labels = jnp.where(position < length, backwards, ends)
    valid = position <= length
    inputs = jnp.pad(labels[:, :-1], ((0, 0), (1, 0)), constant_values=BOS)
    return Tokens(source, valid), Tokens(inputs, valid), labels


@pytest.mark.slow
@pytest.mark.parametrize(
    "config",
    [
        RNNConfig(**SIZES, cell="gru", attention="additive", dropout=0.0),
        RNNConfig(
            **SIZES,
            cell="lstm",
            attention="general",
            query="current",
            input_feeding=True,
            dropout=0.0,
        ),
    ],
    ids=["gru_additive", "lstm_general_feeding"],
)
def test_learns_to_reverse(config):
    model = RNNSeq2Seq(config, FIRST + WORDS, FIRST + WORDS)
    rules = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(5e-3))
    optimizer = optax.flatten(rules)  # one vector compiles faster

    def sums(variables, source, inputs, labels):
        decoded = model.apply(variables, source, inputs, train=True)
        weights = inputs.valid.astype(jnp.float32)
        return cross_entropy(decoded.logits, labels, weights)

    @jax.jit
    def train(rng):
        init_rng, data_rng = jax.random.split(rng)
        variables = model.init(init_rng, *_pairs(rng, ROWS)[:2], train=False)

        def update(carry, step_rng):
            variables, state = carry

            def mean_loss(variables):
                losses = sums(variables, *_pairs(step_rng, ROWS))
                return losses.loss / losses.weight

            loss, gradients = jax.value_and_grad(mean_loss)(variables)
            changes, state = optimizer.update(gradients, state)
            return (optax.apply_updates(variables, changes), state), loss

        carry = variables, optimizer.init(variables)
        carry, losses = jax.lax.scan(update, carry, jax.random.split(data_rng, UPDATES))
        return losses, sums(carry[0], *_pairs(jax.random.key(7), 256))

    losses, unseen = train(jax.random.key(0))
    assert np.mean(losses[:5]) > 1.5
    assert unseen.loss / unseen.weight < 0.05
    assert unseen.correct / unseen.weight > 0.99
