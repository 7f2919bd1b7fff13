"""The laws that every family of models obeys, whatever it is made of.

A new line of `attnjax.models.registry.MODELS` is covered by all of them without an edit
here; `VARIANTS` adds configs of a family that take other ways through its code.
"""

import dataclasses
import functools
import typing

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from attnjax.config import AnyModelConfig, RNNConfig, TransformerConfig
from attnjax.layers.dropout import Dropout
from attnjax.models.registry import MODELS, make_model
from attnjax.ops.attend import Dense
from attnjax.ops.chunked import Chunked
from attnjax.ops.hard import GumbelChoice, HardChoice
from attnjax.ops.local import SlidingWindow
from attnjax.ops.selection import SELECTIONS, BestKeys, LocalM, LocalP
from attnjax.types import Decoded, Tokens

B, T, S, C = 3, 5, 7, 17
LENGTHS = np.array([3, S, 0])
# Small values of whatever a config has of these.
SMALL = {
    "width": 12,
    "num_heads": 3,
    "feed_forward_width": 11,
    "embedding_width": 11,
    "hidden_width": 13,
    "attention_width": 3,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "max_source_tokens": S,
    "dropout": 0.5,
}
FEEDING = {"query": "current", "input_feeding": True}
LOCAL_P = LocalP(window=1)
DRAWN = {"test_choice": "sample", "seed": 1}
VARIANTS = {
    TransformerConfig: {
        "post": {},
        "pre": {
            "norm_position": "pre",
            "activation": "gelu",
            "positions": "halves",
            "scorer": "additive",
        },
        "mixed": {  # mechanisms taken in turn, those of the encoder twice
            "norm_position": "pre",
            "encoder_layers": 3,
            "decoder_layers": 2,
            "encoder_attention": (SlidingWindow(window=1), Dense()),
            "decoder_attention": (SlidingWindow(window=2), Dense()),
            "cross_attention": (Chunked(chunk=2), Dense()),
        },
    },
    RNNConfig: {
        "none": {"attention": "none"},
        "none_current": {"attention": "none", "query": "current", "cell": "lstm"},
        "dot": {"attention": "dot"},
        "scaled_dot": {"attention": "scaled_dot", "query": "current"},
        "additive": {"cell": "lstm", "tied_embeddings": "all"},
        "location": {"attention": "location", "query": "current"},
        "feeding": {
            "attention": "general",
            "cell": "lstm",
            "bidirectional": False,
            "encoder_layers": 2,
            "decoder_layers": 2,
            "tied_embeddings": "decoder",
            **FEEDING,
        },
        "top_k": {
            "attention": "concat",
            "selection": BestKeys(top_k=2),
        },
        # windows of three keys: in every position's cell, or after the recurrence
        "local_m": {
            "attention": "general",
            "query": "current",
            "selection": LocalM(window=1),
        },
        "local_m_cell": {
            "attention": "location",
            "selection": LocalM(window=1),
        },
        "local_p": {"query": "current", "selection": LOCAL_P},
        "local_p_cell": {"attention": "dot", "selection": LOCAL_P, **FEEDING},
        "hard": {"selection": HardChoice()},
        "hard_drawn": {"selection": HardChoice(**DRAWN), **FEEDING},
        "gumbel_drawn": {
            "query": "current",
            "selection": GumbelChoice(**DRAWN),
        },
    },
}
CASES = [
    pytest.param((family, variant), id=f"{family.__name__}-{variant}")
    for family in MODELS
    for variant in VARIANTS.get(family, {"default": {}})
]


def config_of(family, **fields):
    known = {field.name for field in dataclasses.fields(family)}
    small = {name: value for name, value in SMALL.items() if name in known}
    return family(**{**small, **fields})


def tokens(ids, lengths):
    valid = np.arange(ids.shape[1])[None, :] < np.asarray(lengths)[:, None]
    return Tokens(ids.astype(np.int32), valid)


class Case:
    """A model with random weights, its compiled parts and its outputs."""

    def __init__(self, config) -> None:
        self.config = config
        self.model = make_model(config, C, C, dtype=jnp.float32)
        rng = np.random.default_rng(0)
        self.source = tokens(rng.integers(4, C, (B, S)), LENGTHS)
        self.inputs = tokens(rng.integers(4, C, (B, T)), [T] * B)
        shapes = jax.eval_shape(
            lambda rng: self.model.init(rng, self.source, self.inputs, train=False),
            jax.random.key(0),
        )
        self.variables = jax.tree_util.tree_map_with_path(
            lambda path, leaf: np.asarray(
                float(getattr(path[-1], "key", "") == "scale")
                + 0.4 * rng.normal(size=leaf.shape),
                leaf.dtype,
            ),
            shapes,
        )
        self._apply = jax.jit(lambda *args: self.model.apply(*args, train=False))

    @functools.cached_property
    def decoded(self) -> Decoded:
        return self(self.source, self.inputs)

    def __call__(self, source: Tokens, inputs: Tokens) -> Decoded:
        # Slicing device arrays compiles; slicing numpy arrays does not.
        return jax.device_get(self._apply(self.variables, source, inputs))

    def apply(self, *args, **kwargs):
        return self.model.apply(self.variables, *args, **kwargs)


@pytest.fixture(scope="module", params=CASES)
def case(request) -> Case:
    family, variant = request.param
    return Case(config_of(family, **VARIANTS.get(family, {}).get(variant, {})))


def test_every_family_can_be_named_in_an_experiment():
    assert set(MODELS) == set(typing.get_args(AnyModelConfig))
    assert set(VARIANTS) <= set(MODELS)


def test_a_config_without_a_model_is_refused():
    class ForgottenConfig(RNNConfig):
        pass

    with pytest.raises(
        ValueError, match="no model belongs to a ForgottenConfig; .*RNN"
    ):
        make_model(ForgottenConfig(), C, C, dtype=jnp.float32)


def test_logits_are_finite_and_attention_is_on_real_source_tokens(case):
    assert case.decoded.logits.shape == (B, T, C)
    assert np.isfinite(case.decoded.logits).all()
    read = {
        name: weights
        for name, weights in case.decoded.attention.items()
        if name.endswith("cross")
    }
    for weights in read.values():
        assert (weights.shape[0], *weights.shape[2:]) == (B, T, S)
        assert weights.min() >= 0.0
        padding = np.arange(S) >= LENGTHS[:, None, None, None]
        np.testing.assert_array_equal(np.where(padding, weights, 0), 0)
        assert np.all(weights.sum(-1) <= 1.0 + 1e-5)
        assert np.all(weights[LENGTHS > 0].sum(-1) > 0.1)


def test_step_is_decode_and_decode_is_the_call(case):
    @jax.jit
    def run(source, inputs):
        encoded = case.apply(source, train=False, method="encode")
        decoded = case.apply(encoded, inputs, train=False, method="decode")
        constants, first = case.apply(encoded, T, method="begin")

        def step(state, ids):
            logits, state, attention = case.apply(constants, state, ids, method="step")
            return state, (logits, attention)

        state, steps = jax.lax.scan(step, first, inputs.ids.T)
        return (constants, first, state), decoded, steps

    leaves, decoded, steps = jax.device_get(run(case.source, case.inputs))
    assert {leaf.shape[0] for leaf in jax.tree.leaves(leaves)} == {B}
    np.testing.assert_allclose(decoded.logits, case.decoded.logits, atol=1e-5)
    logits, attention = steps
    np.testing.assert_allclose(logits.swapaxes(0, 1), case.decoded.logits, atol=1e-5)
    whole = case.decoded.attention
    assert set(attention) == {name for name in whole if name.endswith("cross")}
    for name, weights in attention.items():  # [T, B, H, S]
        rows = np.moveaxis(weights, 0, 2)
        np.testing.assert_allclose(rows, whole[name], atol=1e-5, err_msg=name)


def test_a_sentence_alone_equals_itself_in_a_padded_batch(case):
    length = LENGTHS[0]
    alone = case(
        tokens(case.source.ids[:1, :length], [length]),
        tokens(case.inputs.ids[:1, :4], [4]),
    )
    np.testing.assert_allclose(alone.logits, case.decoded.logits[:1, :4], atol=1e-5)
    for name, weights in alone.attention.items():
        padded = case.decoded.attention[name][:1, :, :4, : weights.shape[-1]]
        np.testing.assert_allclose(weights, padded, atol=1e-5, err_msg=name)


def test_padding_never_matters(case):
    source_ids = np.where(case.source.valid, case.source.ids, 5)
    inputs = tokens(case.inputs.ids, [T, 3, T])
    first, other = (
        case(case.source._replace(ids=source_ids), inputs._replace(ids=ids))
        for ids in (inputs.ids, np.where(inputs.valid, inputs.ids, 6))
    )
    for logits in (first.logits, other.logits):
        real = case.decoded.logits[inputs.valid]
        np.testing.assert_array_equal(logits[inputs.valid], real)


def test_a_token_changes_its_own_logits_and_later_ones_only(case):
    for position in (1, T - 1):
        ids = case.inputs.ids.copy()
        ids[:, position] = 4 + (ids[:, position] - 3) % (C - 4)
        other = case(case.source, case.inputs._replace(ids=ids)).logits
        changed = np.abs(other - case.decoded.logits).max(axis=(0, 2))
        np.testing.assert_array_equal(changed[:position], 0.0)
        assert np.all(changed[position:] > 1e-5)


def test_logits_depend_on_the_order_of_the_own_source_only(case):
    ids = case.source.ids.copy()
    ids[1] = ids[1, ::-1]
    other = case(case.source._replace(ids=ids), case.inputs).logits
    changed = np.abs(other - case.decoded.logits).max(axis=(1, 2))
    assert changed[1] > 1e-3
    np.testing.assert_array_equal(changed[[0, 2]], 0.0)


def test_packed_equals_unpacked_or_is_refused(case):
    """Two sentences in one row; no family decodes packed sources step by step."""
    source_lengths, lengths = [3, 4], [2, 3]
    source = packed(case.source.ids[1], source_lengths)
    inputs = packed(case.inputs.ids[1], lengths)
    refused = pytest.raises(ValueError, match="one sentence per row")
    encode = functools.partial(case.apply, train=False, method="encode")
    if not case.config.reads_packed_rows:
        encoded = jax.eval_shape(encode, case.source)
        decode = functools.partial(case.apply, train=False, method="decode")
        with refused:
            jax.eval_shape(encode, source)
        with refused:
            jax.eval_shape(decode, encoded, inputs)
        return
    with refused:
        jax.eval_shape(lambda s: case.apply(encode(s), T, method="begin"), source)
    together = case(source, inputs).logits
    assert np.isfinite(together).all()
    apart = case(apart_of(source, source_lengths, S), apart_of(inputs, lengths, T))
    start = 0
    for row, length in enumerate(lengths):
        own = together[0, start : start + length]
        np.testing.assert_allclose(own, apart.logits[row, :length], atol=1e-5)
        start += length


def packed(ids, lengths):
    """The sentences of ``ids`` one after the other in a row with a place to spare."""
    numbers = np.repeat(np.arange(1, len(lengths) + 1), lengths)
    positions = np.concatenate([np.arange(length) for length in lengths])
    ids, numbers, positions = (
        np.pad(array, (0, 1))[None].astype(np.int32)
        for array in (ids[: len(numbers)], numbers, positions)
    )
    return Tokens(ids, numbers > 0, numbers, positions)


def apart_of(row, lengths, width):
    """The same sentences, each in a row of its own."""
    sentences = np.split(row.ids[0, : sum(lengths)], np.cumsum(lengths)[:-1])
    ids = [np.pad(ids, (0, width - len(ids))) for ids in sentences]
    return tokens(np.stack(ids), lengths)


# Where a config drops, and with which of its rates; those of two layers each.
PLACES = {
    TransformerConfig: {
        "embedding_dropout": 2 * [0.5],
        "encoder/layer_0/attention_residual/dropout": [0.5],
        "encoder/layer_0/attention/weight_dropout": [0.25],
        "encoder/layer_0/feed_forward_residual/dropout": [0.5],
        "encoder/layer_0/feed_forward/dropout": [0.125],
        "decoder/layer_0/self_residual/dropout": [0.5],
        "decoder/layer_0/self_attention/weight_dropout": [0.25],
        "decoder/layer_0/cross_residual/dropout": [0.5],
        "decoder/layer_0/cross_attention/weight_dropout": [0.25],
        "decoder/layer_0/feed_forward_residual/dropout": [0.5],
        "decoder/layer_0/feed_forward/dropout": [0.125],
    },
    RNNConfig: {
        "dropout": 3 * [0.5],  # source and target embeddings, before the logits
        "encoder/Dropout_0": [0.5],
        "decoder/layer_dropout": [0.5],
    },
}
DROPPING = {
    TransformerConfig: {"attention_dropout": 0.25, "feed_forward_dropout": 0.125},
    RNNConfig: {"encoder_layers": 2, "decoder_layers": 2},
}


@pytest.mark.parametrize("family", MODELS)
def test_dropout_acts_in_all_its_places(family):
    """A nudge to what each place lets through, by itself, moves the logits.

    All other laws run without an rng, so that nothing could be dropped in them.
    """
    dropping = Case(config_of(family, **DROPPING.get(family, {})))
    places = []

    def nudged(nudges, rng, source, inputs):
        places.clear()

        def nudge(call, args, kwargs, context):
            output = call(*args, **kwargs)
            layer = context.module
            if not isinstance(layer, Dropout) or not layer.rate:
                return output
            places.append(("/".join(layer.path), layer.rate))
            direction = jnp.cos(jnp.arange(output.size)).reshape(output.shape)
            return output + nudges[len(places) - 1] * direction

        with nn.intercept_methods(nudge):
            decoded = dropping.apply(source, inputs, train=True, rngs={"dropout": rng})
        return jnp.square(decoded.logits).sum(), decoded.logits

    pull = jax.jit(jax.grad(nudged, has_aux=True))
    given = dropping.source, dropping.inputs
    gradient, first = pull(np.zeros(50, np.float32), jax.random.key(0), *given)
    _, second = pull(np.zeros(50, np.float32), jax.random.key(1), *given)
    assert np.any(np.asarray(first != second)) == bool(places)
    found = {}
    for name, rate in places:
        found.setdefault(name, []).append(rate)
    assert found == PLACES.get(family, found)
    assert np.all(np.asarray(gradient)[: len(places)] != 0.0)


@pytest.mark.parametrize("kind", ["hard", "gumbel"])
@pytest.mark.parametrize("query", ["previous", "current"])
def test_recurrent_models_draw_a_key_in_training(kind, query):
    selection = SELECTIONS.fill(kind, {"soft_rate": 0.0})
    drawing = Case(config_of(RNNConfig, dropout=0.0, query=query, selection=selection))

    @jax.jit
    def run(rng):
        given = drawing.source, drawing.inputs
        return drawing.apply(*given, train=True, rngs={"dropout": rng}).attention

    drawn = {
        np.asarray(run(jax.random.key(seed))["decoder/cross"]).tobytes()
        for seed in range(3)
    }
    assert len(drawn) == 3
