"""Laws of the recurrent models, for every attention."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnjax.config import RNNConfig, SelectionConfig
from attnjax.models.rnn import RNNSeq2Seq
from attnjax.types import Decoded, Tokens

B, T, S, E, D, C = 3, 5, 7, 11, 13, 17
LENGTHS = np.array([3, 7, 0])
SMALL = RNNConfig(
    embedding_width=E, hidden_width=D, attention_width=3, max_source_tokens=S
)
FEEDING = {"query": "current", "input_feeding": True}
LOCAL_P = SelectionConfig(kind="local_p", window=1)
DRAWN = {"test_choice": "sample", "seed": 1}
CONFIGS = {
    "none": {"attention": "none"},
    "none_current": {"attention": "none", "query": "current", "cell": "lstm"},
    "dot": {"attention": "dot"},
    "scaled_dot": {"attention": "scaled_dot", "query": "current"},
    "additive": {"cell": "lstm", "tied_embeddings": "all"},
    "location": {"attention": "location", "query": "current"},
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
    "top_k": {
        "attention": "concat",
        "selection": SelectionConfig(kind="top_k", top_k=2),
    },
    # windows of three keys: in every position's cell, or after the recurrence
    "local_m": {
        "attention": "general",
        "query": "current",
        "selection": SelectionConfig(kind="local_m", window=1),
    },
    "local_m_cell": {
        "attention": "location",
        "selection": SelectionConfig(kind="local_m", window=1),
    },
    "local_p": {"query": "current", "selection": LOCAL_P},
    "local_p_cell": {"attention": "dot", "selection": LOCAL_P, **FEEDING},
    "hard": {"selection": SelectionConfig(kind="hard")},
    "hard_drawn": {"selection": SelectionConfig(kind="hard", **DRAWN), **FEEDING},
    "gumbel_drawn": {
        "query": "current",
        "selection": SelectionConfig(kind="gumbel", **DRAWN),
    },
}


class Case:
    """A model with random weights, its compiled parts and its outputs."""

    def __init__(self, name: str) -> None:
        config = dataclasses.replace(SMALL, **CONFIGS[name])
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


@pytest.fixture(scope="module", params=CONFIGS)
def case(request) -> Case:
    return Case(request.param)


def test_decode_gives_logits_and_the_named_attention(case):
    assert case.decoded.logits.shape == (B, T, C)
    if case.config.attention == "none":
        assert case.decoded.attention == {}
        return
    (weights,) = case.decoded.attention.values()
    assert list(case.decoded.attention) == ["decoder/cross"]
    assert weights.shape == (B, 1, T, S)
    real = np.arange(S) < LENGTHS[:, None, None, None]
    np.testing.assert_array_equal(np.where(real, 0, weights), 0)
    total = np.broadcast_to((LENGTHS > 0)[:, None, None], (B, 1, T))
    if case.config.selection.kind == "local_p":  # the Gaussian takes from the sum
        assert (weights.sum(axis=-1) <= total + 1e-6).all()
        assert (weights.sum(axis=-1) > 0.1 * total)[LENGTHS > 0].all()
    else:
        np.testing.assert_allclose(weights.sum(axis=-1), total, atol=1e-6)
    most = {"top_k": 2, "local_m": 3, "local_p": 3, "hard": 1, "gumbel": 1}
    assert (weights > 0).sum(axis=-1).max() <= most.get(case.config.selection.kind, S)
    assert np.isfinite(case.decoded.logits).all()


def test_step_is_decode(case):
    def apply(*args, **kwargs):
        return case.model.apply(case.variables, *args, **kwargs)

    @jax.jit
    def run(source, input_ids):
        encoded = apply(source, train=False, method="encode")
        constants, first = apply(encoded, T, method="begin")

        def step(state, tokens):
            logits, state, _ = apply(constants, state, tokens, method="step")
            return state, logits

        state, logits = jax.lax.scan(step, first, input_ids.T)
        return (constants, first, state), logits

    leaves, logits = jax.device_get(run(case.source, case.inputs.ids))
    assert {leaf.shape[0] for leaf in jax.tree.leaves(leaves)} == {B}
    np.testing.assert_allclose(logits.swapaxes(0, 1), case.decoded.logits, atol=1e-5)


def test_a_sentence_alone_equals_itself_in_a_padded_batch(case):
    length = LENGTHS[0]
    source = Tokens(case.source.ids[:1, :length], np.ones((1, length), bool))
    inputs = Tokens(case.inputs.ids[:1, :4], np.ones((1, 4), bool))
    alone = case(source, inputs)
    np.testing.assert_allclose(alone.logits, case.decoded.logits[:1, :4], atol=1e-5)
    for name, weights in alone.attention.items():
        padded = case.decoded.attention[name][:1, :, :4, :length]
        np.testing.assert_allclose(weights, padded, atol=1e-5)


def test_padding_of_the_source_and_later_inputs_never_matter(case):
    source_ids, input_ids = case.source.ids.copy(), case.inputs.ids.copy()
    source_ids[~case.source.valid] = 5
    input_ids[:, 3:] = 6
    other = case(
        case.source._replace(ids=source_ids), case.inputs._replace(ids=input_ids)
    )
    logits = case.decoded.logits
    np.testing.assert_array_equal(other.logits[:, :3], logits[:, :3])
    assert np.abs(other.logits[:, 3:] - logits[:, 3:]).max(axis=(0, 2)).min() > 1e-3


def test_logits_depend_on_the_whole_source(case):
    source_ids = case.source.ids.copy()
    source_ids[1] = source_ids[1, ::-1]
    other = case(case.source._replace(ids=source_ids), case.inputs)
    assert np.abs(other.logits[1] - case.decoded.logits[1]).max() > 1e-3
    np.testing.assert_array_equal(other.logits[0], case.decoded.logits[0])


@pytest.mark.parametrize("name", ["additive", "feeding"])
def test_gradients_are_finite_and_reach_every_parameter(name):
    case = Case(name)

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
    case = Case("additive")
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


def test_packed_rows_are_refused():
    ids = np.ones((1, 2), np.int32)
    plain = Tokens(ids, np.ones((1, 2), bool))
    packed = plain._replace(segments=ids)
    model = RNNSeq2Seq(SMALL, C, C)
    for source, inputs in ((packed, plain), (plain, packed)):
        with pytest.raises(ValueError, match="one sentence per row"):
            jax.eval_shape(
                lambda rng, source=source, inputs=inputs: model.init(
                    rng, source, inputs, train=False
                ),
                jax.random.key(0),
            )


def test_a_source_longer_than_the_location_table_is_refused():
    config = dataclasses.replace(SMALL, attention="location", max_source_tokens=4)
    tokens = Tokens(np.ones((1, 5), np.int32), np.ones((1, 5), bool))
    with pytest.raises(ValueError, match="knows 4 key positions, got 5 keys"):
        jax.eval_shape(
            lambda rng: RNNSeq2Seq(config, C, C).init(rng, tokens, tokens, train=False),
            jax.random.key(0),
        )
