"""Marian translation models that Hugging Face's transformers saved."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import traverse_util

from attnjax.config import TransformerConfig
from attnjax.decoding.hypotheses import SpecialTokens
from attnjax.interop.marian_config import read_marian_config
from attnjax.interop.safetensors import read_safetensors
from attnjax.models.transformer import Transformer
from attnjax.ops.positions import sinusoids
from attnjax.storage.checkpoint_tree import differences
from attnjax.types import Tokens, Variables

# Ours on the left, the names in the file on the right; fused maps in our order.
_TABLES = {
    "all": {"target_embedding": "model.shared"},
    "decoder": {
        "source_embedding": "model.encoder.embed_tokens",
        "target_embedding": "model.decoder.embed_tokens",
    },
    "none": {
        "source_embedding": "model.encoder.embed_tokens",
        "target_embedding": "model.decoder.embed_tokens",
        "output_embedding": "lm_head",
    },
}
_SELF = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
_SUBLAYERS: Mapping[str, tuple[str, ...]] = {
    "attention/query_key_value": _SELF,
    "attention/output": ("self_attn.out_proj",),
    "attention_residual/norm": ("self_attn_layer_norm",),
    "self_attention/query_key_value": _SELF,
    "self_attention/output": ("self_attn.out_proj",),
    "self_residual/norm": ("self_attn_layer_norm",),
    "cross_attention/query": ("encoder_attn.q_proj",),
    "cross_attention/key_value": ("encoder_attn.k_proj", "encoder_attn.v_proj"),
    "cross_attention/output": ("encoder_attn.out_proj",),
    "cross_residual/norm": ("encoder_attn_layer_norm",),
    "feed_forward/hidden": ("fc1",),
    "feed_forward/output": ("fc2",),
    "feed_forward_residual/norm": ("final_layer_norm",),
}
_LEAVES = {"kernel": "weight", "scale": "weight", "bias": "bias"}
# What a file may hold twice: a copy, and what it must equal.
_COPIES: Mapping[str, Mapping[str, str]] = {
    "all": {
        "lm_head.weight": "model.shared.weight",
        "model.encoder.embed_tokens.weight": "model.shared.weight",
        "model.decoder.embed_tokens.weight": "model.shared.weight",
    },
    "decoder": {"lm_head.weight": "model.decoder.embed_tokens.weight"},
    "none": {},
}
_SINUSOIDS = (
    "model.encoder.embed_positions.weight",
    "model.decoder.embed_positions.weight",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class MarianModel:
    """A Marian model as ours: an `attnjax.types.Seq2Seq` and what a search needs.

    Attributes:
        config: sizes and variants of the model, dropout rates included.
        model: the linen module.
        variables: its float32 parameters, on the host.
        special: ids of the vocabulary. The decoder starts with ``special.bos_id``,
            which in most Marian models is ``<pad>``.
    """

    config: TransformerConfig
    model: Transformer
    variables: Variables
    special: SpecialTokens


def load_marian(folder: Path) -> MarianModel:
    """Reads a Marian checkpoint that transformers saved: its config and its weights.

    The weights must be ``model.safetensors``; a pickle can run code and is never read.
    Half precision becomes float32. Copies of a tied table and stored sinusoids are
    accepted where they equal what our model uses in their place.

    Args:
        folder: with ``config.json`` and ``model.safetensors``.

    Returns:
        The model, whose logits are those of transformers' ``MarianMTModel``.

    Raises:
        ValueError: if a file is missing or damaged, the config asks for what our
            Transformer does not compute, or the weights do not fit the config: then one
            message lists every array that is missing, unknown or of another shape.

    Source: Junczys-Dowmunt et al. 2018, "Marian: Fast neural machine translation in
    C++", in the layout of transformers' ``MarianMTModel``.
    """
    read = read_marian_config(folder / "config.json")
    model = Transformer(
        read.model, read.source_size, read.target_size, has_logits_bias=True
    )
    return MarianModel(
        config=read.model,
        model=model,
        variables={"params": _parameters(folder / "model.safetensors", model)},
        special=read.special,
    )


def _parameters(path: Path, model: Transformer) -> Mapping[str, Any]:
    """Our parameter tree, filled from the file."""
    if not path.is_file():
        raise ValueError(
            f"{path} does not exist; weights are read from this one file and never "
            "from a pickle, which can run code: save it again with transformers' "
            "save_pretrained."
        )
    tied = model.config.tied_embeddings
    leaves = _leaves(model)
    names = {ours: _names(ours, tied) for ours in leaves}
    expected = {
        name: jax.ShapeDtypeStruct(_stored_shape(ours[-1], shape), jnp.float32)
        for ours, shape in leaves.items()
        for name in names[ours]
    }
    stored = _without_copies(_widened(read_safetensors(path)), tied)
    if lines := differences(stored, expected):
        raise ValueError(
            f"{path} does not fit the config.json beside it (stored -> expected):\n  "
            + "\n  ".join(lines)
            + "\ntake both files from the same model."
        )
    return traverse_util.unflatten_dict(
        {
            ours: _ours(ours[-1], [stored[name] for name in names[ours]])
            for ours in names
        }
    )


def _leaves(model: Transformer) -> Mapping[tuple[str, ...], tuple[int, ...]]:
    """The path and shape of each of our parameters."""
    example = Tokens(np.zeros((1, 2), np.int32), np.ones((1, 2), bool))
    initialise = functools.partial(model.init, train=False)
    shapes = jax.eval_shape(initialise, jax.random.key(0), example, example)
    leaves = traverse_util.flatten_dict(shapes["params"])
    return {ours: leaf.shape for ours, leaf in leaves.items()}


def _names(ours: Sequence[str], tied: str) -> tuple[str, ...]:
    """The arrays of the file that one of our parameters is made of."""
    if ours[-1] == "logits_bias":
        return ("final_logits_bias",)
    if ours[-1] == "table":
        return (f"{_TABLES[tied][ours[0]]}.weight",)
    stack, layer, *sublayer, leaf = ours
    prefix = f"model.{stack}.layers.{layer.removeprefix('layer_')}"
    parts = _SUBLAYERS["/".join(sublayer)]
    return tuple(f"{prefix}.{part}.{_LEAVES[leaf]}" for part in parts)


def _stored_shape(leaf: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """PyTorch's shape of each array that a parameter of this shape is made of."""
    match leaf:
        case "kernel":
            return (shape[-1], shape[0])
        case "bias" | "scale":
            return shape[-1:]
        case "logits_bias":
            return (1, *shape)
        case _:
            return shape


def _ours(leaf: str, arrays: Sequence[np.ndarray]) -> np.ndarray:
    if leaf == "logits_bias":
        return arrays[0][0]
    if leaf == "kernel":
        arrays = [array.T for array in arrays]
    # Fused maps lie side by side on the axis before the last.
    return arrays[0] if len(arrays) == 1 else np.stack(arrays, axis=-2)


def _widened(arrays: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
    """Floats of half precision become float32; all others stay what they are."""
    return {
        name: array.astype(np.float32)
        if jnp.issubdtype(array.dtype, jnp.floating) and array.dtype.itemsize < 4
        else array
        for name, array in arrays.items()
    }


def _without_copies(
    arrays: Mapping[str, np.ndarray], tied: str
) -> Mapping[str, np.ndarray]:
    """Leaves out what only repeats a tied table or the sinusoids."""
    repeated = {
        copy
        for copy, original in _COPIES[tied].items()
        if copy in arrays
        and original in arrays
        and np.array_equal(arrays[copy], arrays[original])
    }
    repeated |= {name for name in _SINUSOIDS if _is_sinusoids(arrays.get(name))}
    return {name: array for name, array in arrays.items() if name not in repeated}


def _is_sinusoids(table: np.ndarray | None) -> bool:
    if table is None or table.ndim != 2 or table.shape[1] % 2:
        return False
    ours = sinusoids(np.arange(table.shape[0]), table.shape[1], "halves")
    return np.allclose(table, ours, atol=1e-2)  # the error of half precision
