"""Recurrent models: selections, tables, gradients; the laws are in test_laws.py."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnjax.config import RNNConfig
from attnjax.models.rnn import RNNSeq2Seq
from attnjax.ops.selection import SELECTIONS
from attnjax.types import Decoded, Tokens

B, T, S, E, D, C = 3, 5, 7, 11, 13, 17
LENGTHS = np.array([3, 7, 0])
SMALL = RNNConfig(
    embedding_width=E, hidden_width=D, attention_width=3, max_source_tokens=S
)
CONFIGS = {
    "additive": {"cell": "lstm", "tied_embeddings": "all"},
    "feeding": {
        "attention": "general",
        "query": "current",
        "input_feeding": True,
        "cell": "lstm",
        "bidirectional": False,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "tied_embeddings": "decoder",
    },
}
# The most keys that each selection reads at once; a centre between two keys has one
# less in its window.
MOST = {"soft": S, "top_k": 2, "local_m": 3, "local_p": 2, "hard": 1, "gumbel": 1}


class Case:
    """A model with random weights, its compiled parts and its outputs."""

    def __init__(self, **fields) -> None:
        config = dataclasses.replace(SMALL, **fields)
        self.config = config
        self.model = RNNSeq2Seq(config, C, C)
        rng = np.random.default_rng(0)
        ids = rng.integers(4, C, size=(B, S)).astype(np.int32)
        self.source = Tokens(ids, np.arange(S)[None] < LENGTHS[:, None])
        ids = rng.integers(4, C, size=(B, T)).astype(np.int32)
        self.inputs = Tokens(ids, np.ones((B, T), bool))
        shapes = jax.eval_shape(
            lambda rng: self.model.init(rng, self.source, self.inputs, train=False),
            jax.random.key(0),
        )
        self.variables = jax.tree.map(
            lambda leaf: 0.4 * rng.normal(size=leaf.shape).astype(leaf.dtype), shapes
        )
        self._apply = jax.jit(lambda *args: self.model.apply(*args, train=False))

    @functools.cached_property
    def decoded(self) -> Decoded:
        return self(self.source, self.inputs)

    def __call__(self, source: Tokens, inputs: Tokens) -> Decoded:
        # Slicing device arrays compiles; slicing numpy arrays does not.
        return jax.device_get(self._apply(self.variables, source, inputs))


@pytest.mark.parametrize("kind", MOST)
def test_a_selection_weighs_as_many_keys_as_it_says(kind):
    selection = SELECTIONS.fill(kind, {"top_k": 2, "window": 1})
    decoded = Case(query="current", selection=selection).decoded
    weights = decoded.attention["decoder/cross"]
    assert weights.shape == (B, 1, T, S)
    total = np.broadcast_to((LENGTHS > 0)[:, None, None], (B, 1, T))
    if kind == "local_p":  # the Gaussian takes from the sum
        assert (weights.sum(axis=-1) <= total + 1e-6).all()
    else:
        np.testing.assert_allclose(weights.sum(axis=-1), total, atol=1e-6)
    assert (weights > 0).sum(axis=-1).max() == MOST[kind]


@pytest.mark.parametrize("name", CONFIGS)
def test_gradients_are_finite_and_reach_every_parameter(name):
    case = Case(**CONFIGS[name])

    def loss(variables):
        rngs = {"dropout": jax.random.key(0)}
        decoded = case.model.apply(
            variables, case.source, case.inputs, train=True, rngs=rngs
        )
        return (decoded.logits**2).sum()

    gradients = jax.device_get(jax.jit(jax.grad(loss))(case.variables))
    for path, gradient in jax.tree.leaves_with_path(gradients):
        assert np.isfinite(gradient).all(), path
        assert np.abs(gradient).max() > 0, path


def test_bfloat16_computes_in_half_precision_close_to_single():
    case = Case(**CONFIGS["additive"])
    half = RNNSeq2Seq(case.config, C, C, dtype=jnp.bfloat16)
    run = jax.jit(lambda *args: half.apply(*args, train=False).logits)
    logits = run(case.variables, case.source, case.inputs)
    assert logits.dtype == jnp.bfloat16
    logits = np.asarray(logits, np.float32)
    np.testing.assert_allclose(logits, case.decoded.logits, atol=0.2)


@pytest.mark.parametrize(("tied", "tables"), [("all", 1), ("decoder", 2), ("none", 3)])
def test_tied_embeddings_share_their_table(tied, tables):
    config = dataclasses.replace(SMALL, tied_embeddings=tied)
    ids = Tokens(np.ones((1, 2), np.int32), np.ones((1, 2), bool))
    shapes = jax.eval_shape(
        lambda rng: RNNSeq2Seq(config, C, C).init(rng, ids, ids, train=False),
        jax.random.key(0),
    )
    names = [name for name in shapes["params"] if name.endswith("embedding")]
    assert len(names) == tables


def test_one_table_for_two_vocabularies_is_refused():
    config = dataclasses.replace(SMALL, tied_embeddings="all")
    with pytest.raises(ValueError, match="one vocabulary .* got 17 and 18"):
        RNNSeq2Seq(config, C, C + 1)


def test_a_source_longer_than_the_location_table_is_refused():
    config = dataclasses.replace(SMALL, attention="location", max_source_tokens=4)
    tokens = Tokens(np.ones((1, 5), np.int32), np.ones((1, 5), bool))
    with pytest.raises(ValueError, match="knows 4 key positions, got 5 keys"):
        jax.eval_shape(
            lambda rng: RNNSeq2Seq(config, C, C).init(rng, tokens, tokens, train=False),
            jax.random.key(0),
        )
