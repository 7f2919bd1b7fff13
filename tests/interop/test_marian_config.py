"""The config.json of a Marian model: what is refused, what older files leave out."""

import json
import pathlib
import re

import pytest

from attnjax.interop.marian_config import read_marian_config

GOLDEN = pathlib.Path(__file__).parents[1] / "golden" / "hf_marian"
CONFIG = json.loads((GOLDEN / "config.json").read_text())
WIDTH, CLASSES = CONFIG["d_model"], CONFIG["vocab_size"]
HEADS, HIDDEN = CONFIG["encoder_attention_heads"], CONFIG["encoder_ffn_dim"]


@pytest.fixture
def save(tmp_path):
    """Writes the golden's config with members replaced, or left out where None."""

    def write(**members):
        config = {**CONFIG, **members}
        config = {name: value for name, value in config.items() if value is not None}
        path = tmp_path / "config.json"
        path.write_text(json.dumps(config))
        return path

    return write


REFUSED = [
    ({"model_type": "bart"}, "model_type must be 'marian', got 'bart'"),
    ({"model_type": None}, "model_type must be 'marian', got None"),
    ({"scale_embedding": False}, "scale_embedding must be true"),
    ({"scale_embedding": None}, "scale_embedding must be true"),
    ({"normalize_before": True}, "normalize_before must be false"),
    ({"normalize_embedding": True}, "normalize_embedding must be false"),
    ({"add_final_layer_norm": True}, "add_final_layer_norm must be false"),
    ({"static_position_embeddings": False}, "static_position_embeddings must be true"),
    ({"activation_function": "tanh"}, "must be one of relu, gelu, swish, silu"),
    ({"decoder_attention_heads": 2 * HEADS}, "encoder_attention_heads and decoder_att"),
    ({"encoder_ffn_dim": HIDDEN + 1}, "encoder_ffn_dim and decoder_ffn_dim must be eq"),
    ({"d_model": None}, "d_model must be of type int, got None"),
    ({"d_model": str(WIDTH)}, f"d_model must be of type int, got '{WIDTH}'"),
    ({"d_model": True}, "d_model must be of type int, got True"),
    ({"d_model": WIDTH + 1}, "width must be a multiple of num_heads"),
    ({"encoder_layers": 0}, "encoder_layers must be greater than 0"),
    ({"dropout": 1.5}, "dropout must be 0 or more and less than 1"),
    ({"vocab_size": -3}, "vocab_size must be greater than 0"),
    ({"decoder_vocab_size": CLASSES + 1}, "decoder_vocab_size must equal vocab_size"),
    ({"tie_word_embeddings": False}, "tie_word_embeddings must be true"),
    ({"decoder_start_token_id": CLASSES}, f"token_id must be one of {CLASSES}"),
    ({"pad_token_id": -1}, f"pad_token_id must be one of {CLASSES}"),
    ({"eos_token_id": [0]}, "eos_token_id must be of type int"),
]


@pytest.mark.parametrize(("members", "why"), REFUSED)
def test_what_is_not_ours_is_refused_with_the_file_s_name(members, why, save):
    path = save(**members)
    with pytest.raises(ValueError, match=re.escape(why)) as caught:
        read_marian_config(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_older_files_leave_out_is_tied_and_of_one_vocabulary(save):
    names = ("tie_word_embeddings", "share_encoder_decoder_embeddings")
    older = save(**dict.fromkeys((*names, "decoder_vocab_size")), dropout=0)
    config = read_marian_config(older)
    assert config.model.tied_embeddings == "all"
    assert config.model.dropout == 0.0
    assert config.source_size == config.target_size == CLASSES


def test_silu_is_swish(save):
    config = read_marian_config(save(activation_function="silu"))
    assert config.model.activation == "swish"


@pytest.mark.parametrize("content", [b"", b"\xff", b"[1", b"[" * 100_000])
def test_damaged_json(content, tmp_path):
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="is not valid JSON"):
        read_marian_config(path)


def test_missing_file(tmp_path):
    with pytest.raises(
        ValueError, match=r"config.json does not exist; give the folder"
    ):
        read_marian_config(tmp_path / "config.json")
