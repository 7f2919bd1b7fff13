"""Lines of text in, translations out: the model behind a plain function."""

from __future__ import annotations

import dataclasses
import functools
import logging
import time
from collections.abc import Sequence
from typing import cast

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from attnjax.config import DecodingConfig
from attnjax.data.batching import evaluation_batches, forced_batch
from attnjax.data.tokenizers import TokenizerPair
from attnjax.decoding.beam import BeamSettings, beam_search, repeat_for_beams
from attnjax.decoding.hypotheses import Hypotheses, SpecialTokens
from attnjax.types import Array, Decoded, PairBatch, PyTree, Tokens, Variables

logger = logging.getLogger(__name__)

_ROWS_MULTIPLE = 8


@dataclasses.dataclass(frozen=True, kw_only=True)
class Translations:
    """Translated lines, in the order of the input.

    Attributes:
        texts: one detokenised translation per line; empty lines stay empty.
        ids: token ids of each translation, ``</s>`` included when it was generated.
        scores: what ranked each translation (0 for empty lines).
        num_tokens: generated tokens, ``</s>`` included.
        num_unfinished: translations that reached their length limit.
        num_cut: source lines that were longer than allowed and were cut.
        seconds: wall time.
    """

    texts: list[str]
    ids: list[list[int]]
    scores: list[float]
    num_tokens: int
    num_unfinished: int
    num_cut: int
    seconds: float


class Translator:
    """Translates lines with any `attnjax.types.Seq2Seq` model.

    Lines are sorted by length into a fixed set of batch shapes, each compiled once.
    """

    def __init__(
        self, model: nn.Module, tokenizers: TokenizerPair, config: DecodingConfig
    ) -> None:
        """Prepares the compiled search.

        Args:
            model: the module that implements `Seq2Seq`.
            tokenizers: of the source and the target.
            config: beam, penalty and limits.
        """
        self.model = model
        self.tokenizers = tokenizers
        self.config = config
        self._search = jax.jit(
            functools.partial(_search, model, tokenizers, config),
            static_argnames="max_tokens",
        )
        self._forced = jax.jit(functools.partial(_forced_attention, model))

    def translate(self, variables: Variables, lines: Sequence[str]) -> Translations:
        """Translates every line.

        A line longer than ``config.max_source_tokens`` is cut there, and counted.

        Args:
            variables: of the model.
            lines: source sentences.

        Returns:
            As many translations as lines, in their order.
        """
        start = time.perf_counter()
        sources, num_cut = self._encode(lines)
        filled = [number for number, source in enumerate(sources) if source]
        ids: list[list[int]] = [[] for _ in lines]
        scores = [0.0] * len(lines)
        num_unfinished = 0
        batches = evaluation_batches(
            [sources[number] for number in filled],
            tokens_per_batch=self.config.tokens_per_batch,
            rows_multiple=_ROWS_MULTIPLE,
        )
        for indices, source in batches:
            max_tokens = source.ids.shape[1] + self.config.max_extra_tokens
            found: Hypotheses = jax.device_get(
                self._search(variables, source, max_tokens=max_tokens)
            )
            for row, index in enumerate(indices):
                number = filled[index]
                ids[number] = found.tokens[row, 0, : found.lengths[row, 0]].tolist()
                scores[number] = float(found.scores[row, 0])
                num_unfinished += not found.finished[row, 0]
        return Translations(
            texts=[self.tokenizers.target.decode(line_ids) for line_ids in ids],
            ids=ids,
            scores=scores,
            num_tokens=sum(map(len, ids)),
            num_unfinished=num_unfinished,
            num_cut=num_cut,
            seconds=time.perf_counter() - start,
        )

    def attention(
        self, variables: Variables, lines: Sequence[str], ids: Sequence[Sequence[int]]
    ) -> list[dict[str, np.ndarray]]:
        """Attention weights of given translations, by forced decoding.

        Args:
            variables: of the model.
            lines: source sentences.
            ids: the token ids of their translations, as in `Translations.ids`.

        Returns:
            Per line, the weights by name, ``[H, T, S]`` over the line's own tokens
            (``</s>`` included); empty if the model does not attend.
        """
        sources, _ = self._encode(lines)
        eos_id = self.tokenizers.target.eos_id
        targets = [[token for token in line if token != eos_id] for line in ids]
        batch = forced_batch(list(zip(sources, targets, strict=True)))
        weights = jax.device_get(self._forced(variables, batch))
        return [
            {
                name: array[row, :, : len(target) + 1, : len(source) + 1]
                for name, array in weights.items()
            }
            for row, (source, target) in enumerate(zip(sources, targets, strict=True))
        ]

    def _encode(self, lines: Sequence[str]) -> tuple[list[list[int]], int]:
        limit = self.config.max_source_tokens - 1  # one is </s>
        sources = self.tokenizers.source.encode_many(lines)
        too_long = [
            number for number, source in enumerate(sources, 1) if len(source) > limit
        ]
        if too_long:
            logger.warning(
                "%d of %d lines are longer than %d tokens and were cut there, first "
                "line %d; raise decoding.max_source_tokens to translate them whole.",
                *(len(too_long), len(sources), limit, too_long[0]),
            )
        return [source[:limit] for source in sources], len(too_long)


def _search(
    model: nn.Module,
    tokenizers: TokenizerPair,
    config: DecodingConfig,
    variables: Variables,
    source: Tokens,
    *,
    max_tokens: int,
) -> Hypotheses:
    """Encodes a batch and searches for its best translations."""
    encoded = model.apply(variables, source, train=False, method="encode")
    constants, state = model.apply(variables, encoded, max_tokens, method="begin")
    constants = repeat_for_beams(constants, config.beam_size)

    def step(state: PyTree, tokens: Array) -> tuple[Array, PyTree]:
        return model.apply(variables, constants, state, tokens, method="step")

    # A filler row is a lone </s>: of limit 0, it keeps no other row waiting.
    num_tokens = jnp.sum(source.valid, axis=-1)
    limits = jnp.where(num_tokens > 1, num_tokens + config.max_extra_tokens, 0)
    target = tokenizers.target
    return beam_search(
        step,
        state,
        limits,
        special=SpecialTokens(target.pad_id, target.bos_id, target.eos_id),
        max_tokens=max_tokens,
        settings=BeamSettings(
            beam_size=config.beam_size, length_penalty=config.length_penalty
        ),
    )


def _forced_attention(
    model: nn.Module, variables: Variables, batch: PairBatch
) -> dict[str, Array]:
    """Cross-attention weights of a teacher-forced batch, by name."""
    decoded = cast(
        Decoded, model.apply(variables, batch.source, batch.inputs, train=False)
    )
    return {
        name: weights
        for name, weights in decoded.attention.items()
        if name.endswith("cross")
    }
