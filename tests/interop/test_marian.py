"""A Marian model of transformers, its weights in our Transformer."""

import functools
import json
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnjax.decoding.beam import BeamSettings, beam_search, repeat_for_beams
from attnjax.decoding.greedy import greedy_search
from attnjax.decoding.hypotheses import SpecialTokens
from attnjax.interop.marian import load_marian
from attnjax.interop.safetensors import read_safetensors
from attnjax.ops.positions import sinusoids
from attnjax.types import Tokens

GOLDEN = pathlib.Path(__file__).parents[1] / "golden" / "hf_marian"
CONFIG = json.loads((GOLDEN / "config.json").read_text())
PAD, CLASSES = CONFIG["pad_token_id"], CONFIG["vocab_size"]
WIDTH, HIDDEN = CONFIG["d_model"], CONFIG["encoder_ffn_dim"]
POSITIONS = CONFIG["max_position_embeddings"]
BEAMS = 4


@pytest.fixture(scope="module")
def marian():
    return load_marian(GOLDEN)


@pytest.fixture(scope="module")
def golden():
    return dict(np.load(GOLDEN / "expected.npz"))


@pytest.fixture(scope="module")
def source(golden):
    return source_of(golden)


def source_of(golden):
    return Tokens(golden["input_ids"].astype(np.int32), golden["attention_mask"])


@functools.partial(jax.jit, static_argnums=0)
def _forced(model, variables, source, inputs):
    apply = functools.partial(model.apply, variables, train=False)
    encoded = apply(source, method="encode")
    return encoded.states, apply(encoded, inputs, method="decode")


def forced(marian, source, golden):
    """States of the source, and what the decoder makes of the given inputs."""
    ids = golden["decoder_input_ids"].astype(np.int32)
    inputs = Tokens(ids, np.ones_like(ids, bool))
    return _forced(marian.model, marian.variables, source, inputs)


def test_config_and_special_tokens(marian):
    config = marian.config
    assert (config.width, config.feed_forward_width) == (WIDTH, HIDDEN)
    assert config.num_heads == CONFIG["encoder_attention_heads"]
    layers = CONFIG["encoder_layers"], CONFIG["decoder_layers"]
    assert (config.encoder_layers, config.decoder_layers) == layers
    assert (config.activation, config.positions) == ("swish", "halves")
    assert (config.norm_position, config.tied_embeddings) == ("post", "all")
    assert config.dropout == CONFIG["dropout"]
    assert marian.special == SpecialTokens(PAD, PAD, CONFIG["eos_token_id"])


def test_states_logits_and_attention(marian, golden, source):
    states, decoded = forced(marian, source, golden)
    real = golden["attention_mask"]
    np.testing.assert_allclose(
        states[real], golden["encoder_output"][real], rtol=0, atol=1e-5
    )
    np.testing.assert_allclose(decoded.logits, golden["logits"], rtol=0, atol=1e-4)
    np.testing.assert_allclose(
        decoded.attention[f"decoder/layer_{CONFIG['decoder_layers'] - 1}/cross"],
        golden["cross_attention_last"],
        rtol=0,
        atol=1e-5,
    )


def limit_of(golden):
    """Far more tokens than the longest hypothesis has."""
    return 2 * max(golden["greedy"].shape[1], golden["beam4_lp0.0"].shape[1])


def begin(marian, source, limit):
    apply = functools.partial(marian.model.apply, marian.variables)
    encoded = apply(source, train=False, method="encode")
    return apply(encoded, limit, method="begin")


def step_of(marian, constants, start_id):
    """A step that reads ``start_id`` as the token that Marian starts with."""

    def step(state, tokens):
        tokens = jnp.where(tokens == start_id, marian.special.bos_id, tokens)
        logits, state, *_ = marian.model.apply(
            marian.variables, constants, state, tokens, method="step"
        )
        return logits, state

    return step


def searched(marian, golden, alpha, special):
    """The 4-best lists: tokens with padding as in the golden, and scores."""
    limit = limit_of(golden)

    @jax.jit
    def run(source):
        constants, state = begin(marian, source, limit)
        return beam_search(
            step_of(marian, repeat_for_beams(constants, BEAMS), special.bos_id),
            state,
            jnp.full(len(source.ids), limit),
            special=special,
            max_tokens=limit,
            settings=BeamSettings(
                beam_size=BEAMS, length_penalty=alpha, penalty="plain", n_best=BEAMS
            ),
        )

    found = jax.device_get(run(source_of(golden)))
    assert np.all(found.finished)
    return np.where(found.tokens == special.pad_id, PAD, found.tokens), found.scores


def lists_of(golden, alpha):
    """The same of transformers, without the start token."""
    rows = len(golden["input_ids"])
    tokens = golden[f"beam4_lp{alpha}"].reshape(rows, BEAMS, -1)[:, :, 1:]
    return tokens, golden[f"beam4_scores_lp{alpha}"].reshape(rows, BEAMS)


def test_greedy_ids(marian, golden, source):
    limit = limit_of(golden)

    @jax.jit
    def run(source):
        constants, state = begin(marian, source, limit)
        return greedy_search(
            step_of(marian, constants, PAD),
            state,
            jnp.full(len(source.ids), limit),
            special=marian.special,
            max_tokens=limit,
        )

    found = run(source)
    assert np.all(found.finished)
    expected = golden["greedy"][:, 1:]
    width = expected.shape[1]
    np.testing.assert_array_equal(found.tokens[:, 0, :width], expected)
    assert np.all(found.tokens[:, 0, width:] == PAD)


@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_four_best_of_four_beams(marian, golden, alpha):
    # That search may choose <pad>, ours never does: start and padding get an id that
    # no class has, and so <pad> is a token like any other.
    alias = SpecialTokens(CLASSES, CLASSES, marian.special.eos_id)
    tokens, scores = searched(marian, golden, alpha, alias)
    expected, expected_scores = lists_of(golden, alpha)
    width = expected.shape[-1]
    np.testing.assert_array_equal(tokens[:, :, :width], expected)
    assert np.all(tokens[:, :, width:] == PAD)
    np.testing.assert_allclose(scores, expected_scores, rtol=0, atol=1e-4)


def test_our_own_search_leaves_out_what_contains_padding(marian, golden):
    tokens, scores = searched(marian, golden, 1.0, marian.special)
    expected, expected_scores = lists_of(golden, 1.0)
    width = expected.shape[-1]
    chooses_padding = np.any(
        (expected[:, :, :-1] == PAD) & (expected[:, :, 1:] != PAD), -1
    )
    if not chooses_padding.any():
        pytest.skip("no hypothesis of this golden contains padding")
    for row, kept in enumerate(~chooses_padding):
        count = kept.sum()
        np.testing.assert_array_equal(tokens[row, :count, :width], expected[row][kept])
        np.testing.assert_allclose(
            scores[row, :count], expected_scores[row][kept], rtol=0, atol=1e-4
        )


NAMES = {"float32": "F32", "float16": "F16", "float64": "F64", "int32": "I32"}


@pytest.fixture
def weights():
    return read_safetensors(GOLDEN / "model.safetensors")


@pytest.fixture
def save(tmp_path):
    """Writes a checkpoint of the given arrays; the config's members can be replaced."""

    def write(arrays, **members):
        (tmp_path / "config.json").write_text(json.dumps({**CONFIG, **members}))
        header, data = {}, b""
        for name, array in arrays.items():
            begin, data = len(data), data + array.tobytes()
            header[name] = {
                "dtype": NAMES[array.dtype.name],
                "shape": list(array.shape),
                "data_offsets": [begin, len(data)],
            }
        text = json.dumps(header).encode()
        content = len(text).to_bytes(8, "little") + text + data
        (tmp_path / "model.safetensors").write_bytes(content)
        return tmp_path

    return write


def test_every_array_that_does_not_fit_is_listed_at_once(weights, save):
    layers = CONFIG["encoder_layers"], CONFIG["decoder_layers"]
    first = "model.encoder.layers.0.self_attn.q_proj.weight"
    second = f"model.decoder.layers.{layers[1] - 1}.encoder_attn_layer_norm.bias"
    del weights[first], weights[second]
    third = f"model.encoder.layers.{layers[0]}.fc1.bias"
    weights[third] = np.zeros(HIDDEN, np.float32)
    weights["model.encoder.layernorm_embedding.weight"] = np.zeros(WIDTH, np.float32)
    weights["final_logits_bias"] = np.zeros((1, CLASSES - 1), np.float32)
    fc1 = "model.decoder.layers.0.fc1.weight"
    weights[fc1] = weights[fc1].T.copy()
    weights["model.shared.weight"] = weights["model.shared.weight"].astype(np.float64)
    with pytest.raises(ValueError, match="does not fit the config.json") as caught:
        load_marian(save(weights))
    lines = str(caught.value).split("\n  ")
    d, f, c = WIDTH, HIDDEN, CLASSES
    assert set(lines[1:-1] + lines[-1].split("\n")[:1]) == {
        f"final_logits_bias: float32[1, {c - 1}] -> float32[1, {c}]",
        f"{fc1}: float32[{d}, {f}] -> float32[{f}, {d}]",
        f"{second}: missing, expected float32[{d}]",
        f"model.encoder.layernorm_embedding.weight: float32[{d}] not expected",
        f"{third}: float32[{f}] not expected",
        f"{first}: missing, expected float32[{d}, {d}]",
        f"model.shared.weight: float64[{c}, {d}] -> float32[{c}, {d}]",
    }


def test_half_precision_becomes_float32(weights, save):
    halves = {name: array.astype(np.float16) for name, array in weights.items()}
    variables = load_marian(save(halves)).variables
    leaves = jax.tree.leaves(variables)
    assert {leaf.dtype.name for leaf in leaves} == {"float32"}
    np.testing.assert_array_equal(
        variables["params"]["target_embedding"]["table"],
        halves["model.shared.weight"].astype(np.float32),
    )


def test_bias_of_the_logits_reaches_whole_passes_and_steps(
    weights, save, golden, source
):
    bias = np.arange(CLASSES, dtype=np.float32)  # the golden's own is 0
    biased = load_marian(save({**weights, "final_logits_bias": bias[None, :]}))
    _, decoded = forced(biased, source, golden)
    expected = golden["logits"] + bias[None, None, :]
    np.testing.assert_allclose(decoded.logits, expected, rtol=0, atol=1e-4)

    @jax.jit
    def first_step(source):
        constants, state = begin(biased, source, 2)
        tokens = jnp.full(len(source.ids), biased.special.bos_id)
        return step_of(biased, constants, PAD)(state, tokens)[0]

    np.testing.assert_allclose(first_step(source), expected[:, 0], rtol=0, atol=1e-4)


def test_what_a_file_holds_twice_is_accepted_where_it_agrees(weights, save):
    table = weights["model.shared.weight"]
    sines = np.asarray(sinusoids(np.arange(POSITIONS), WIDTH, "halves"))
    copies = {
        "lm_head.weight": table,
        "model.encoder.embed_tokens.weight": table,
        "model.decoder.embed_tokens.weight": table,
        "model.encoder.embed_positions.weight": sines,
        "model.decoder.embed_positions.weight": sines,
    }
    load_marian(save({**weights, **copies}))
    different = {name: copy[::-1].copy() for name, copy in copies.items()}
    with pytest.raises(ValueError, match="does not fit") as caught:
        load_marian(save({**weights, **different}))
    for name in copies:
        assert f"{name}: float32{list(copies[name].shape)} not expected" in str(
            caught.value
        )


@pytest.mark.parametrize("tied", [True, False])
def test_two_vocabularies(weights, save, tied):
    table = weights.pop("model.shared.weight")
    weights["model.encoder.embed_tokens.weight"] = np.tile(table, (2, 1))
    weights["model.decoder.embed_tokens.weight"] = table
    if not tied:
        weights["lm_head.weight"] = -table
    loaded = load_marian(
        save(
            weights,
            vocab_size=2 * CLASSES,
            decoder_vocab_size=CLASSES,
            share_encoder_decoder_embeddings=False,
            tie_word_embeddings=tied,
        )
    )
    params = loaded.variables["params"]
    sizes = loaded.model.source_size, loaded.model.target_size
    assert sizes == (2 * CLASSES, CLASSES)
    np.testing.assert_array_equal(
        params["source_embedding"]["table"], np.tile(table, (2, 1))
    )
    np.testing.assert_array_equal(params["target_embedding"]["table"], table)
    if tied:
        assert "output_embedding" not in params
    else:
        np.testing.assert_array_equal(params["output_embedding"]["table"], -table)


def test_a_pickle_is_never_read(tmp_path):
    (tmp_path / "config.json").write_bytes((GOLDEN / "config.json").read_bytes())
    (tmp_path / "pytorch_model.bin").write_bytes(b"\x80\x02.")
    with pytest.raises(ValueError, match=r"model.safetensors does not exist.*pickle"):
        load_marian(tmp_path)
