"""All families of models, a line each; what experiments and tests read.

To add one: a file in this package that implements `attnjax.types.Seq2Seq`, its config
in `attnjax.config.model` (a `ModelConfig`, joined to ``AnyModelConfig``), and a line
here. The laws of ``tests/models/test_laws.py`` then cover it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from flax import linen as nn

from attnjax.config import ModelConfig, RNNConfig, TransformerConfig
from attnjax.models.rnn import RNNSeq2Seq
from attnjax.models.transformer import Transformer

MODELS: Mapping[type[ModelConfig], Callable[..., nn.Module]] = {
    TransformerConfig: Transformer,
    RNNConfig: RNNSeq2Seq,
}


def make_model(
    config: ModelConfig, source_size: int, target_size: int, *, dtype: Any
) -> nn.Module:
    """The model that a config describes.

    Args:
        config: of a family in `MODELS`.
        source_size: number of source tokens.
        target_size: number of target tokens.
        dtype: of the computation.

    Returns:
        A linen module that implements `attnjax.types.Seq2Seq`.

    Raises:
        ValueError: if no model belongs to the config.
    """
    family = MODELS.get(type(config))
    if family is None:
        raise ValueError(
            f"no model belongs to a {type(config).__name__}; the configs of models are "
            f"{', '.join(known.__name__ for known in MODELS)}. A new one needs a line "
            "in attnjax.models.registry.MODELS."
        )
    return family(config, source_size, target_size, dtype=dtype)
