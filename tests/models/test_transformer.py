"""The Transformer beside the laws of test_laws.py: attention, tables, precision."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnjax.config import TransformerConfig
from attnjax.models.transformer import Transformer
from attnjax.types import Tokens

B, S, T, V = 2, 7, 5, 13
LENGTHS = np.array([S, 4])
CONFIG = TransformerConfig(
    width=12,
    num_heads=3,
    feed_forward_width=11,
    encoder_layers=1,
    decoder_layers=1,
)


def tokens(ids, lengths):
    ids = np.asarray(ids, np.int32)
    valid = np.arange(ids.shape[1])[None, :] < np.asarray(lengths)[:, None]
    return Tokens(np.where(valid, ids, 0), valid)


@pytest.fixture(scope="module")
def pair():
    random = np.random.default_rng(0)
    source = tokens(random.integers(4, V, (B, S)), LENGTHS)
    inputs = tokens(random.integers(4, V, (B, T)), [T, 3])
    return source, inputs


@pytest.fixture(scope="module")
def post(pair):
    model = Transformer(CONFIG, V, V)
    return model, init(model, *pair)


def init(model, source, inputs):
    """Random numbers in the right shapes, faster than compiling an initialiser."""
    random = np.random.default_rng(2)

    def fill(path, leaf):
        centre = float(path[-1].key == "scale")
        return np.float32(random.normal(centre, 0.3, leaf.shape))

    return jax.tree_util.tree_map_with_path(fill, shapes(model, source, inputs))


def shapes(model, source, inputs):
    rng = jax.random.key(0)
    initialise = functools.partial(model.init, train=False)
    return jax.eval_shape(initialise, rng, source, inputs)


def decode(built, source, inputs):
    return call(built, None, source, inputs, train=False)


def encode(built, source):
    return call(built, "encode", source, train=False)


def begin(built, encoded, max_tokens):
    model, variables = built
    compiled = jax.jit(
        lambda variables, encoded: model.apply(
            variables, encoded, max_tokens, method="begin"
        )
    )
    return compiled(variables, encoded)


def call(built, method, *inputs, **settings):
    model, variables = built
    return compiled_apply(model, method)(variables, *inputs, **settings)


@functools.cache
def compiled_apply(model, method):
    apply = functools.partial(model.apply, method=method)
    return jax.jit(apply, static_argnames="train")


def test_step_beyond_the_cache_cannot_be_missed(post, pair):
    constants, state = begin(post, encode(post, pair[0]), 2)
    finite = []
    for _ in range(3):
        logits, state, _ = call(post, "step", constants, state, jnp.array([5, 6]))
        finite.append(bool(np.all(np.isfinite(logits))))
    assert finite == [True, True, False]
    assert np.all(np.isnan(logits))


def test_every_target_reads_every_real_source_token_only(post, pair):
    source, inputs = pair
    before = decode(post, source, inputs).logits
    for position in range(S):
        ids = source.ids.copy()
        ids[:, position] = 4 + (ids[:, position] + 1) % (V - 4)
        after = decode(post, source._replace(ids=ids), inputs).logits
        changed = np.abs(after - before).max(axis=-1)
        assert np.all(changed[0] > 1e-6)
        assert np.all(changed[1, :3] > 1e-6) == (position < LENGTHS[1])


def test_half_packed_pair_is_refused(post, pair):
    source, inputs = pair
    numbers = source.valid.astype(np.int32)
    packed = source._replace(segments=numbers, positions=0 * numbers)
    with pytest.raises(ValueError, match="both be packed"):
        decode(post, packed, inputs)


def test_attention_of_every_layer_and_head_is_returned(pair):
    source, inputs = pair
    config = dataclasses.replace(CONFIG, encoder_layers=2, decoder_layers=2)
    model = Transformer(config, V, V)

    def both(rng, source, inputs):
        variables = model.init(rng, source, inputs, train=False)
        encoded = model.apply(variables, source, train=False, method="encode")
        decoded = model.apply(variables, encoded, inputs, train=False, method="decode")
        return encoded.attention, decoded.attention

    encoder, decoder = jax.eval_shape(both, jax.random.key(0), source, inputs)
    assert {name: weights.shape for name, weights in encoder.items()} == {
        f"encoder/layer_{index}/self": (B, 3, S, S) for index in range(2)
    }
    assert {name: weights.shape for name, weights in decoder.items()} == {
        f"decoder/layer_{index}/{kind}": (B, 3, T, keys)
        for index in range(2)
        for kind, keys in (("self", T), ("cross", S))
    }


def test_decoding_in_two_parts_is_the_call_and_weights_sum_to_one(post, pair):
    source, inputs = pair
    encoded = encode(post, source)
    decoded = call(post, "decode", encoded, inputs, train=False)
    for name, weights in {**encoded.attention, **decoded.attention}.items():
        np.testing.assert_allclose(weights.sum(-1), 1.0, rtol=1e-5, err_msg=name)
    whole = decode(post, source, inputs)
    np.testing.assert_allclose(decoded.logits, whole.logits, atol=1e-5)


def test_reading_the_attention_changes_no_logit(post, pair):
    model, variables = post

    def logits_only(variables, source, inputs):
        return model.apply(variables, source, inputs, train=False).logits

    with_attention = decode(post, *pair).logits
    np.testing.assert_array_equal(
        jax.jit(logits_only)(variables, *pair), with_attention
    )


def test_jit_equals_eager(post, pair):
    model, variables = post
    eager = model.apply(variables, *pair, train=False)
    np.testing.assert_allclose(eager.logits, decode(post, *pair).logits, atol=1e-5)


@pytest.mark.parametrize(
    ("tied", "tables"),
    [
        ("all", {"target_embedding"}),
        ("decoder", {"source_embedding", "target_embedding"}),
        ("none", {"source_embedding", "target_embedding", "output_embedding"}),
    ],
)
def test_tied_embeddings_share_one_table(tied, tables, pair):
    config = dataclasses.replace(CONFIG, tied_embeddings=tied)
    model = Transformer(config, V, V)
    variables = shapes(model, *pair)
    assert set(variables["params"]) - {"encoder", "decoder"} == tables
    size = sum(variables["params"][name]["table"].size for name in tables)
    assert size == len(tables) * V * CONFIG.width


def test_one_table_for_two_vocabularies_is_refused():
    with pytest.raises(ValueError, match="one vocabulary"):
        Transformer(CONFIG, V, V + 1)


def test_bfloat16_computes_low_and_keeps_float32_parameters(post, pair):
    _, variables = post
    low = Transformer(CONFIG, V, V, dtype=jnp.bfloat16)
    leaves = jax.tree.leaves(shapes(low, *pair))
    assert {leaf.dtype for leaf in leaves} == {jnp.dtype("float32")}
    encoded = encode((low, variables), pair[0])
    decoded = call((low, variables), "decode", encoded, pair[1], train=False)
    results = (encoded.states, encoded.attention, decoded)
    assert {leaf.dtype for leaf in jax.tree.leaves(results)} == {jnp.dtype("bfloat16")}
    exact = decode(post, *pair).logits
    low_logits = decoded.logits.astype(jnp.float32)
    np.testing.assert_allclose(low_logits, exact, atol=0.15)


def test_remat_changes_no_gradient(post, pair):
    _, variables = post

    def gradient(variables, config):
        def loss(variables):
            rngs = {"dropout": jax.random.key(5)}
            model = Transformer(config, V, V)
            decoded = model.apply(variables, *pair, train=True, rngs=rngs)
            return jnp.mean(jnp.square(decoded.logits))

        return jax.grad(loss)(variables)

    configs = CONFIG, dataclasses.replace(CONFIG, remat=True)
    traced = [
        jax.jit(gradient, static_argnums=1).trace(variables, config)
        for config in configs
    ]
    assert ["remat" in str(trace.jaxpr) for trace in traced] == [False, True]
    plain, remat = (trace.lower().compile()(variables) for trace in traced)
    for one, other in zip(jax.tree.leaves(plain), jax.tree.leaves(remat), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


def test_gradients_are_finite_with_an_empty_source(post, pair):
    source, inputs = pair
    source = tokens(source.ids, [S, 0])
    model, variables = post

    def loss(variables):
        return jnp.sum(model.apply(variables, source, inputs, train=False).logits ** 2)

    for leaf in jax.tree.leaves(jax.jit(jax.grad(loss))(variables)):
        assert np.all(np.isfinite(leaf))
