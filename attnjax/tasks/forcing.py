"""Forced decoding of a batch: the model reads given translations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import jax.numpy as jnp
from flax import linen as nn

from attnjax.config import DecodingConfig
from attnjax.decoding.ranking import coverage_penalty, length_penalty
from attnjax.training.losses import token_losses
from attnjax.types import Array, Decoded, Encoded, Longest, PairBatch, Variables


def forced_scores(
    model: nn.Module,
    config: DecodingConfig,
    variables: Variables,
    batch: PairBatch,
    num_tokens: Array,
) -> dict[str, Array]:
    """Log-probabilities of given translations; pure, to be compiled.

    Args:
        model: implements `attnjax.types.Seq2Seq`.
        config: its penalties make the score.
        variables: of the model.
        batch: sources and translations.
        num_tokens: ``[B]`` how many tokens of each translation count.

    Returns:
        ``tokens``: ``[B, T]`` log-probabilities in nats, 0 beyond ``num_tokens``;
        ``score``: ``[B]``, what a search would rank the translation by.
    """
    decoded = _forced(model, variables, batch)
    counted_bt = jnp.arange(batch.labels.shape[1])[None, :] < num_tokens[:, None]
    costs_bt = token_losses(decoded.logits, batch.labels, smoothing=0.0)
    tokens_bt = jnp.where(counted_bt, -costs_bt, 0.0)
    score_b = jnp.sum(tokens_bt, axis=-1) / length_penalty(
        num_tokens, config.length_penalty, config.length_penalty_kind
    )
    cross = cross_attention(decoded)
    if config.coverage_penalty and cross:
        weights_bts = jnp.mean(list(cross.values())[-1].astype(jnp.float32), axis=1)
        coverage_bs = jnp.sum(weights_bts * counted_bt[:, :, None], axis=1)
        score_b += coverage_penalty(
            coverage_bs, batch.source.valid, config.coverage_penalty
        )
    return {"tokens": tokens_bt, "score": score_b}


def forced_attention(
    model: nn.Module, variables: Variables, batch: PairBatch, num_tokens: Array
) -> dict[str, dict[str, Array]]:
    """Attention over the source while given translations are read.

    Args:
        model: implements `attnjax.types.Seq2Seq`.
        variables: of the model.
        batch: sources and translations.
        num_tokens: not needed; as `forced_scores` takes it.

    Returns:
        ``cross``: weights ``[B, H, T, S]`` by name, one for each layer.
    """
    del num_tokens
    return {"cross": cross_attention(_forced(model, variables, batch))}


def forced_attention_everywhere(
    model: nn.Module, variables: Variables, batch: PairBatch, num_tokens: Array
) -> dict[str, dict[str, Array]]:
    """All attention, also among tokens of one side, while given translations are read.

    Args:
        model: implements `attnjax.types.Seq2Seq`.
        variables: of the model.
        batch: sources and translations.
        num_tokens: not needed; as `forced_scores` takes it.

    Returns:
        Weights by name, layer by layer: under ``encoder`` ``[B, H, S, S]``, under
        ``decoder`` ``[B, H, T, T]``, over its inputs, under ``cross`` ``[B, H, T, S]``.
    """
    del num_tokens
    encoded = model.apply(variables, batch.source, train=False, method="encode")
    encoded = cast(Encoded, encoded)
    decoded = cast(
        Decoded,
        model.apply(variables, encoded, batch.inputs, train=False, method="decode"),
    )
    cross = cross_attention(decoded)
    among = {name: w for name, w in decoded.attention.items() if name not in cross}
    return {"encoder": dict(encoded.attention), "decoder": among, "cross": cross}


def cross_attention(decoded: Decoded) -> dict[str, Array]:
    """The weights over the source, by name, from the first layer to the last."""
    return {
        name: weights
        for name, weights in decoded.attention.items()
        if name.endswith("cross")
    }


def _forced(model: nn.Module, variables: Variables, batch: PairBatch) -> Decoded:
    return cast(
        Decoded, model.apply(variables, batch.source, batch.inputs, train=False)
    )


def require_short(targets: Sequence[Sequence[int]], longest: Longest) -> None:
    """Refuses given translations that are longer than a model can take.

    Args:
        targets: ids without special tokens.
        longest: sentences of the model.

    Raises:
        ValueError: one has more tokens than that; the longest is named.
    """
    lengths = [len(ids) + 1 for ids in targets]
    length = max(lengths, default=0)
    if length > longest.target:
        raise ValueError(
            f"translation {lengths.index(length) + 1} has {length} tokens with </s>, "
            f"and this model takes {longest.target} ({longest.setting}); shorten it, "
            f"or train a model with {longest.setting}={length} or more."
        )
