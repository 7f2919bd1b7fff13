"""Every mechanism of the catalog in every slot of a Transformer that allows it."""

import dataclasses
import functools
import typing

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax.traverse_util import flatten_dict, unflatten_dict

from attnjax.config import (
    CLDRSource,
    PositionsName,
    TokenizerConfig,
    TransformerConfig,
)
from attnjax.data.cldr import generate_cldr
from attnjax.data.layout import lay_out_pairs
from attnjax.data.tokenizers import train_tokenizers
from attnjax.models.transformer import Transformer
from attnjax.ops.attend import Dense
from attnjax.ops.catalog import CATALOG, MECHANISMS
from attnjax.ops.linear import Linear
from attnjax.training.losses import token_losses
from attnjax.types import Tokens

B, T, S, C = 3, 5, 7, 97
ROWS, LENGTH, UPDATES = 4, 23, 100
SLOTS = {
    "encoder": "encoder_attention",
    "decoder": "decoder_attention",
    "cross": "cross_attention",
}
CONFIG = TransformerConfig(
    width=16,
    num_heads=2,
    feed_forward_width=24,
    encoder_layers=1,
    decoder_layers=1,
    dropout=0.0,
    norm_position="pre",
    max_positions=23,
)


def mechanism(kind):
    values = {"window": 2, "block": 2, "stride": 2, "chunk": 3, "clusters": 2}
    return MECHANISMS.fill(kind, {**values, "top_k": 3, "rank": 4})


def tokens(rng, length):
    lengths = jnp.array([length, length - 2, 2])
    valid = jnp.arange(length)[None, :] < lengths[:, None]
    return Tokens(jax.random.randint(rng, (B, length), 4, C), valid)


@pytest.fixture(scope="module")
def pair():
    return tokens(jax.random.key(0), S), tokens(jax.random.key(1), T)


def initialised(model, pair, known):
    """Fresh variables; to draw only what is not known yet compiles faster.

    Args:
        model: a Transformer.
        pair: source and inputs.
        known: variables of another model, to be taken over where path and shape agree.
    """
    known = flatten_dict(known)
    taken = {}

    @jax.jit
    def draw(rng):
        leaves = flatten_dict(model.init(rng, *pair, train=False))
        for path, leaf in leaves.items():
            if path in known and known[path].shape == leaf.shape:
                taken[path] = known[path]
        return {path: leaves[path] for path in leaves.keys() - taken.keys()}

    return unflatten_dict(draw(jax.random.key(2)) | taken)


@pytest.fixture(scope="module")
def plain(pair):
    """Variables of a model with dense attention everywhere."""
    return initialised(Transformer(CONFIG, C, C), pair, {})


def decoded_both_ways(model, variables, source, inputs):
    """Logits by teacher forcing, and position by position."""
    encoded = model.apply(variables, source, train=False, method="encode")
    decoded = model.apply(variables, encoded, inputs, train=False, method="decode")
    constants, cache = model.apply(variables, encoded, T, method="begin")

    def step(cache, ids):
        row, cache, _ = model.apply(variables, constants, cache, ids, method="step")
        return cache, row

    _, rows = jax.lax.scan(step, cache, inputs.ids.T)
    return decoded.logits, rows.swapaxes(0, 1)


@pytest.fixture(scope="module")
def cldr_batches():
    """One batch of short German-English phrases for each update, stacked."""
    source = CLDRSource(train_pairs=3_000, valid_pairs=1, test_pairs=1)
    corpus, _, _ = generate_cldr(source, "de", "en")
    config = TokenizerConfig(kind="char", vocab_size=C)
    tokenizers = train_tokenizers(corpus, config)
    source_tokenizer, target_tokenizer = tokenizers
    pairs = [
        (np.array(source_tokenizer.encode(a)), np.array(target_tokenizer.encode(b)))
        for a, b in zip(corpus.source, corpus.target, strict=True)
    ]
    short = [[pair] for pair in pairs if max(map(len, pair)) < LENGTH]
    rows = short[: UPDATES * ROWS]
    assert len(rows) == UPDATES * ROWS
    batch = lay_out_pairs(rows, LENGTH, LENGTH, tokenizers)
    return jax.tree.map(lambda a: a.reshape(UPDATES, ROWS, *a.shape[1:]), batch)


def trained(model, variables, batches):
    """The variables after one update a batch, and the loss a token of each."""
    optimizer = optax.flatten(optax.adam(1e-2))  # one vector compiles faster

    def loss(params, state, batch, rng):
        decoded, updated = model.apply(
            {"params": params, **state},
            batch.source,
            batch.inputs,
            train=True,
            rngs={"dropout": rng},
            mutable=[*state],
        )
        costs = token_losses(decoded.logits, batch.labels)
        return (costs * batch.weights).sum() / batch.weights.sum(), updated

    def update(carry, batch):
        params, state, moments, rng = carry
        rng, now = jax.random.split(rng)
        (mean, state), gradient = jax.value_and_grad(loss, has_aux=True)(
            params, state, batch, now
        )
        changes, moments = optimizer.update(gradient, moments)
        return (optax.apply_updates(params, changes), state, moments, rng), mean

    state = {name: tree for name, tree in variables.items() if name != "params"}
    params = variables["params"]
    carry = params, state, optimizer.init(params), jax.random.key(3)
    (params, state, *_), means = jax.lax.scan(update, carry, batches)
    return {"params": params, **state}, means


@pytest.mark.parametrize("kind", CATALOG)
def test_trains_on_cldr_and_decodes_step_by_step_in_all_its_slots(
    pair, plain, cldr_batches, kind
):
    slots = {*SLOTS} & {*CATALOG[kind].slots}
    config = dataclasses.replace(CONFIG, **{SLOTS[s]: mechanism(kind) for s in slots})
    model = Transformer(config, C, C)

    @jax.jit
    def run(variables, batches):
        variables, means = trained(model, variables, batches)
        return means, *decoded_both_ways(model, variables, *pair)

    variables = initialised(model, pair, plain)
    means, logits, stepwise = jax.device_get(run(variables, cldr_batches))
    assert np.isfinite(means).all()
    assert means[-10:].mean() < 0.75 * means[:5].mean()
    np.testing.assert_allclose(stepwise, logits, atol=2e-4)


@pytest.mark.parametrize(
    "kind", [kind for kind, line in CATALOG.items() if "encoder" in line.slots]
)
def test_a_source_does_not_depend_on_its_padding_at_the_default_options(kind):
    length, padded_length = 9, 40
    attention = MECHANISMS.find(kind)()
    config = dataclasses.replace(
        CONFIG, encoder_attention=attention, max_positions=padded_length
    )
    model = Transformer(config, C, C)
    ids = np.random.default_rng(0).integers(4, C, (2, padded_length))
    valid = np.arange(padded_length)[None, :] < np.array([[length], [padded_length]])

    @jax.jit
    def run(rng):
        encode = functools.partial(model.apply, train=False, method="encode")
        padded = Tokens(ids, valid)
        variables = model.init(rng, padded, train=False, method="encode")
        alone = Tokens(ids[:1, :length], valid[:1, :length])
        return encode(variables, padded).states, encode(variables, alone).states

    padded, alone = jax.device_get(run(jax.random.key(0)))
    np.testing.assert_allclose(padded[:1, :length], alone, atol=2e-5)


@pytest.mark.parametrize("kind", CATALOG)
@pytest.mark.parametrize("slot", SLOTS)
def test_a_slot_that_the_catalog_does_not_list_is_refused(pair, kind, slot):
    if slot in CATALOG[kind].slots:
        pytest.skip("allowed")
    config = dataclasses.replace(CONFIG, **{SLOTS[slot]: mechanism(kind)})
    with pytest.raises(ValueError, match=f"{kind} attention cannot be the {slot}"):
        shapes(Transformer(config, C, C), pair)


def test_layers_take_the_mechanisms_of_a_slot_in_turn(pair):
    """Those that form weights give them away: dense attention does, linear does not."""
    mixed = {"encoder": (Linear(), Dense()), "cross": (Dense(), Dense(), Linear())}
    fields = {SLOTS[slot]: pattern for slot, pattern in mixed.items()}
    config = dataclasses.replace(
        CONFIG, encoder_layers=3, decoder_layers=4, decoder_attention=Linear(), **fields
    )
    model = Transformer(config, C, C)
    variables = shapes(model, pair)
    apply = functools.partial(model.apply, train=False)
    encoded = jax.eval_shape(
        functools.partial(apply, method="encode"), variables, pair[0]
    )
    assert set(encoded.attention) == {"encoder/layer_1/self"}
    decoded = jax.eval_shape(apply, variables, *pair)
    assert set(decoded.attention) == {f"decoder/layer_{n}/cross" for n in (0, 1, 3)}


def shapes(model, pair):
    initialise = functools.partial(model.init, train=False)
    return jax.eval_shape(initialise, jax.random.key(0), *pair)


@pytest.mark.parametrize("positions", typing.get_args(PositionsName))
def test_stepwise_equals_teacher_forcing_for_all_positions(pair, plain, positions):
    source, inputs = pair
    model = Transformer(dataclasses.replace(CONFIG, positions=positions), C, C)
    variables = initialised(model, pair, plain)
    run = jax.jit(functools.partial(decoded_both_ways, model))
    logits, stepwise = jax.device_get(run(variables, source, inputs))
    np.testing.assert_allclose(stepwise, logits, atol=2e-5)
    if positions != "none":  # the order of the source must matter
        ids = np.asarray(source.ids)[:, [1, 0, *range(2, S)]]
        other, _ = run(variables, source._replace(ids=ids), inputs)
        assert np.abs(other - logits).max() > 1e-4


def test_learned_positions_refuse_longer_sequences(pair):
    config = dataclasses.replace(CONFIG, positions="learned", max_positions=S - 1)
    with pytest.raises(ValueError, match="learned positions end at 6, got a sequence"):
        shapes(Transformer(config, C, C), pair)
