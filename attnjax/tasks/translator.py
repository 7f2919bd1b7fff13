"""Lines of text in, translations out: the model behind plain functions."""

from __future__ import annotations

import collections
import dataclasses
import functools
import logging
import re
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np
from flax import linen as nn

from attnjax.config import DecodingConfig
from attnjax.data.batching import evaluation_batches, pair_batches
from attnjax.data.beginnings import BeginningSpeller
from attnjax.data.parallel import is_blank
from attnjax.data.tokenizers import TokenizerPair
from attnjax.decoding.constraints import Spelling
from attnjax.decoding.hypotheses import Hypotheses, SpecialTokens
from attnjax.evaluation.minimum_risk import expected_utilities
from attnjax.tasks.compiled import compiled
from attnjax.tasks.forcing import (
    forced_attention,
    forced_attention_everywhere,
    forced_scores,
    require_short,
)
from attnjax.tasks.outputs import (
    ForcedScore,
    Hypothesis,
    Progress,
    Side,
    TokenAttention,
    Translations,
    no_progress,
)
from attnjax.tasks.searching import SearchInputs, search_batch, seeds_of
from attnjax.training.sharding import Layout
from attnjax.types import Variables

logger = logging.getLogger(__name__)

_SHOWN_CHARACTERS = 30  # of a line in a message
# Of the parts of `forced_attention_everywhere`: who looks, and at what.
_SIDES: dict[str, tuple[Side, Side]] = {
    "encoder": ("source", "source"),
    "decoder": ("target", "target"),
    "cross": ("target", "source"),
}


class Translator:
    """Translates lines with any `attnjax.types.Seq2Seq` model.

    Lines are sorted by length into a fixed set of batch shapes, each compiled once; the
    results depend on neither the batch nor the order.

    Attributes:
        model: the module that implements `Seq2Seq`.
        tokenizers: of the source and the target.
        config: method, penalties and limits.
        max_source_tokens: longer sources are cut: of the config, or all that the model
            can take.
        target_language: chooses the tokens that minimum Bayes risk compares.
        layout: where the variables live.
        rows_multiple: rows of a batch are a multiple of this.
    """

    def __init__(
        self,
        model: nn.Module,
        tokenizers: TokenizerPair,
        config: DecodingConfig,
        target_language: str = "",
        layout: Layout | None = None,
    ) -> None:
        """Prepares the compiled functions.

        Args:
            model: the module that implements `Seq2Seq`.
            tokenizers: of the source and the target.
            config: method, penalties and limits.
            target_language: chooses the tokens that minimum Bayes risk compares.
            layout: where the variables live; the rows of each batch are split as it
                says. None computes where the variables are.
        """
        self.model = model
        self.tokenizers = tokenizers
        self.config = config
        self.max_source_tokens = min(config.max_source_tokens, model.longest.source)
        self.target_language = target_language
        target = tokenizers.target
        special = SpecialTokens(target.pad_id, target.bos_id, target.eos_id)
        self.layout = layout
        self.rows_multiple = 1 if layout is None else layout.num_row_shards
        self._search = compiled(
            *(search_batch, model, special, config),
            layout=layout,
            flags=("with_attention",),
        )
        self._score = compiled(forced_scores, model, config, layout=layout)
        self._attend = compiled(forced_attention, model, layout=layout)
        self._attend_everywhere = compiled(
            forced_attention_everywhere, model, layout=layout
        )

    def translate(
        self,
        variables: Variables,
        lines: Sequence[str],
        *,
        prefixes: Sequence[str] | None = None,
        with_attention: bool = False,
        progress: Progress = no_progress,
    ) -> Translations:
        """Translates every line.

        A line longer than ``config.max_source_tokens`` is cut there, and counted; the
        translation of a blank one is empty.

        Args:
            variables: of the model.
            lines: source sentences.
            prefixes: what each translation begins with to the letter, as many as
                lines, also within a word; None forces nothing.
            with_attention: whether hypotheses carry their attention.
            progress: called with the number of lines of each batch that is done.

        Returns:
            As many translations as lines, in their order.

        Raises:
            ValueError: if lines and prefixes are not equally many.
        """
        start = time.perf_counter()
        sources, num_cut = self._encode(lines)
        _require_as_many(prefixes, lines)
        filled = [number for number, source in enumerate(sources) if source]
        n_best: list[list[Hypothesis]] = [[Hypothesis()] for _ in lines]
        progress(len(lines) - len(filled))
        batches = evaluation_batches(
            [sources[number] for number in filled],
            self.tokenizers.source,
            tokens_per_batch=self.config.tokens_per_batch,
            rows_multiple=self.rows_multiple,
            longest=self.model.longest,
        )
        for indices, source in batches:
            numbers = [filled[index] for index in indices]
            inputs = SearchInputs(
                source,
                seeds_of([sources[number] for number in numbers], len(source.ids)),
            )
            if prefixes is not None:
                forced = [prefixes[number] for number in numbers]
                inputs = self._begun(inputs, forced)
            found: Hypotheses = self._search(
                variables, inputs, with_attention=with_attention
            )
            for row, number in enumerate(numbers):
                one = jax.tree.map(lambda leaf, row=row: leaf[row], found)
                n_best[number] = self._hypotheses(one, len(sources[number]) + 1)
            progress(len(numbers))
        return Translations(
            n_best=n_best, num_cut=num_cut, seconds=time.perf_counter() - start
        )

    def score(
        self,
        variables: Variables,
        lines: Sequence[str],
        translations: Sequence[Sequence[int]],
        *,
        progress: Progress = no_progress,
    ) -> list[ForcedScore]:
        """What the model thinks of given translations, by forced decoding.

        Args:
            variables: of the model.
            lines: source sentences.
            translations: token ids as in `Hypothesis.ids`; `encode_targets` makes them
                of text.
            progress: called with the number of lines of each batch that is done.

        Returns:
            One judgement per line, of exactly the tokens given.
        """
        scores: list[ForcedScore | None] = [None] * len(lines)

        def collect(number: int, row: dict[str, np.ndarray]) -> None:
            tokens = row["tokens"][: len(translations[number])]
            scores[number] = ForcedScore(
                token_log_probabilities=tokens, score=float(row["score"])
            )

        for done in self._force(self._score, variables, lines, translations, collect):
            progress(done)
        return [score for score in scores if score is not None]

    def attention(
        self,
        variables: Variables,
        lines: Sequence[str],
        translations: Sequence[Sequence[int]],
        *,
        progress: Progress = no_progress,
    ) -> list[dict[str, np.ndarray]]:
        """Attention weights of given translations, by forced decoding.

        Args:
            variables: of the model.
            lines: source sentences.
            translations: token ids as in `Hypothesis.ids`.
            progress: called with the number of lines of each batch that is done.

        Returns:
            Per line, the weights by name, ``[H, T, S]`` over the line's own tokens
            (``</s>`` included); empty if the model does not attend.
        """
        found = self._attention(self._attend, variables, lines, translations, progress)
        return [{name: one.weights for name, one in named.items()} for named in found]

    def attention_everywhere(
        self,
        variables: Variables,
        lines: Sequence[str],
        translations: Sequence[Sequence[int]],
    ) -> list[dict[str, TokenAttention]]:
        """As `attention`, with that among the tokens of each side too.

        Args:
            variables: of the model.
            lines: source sentences.
            translations: token ids as in `Hypothesis.ids`.

        Returns:
            Per line, the attention by name: the encoder's, the decoder's over what it
            wrote, and last that over the source. Layers that never form weights are
            left out.
        """
        return self._attention(
            self._attend_everywhere, variables, lines, translations, no_progress
        )

    def encode_targets(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of translations given as text, each ending in ``</s>``."""
        target = self.tokenizers.target
        return [[*ids, target.eos_id] for ids in target.encode_many(texts)]

    def _attention(
        self,
        function: Callable,
        variables: Variables,
        lines: Sequence[str],
        translations: Sequence[Sequence[int]],
        progress: Progress,
    ) -> list[dict[str, TokenAttention]]:
        """Per line, the weights over its own tokens."""
        sources, _ = self._encode(lines)
        attention: list[dict[str, TokenAttention]] = [{} for _ in lines]

        def collect(number: int, row: dict[str, dict[str, np.ndarray]]) -> None:
            words = self._without_end(translations[number])
            sizes = {"source": len(sources[number]) + 1, "target": len(words) + 1}
            for part, (queries, keys) in _SIDES.items():
                named = row.get(part, {})
                for name in sorted(named, key=_place):  # compiled code sorts by letters
                    own = named[name][:, : sizes[queries], : sizes[keys]].copy()
                    attention[number][name] = TokenAttention(own, queries, keys)

        for done in self._force(function, variables, lines, translations, collect):
            progress(done)
        return attention

    def _force(
        self,
        function: Callable,
        variables: Variables,
        lines: Sequence[str],
        translations: Sequence[Sequence[int]],
        collect: Callable[[int, Any], None],
    ) -> Iterator[int]:
        """Calls a compiled function on all pairs; says how many of them are done."""
        sources, _ = self._encode(lines)
        targets = [self._without_end(ids) for ids in translations]
        require_short(targets, self.model.longest)
        for indices, batch in pair_batches(
            list(zip(sources, targets, strict=True)),
            self.tokenizers,
            tokens_per_batch=self.config.tokens_per_batch,
            rows_multiple=self.rows_multiple,
            longest=self.model.longest,
        ):
            num_tokens = np.zeros(len(batch.labels), np.int32)
            num_tokens[: len(indices)] = [len(translations[i]) for i in indices]
            result = function(variables, batch, num_tokens)
            for row, number in enumerate(indices):
                one = jax.tree.map(lambda leaf, row=row: leaf[row], result)
                collect(int(number), one)
            yield len(indices)

    def _hypotheses(self, found: Hypotheses, source_tokens: int) -> list[Hypothesis]:
        """The hypotheses of one line, absent ones left out."""
        ids = [
            tokens[:length].tolist()
            for tokens, length in zip(found.tokens, found.lengths, strict=True)
        ]
        hypotheses = [
            Hypothesis(
                text=self.tokenizers.target.decode(tokens),
                ids=tokens,
                log_probability=float(found.log_probabilities[place]),
                score=float(found.scores[place]),
                finished=bool(found.finished[place]),
                attention=None
                if found.trace is None
                else found.trace[place, : len(tokens), :source_tokens],
            )
            for place, tokens in enumerate(ids)
            if tokens
        ]
        if self.config.method == "mbr":
            hypotheses = self._least_risk(hypotheses)
        return hypotheses or [Hypothesis(finished=False)]

    def _least_risk(self, samples: Sequence[Hypothesis]) -> list[Hypothesis]:
        """The texts most like all samples, best first, scored by that likeness."""
        drawn = {sample.text: sample for sample in reversed(samples)}
        counts = collections.Counter(sample.text for sample in samples)
        if not drawn:
            return []
        likeness = expected_utilities(
            list(drawn),
            [counts[text] for text in drawn],
            utility=self.config.risk_utility,
            target_language=self.target_language,
        )
        scored = [
            dataclasses.replace(sample, score=float(score))
            for sample, score in zip(drawn.values(), likeness, strict=True)
        ]
        scored.sort(key=lambda sample: -sample.score)
        return scored[: self.config.n_best]

    def _without_end(self, ids: Sequence[int]) -> list[int]:
        return [token for token in ids if token != self.tokenizers.target.eos_id]

    def _encode(self, lines: Sequence[str]) -> tuple[list[list[int]], int]:
        limit = self.max_source_tokens - 1  # one is </s>
        said = ["" if is_blank(line) else line for line in lines]
        sources = self.tokenizers.source.encode_many(said)
        too_long = [
            line
            for line, source in zip(lines, sources, strict=True)
            if len(source) > limit
        ]
        if too_long:
            logger.warning(
                "%d of %d lines are longer than %d tokens and were cut there, the "
                "first is %r...; %s to read them whole.",
                len(too_long),
                len(sources),
                limit,
                too_long[0][:_SHOWN_CHARACTERS],
                "raise decoding.max_source_tokens"
                if self.max_source_tokens < self.model.longest.source
                else f"train with a larger {self.model.longest.setting}",
            )
        return [source[:limit] for source in sources], len(too_long)

    def _begun(self, inputs: SearchInputs, texts: Sequence[str]) -> SearchInputs:
        """Inputs whose outputs begin with given texts."""
        beginnings = self._speller.lay_out(texts, len(inputs.seeds))
        if beginnings is None:
            return inputs
        ids, *spelling = beginnings
        return inputs._replace(prefix=ids, spelling=Spelling(*spelling))

    @functools.cached_property
    def _speller(self) -> BeginningSpeller:
        return BeginningSpeller(self.tokenizers.target)


def _require_as_many(prefixes: Sequence[str] | None, lines: Sequence[str]) -> None:
    if prefixes is not None and len(prefixes) != len(lines):
        raise ValueError(
            f"each line needs one prefix (an empty one forces nothing), got "
            f"{len(prefixes)} prefixes for {len(lines)} lines."
        )


def _place(name: str) -> list[tuple[int, str]]:
    """Sorts names of layers by their numbers: 10 after 2."""
    parts = re.split(r"(\d+)", name)
    return [(int(part) if part.isdecimal() else 0, part) for part in parts]
