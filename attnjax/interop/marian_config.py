"""What the ``config.json`` of a Marian model says, in our terms."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from attnjax.config import TransformerConfig
from attnjax.decoding.hypotheses import SpecialTokens

_ACTIVATIONS: Mapping[str, Literal["relu", "gelu", "swish"]] = {
    "relu": "relu",
    "gelu": "gelu",
    "swish": "swish",
    "silu": "swish",
}
# What our Transformer computes and some Marian models do not.
_FIXED = {
    "scale_embedding": True,
    "normalize_before": False,
    "normalize_embedding": False,
    "add_final_layer_norm": False,
    "static_position_embeddings": True,
}
_FIXED_IF_ABSENT = {**_FIXED, "scale_embedding": False}  # transformers' own defaults


class MarianConfig(NamedTuple):
    """A Marian model without its weights.

    Attributes:
        model: sizes and variants, dropout rates included.
        source_size: number of source tokens.
        target_size: number of target tokens.
        special: ids of the target vocabulary; the decoder starts with ``bos_id``.
    """

    model: TransformerConfig
    source_size: int
    target_size: int
    special: SpecialTokens


def read_marian_config(path: Path) -> MarianConfig:
    """Reads the ``config.json`` that transformers wrote beside a Marian model.

    Args:
        path: of the file.

    Returns:
        The model that it describes.

    Raises:
        ValueError: if the file is missing or damaged, is of no Marian model, lacks a
            member, or asks for what our Transformer does not compute.
    """
    members = _read_members(path)
    model = _model(members)
    source_size = members.size("vocab_size")
    target_size = members.size("decoder_vocab_size", source_size)
    if model.tied_embeddings == "all" and source_size != target_size:
        raise ValueError(
            f"{path}: decoder_vocab_size must equal vocab_size where encoder and "
            f"decoder share one table, got {target_size} and {source_size}; take the "
            "config.json that belongs to the weights."
        )
    special = SpecialTokens(
        pad_id=members.token("pad_token_id", target_size),
        bos_id=members.token("decoder_start_token_id", target_size),
        eos_id=members.token("eos_token_id", target_size),
    )
    return MarianConfig(model, source_size, target_size, special)


class _Members(NamedTuple):
    """The members of the file; null counts as absent, as transformers has it."""

    path: Path
    values: Mapping[str, Any]

    def read(self, name: str, kind: type, absent: Any = None) -> Any:
        value = self.values.get(name)
        value = absent if value is None else value
        if type(value) is not kind and not (kind is float and type(value) is int):
            raise ValueError(
                f"{self.path}: {name} must be of type {kind.__name__}, got "
                f"{value!r:.40}; take the config.json that belongs to the weights."
            )
        return value

    def size(self, name: str, absent: int | None = None) -> int:
        size = self.read(name, int, absent)
        if size <= 0:
            raise ValueError(
                f"{self.path}: {name} must be greater than 0, got {size}; take the "
                "config.json that belongs to the weights."
            )
        return size

    def size_of_both(self, name: str) -> int:
        encoder, decoder = self.size(f"encoder_{name}"), self.size(f"decoder_{name}")
        if encoder != decoder:
            raise ValueError(
                f"{self.path}: encoder_{name} and decoder_{name} must be equal in our "
                f"Transformer, got {encoder} and {decoder}; use another model."
            )
        return encoder

    def token(self, name: str, size: int) -> int:
        token = self.read(name, int)
        if not 0 <= token < size:
            raise ValueError(
                f"{self.path}: {name} must be one of {size} target ids, got {token}; "
                "take the config.json that belongs to the weights."
            )
        return token


def _read_members(path: Path) -> _Members:
    if not path.is_file():
        raise ValueError(
            f"{path} does not exist; give the folder that save_pretrained wrote."
        )
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"{path} is not valid JSON ({error}); fetch or save it again."
        ) from error
    model_type = values.get("model_type") if isinstance(values, dict) else None
    if model_type != "marian":
        raise ValueError(
            f"{path}: model_type must be 'marian', got {model_type!r:.40}; only Marian "
            "models are read."
        )
    members = _Members(path, values)
    for name, wanted in _FIXED.items():
        if members.read(name, bool, _FIXED_IF_ABSENT[name]) != wanted:
            raise ValueError(
                f"{path}: {name} must be {str(wanted).lower()} in our Transformer, got "
                f"{str(not wanted).lower()}; use another model."
            )
    return members


def _model(members: _Members) -> TransformerConfig:
    activation = members.read("activation_function", str)
    if activation not in _ACTIVATIONS:
        raise ValueError(
            f"{members.path}: activation_function must be one of "
            f"{', '.join(_ACTIVATIONS)}, got {activation!r:.40}; use another model."
        )
    fields: dict[str, Any] = {
        "width": members.size("d_model"),
        "num_heads": members.size_of_both("attention_heads"),
        "feed_forward_width": members.size_of_both("ffn_dim"),
        "encoder_layers": members.size("encoder_layers"),
        "decoder_layers": members.size("decoder_layers"),
        "dropout": float(members.read("dropout", float)),
        "attention_dropout": float(members.read("attention_dropout", float)),
        "feed_forward_dropout": float(members.read("activation_dropout", float)),
        "activation": _ACTIVATIONS[activation],
        "norm_position": "post",
        "positions": "halves",
        "max_positions": members.size("max_position_embeddings"),
        "tied_embeddings": _tied(members),
    }
    try:
        return TransformerConfig(**fields)
    except ValueError as error:
        raise ValueError(f"{members.path}: {error}") from error


def _tied(members: _Members) -> Literal["all", "decoder", "none"]:
    # Older files leave both out where they are true.
    shared = members.read("share_encoder_decoder_embeddings", bool, True)
    output_too = members.read("tie_word_embeddings", bool, True)
    if shared and not output_too:
        raise ValueError(
            f"{members.path}: tie_word_embeddings must be true where encoder and "
            "decoder share one table, got false; use another model."
        )
    if shared:
        return "all"
    return "decoder" if output_too else "none"
