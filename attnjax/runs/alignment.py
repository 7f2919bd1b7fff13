"""Word alignment from a trained model's attention, by forced decoding."""

from __future__ import annotations

import functools
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from attnjax.data.lines import read_lines
from attnjax.data.parallel import split_words
from attnjax.data.word_pieces import Cutter, word_of_pieces
from attnjax.evaluation.alignment import (
    AlignmentScores,
    GoldAlignment,
    gold_of_items,
)
from attnjax.evaluation.alignment_files import read_pharaoh
from attnjax.evaluation.attention_readings import (
    AttendedPair,
    Reading,
    Words,
    best_reading,
    read_alignment,
    reading_weights,
)
from attnjax.evaluation.notes import warn_once
from attnjax.evaluation.symmetrization import (
    SymmetrizationMethod,
    swap_sides,
    symmetrize,
)
from attnjax.runs.kept_readings import ChosenReading, KeptReadings, reading_key
from attnjax.runs.opening import TrainedRun
from attnjax.tasks.outputs import Progress, no_progress
from attnjax.types import Alignment
from attnjax.words import cut_note, has_spaces, words_of

logger = logging.getLogger(__name__)

_MOST_VALIDATION_PAIRS = 300


class AlignedPair(NamedTuple):
    """A sentence pair with its alignment.

    Attributes:
        links: pairs of (source word, target word), from 0.
        weights: ``[target words, source words]``, what the links were read from.
    """

    links: Alignment
    weights: np.ndarray


class KnownPairs(NamedTuple):
    """Sentence pairs whose links are known.

    Attributes:
        sources: source lines.
        targets: as many target lines.
        gold: their links; empty if none are known.
        origin: where they come from, for messages.
        words: what the links count.
    """

    sources: list[str]
    targets: list[str]
    gold: list[GoldAlignment]
    origin: str
    words: Words = "language"

    @property
    def facts(self) -> tuple[object, ...]:
        """All of it, as values that print alike whenever they are equal."""
        links = [(sorted(each.sure), sorted(each.possible)) for each in self.gold]
        return self.sources, self.targets, links, self.origin, self.words


class Opposite(NamedTuple):
    """A model that translates targets into sources.

    Attributes:
        run: the opened run.
        reading: which of its attention is read.
    """

    run: TrainedRun
    reading: Reading


def attended_pairs(
    run: TrainedRun,
    sources: Sequence[str],
    translations: Sequence[Sequence[int]],
    words: Words = "language",
    *,
    progress: Progress = no_progress,
) -> list[AttendedPair]:
    """Where the model looks while it is forced to write given translations.

    Args:
        run: an opened run; its model must attend to the source.
        sources: source lines.
        translations: token ids of as many translations, ``</s>`` at the end.
        words: what a word is.
        progress: called with the number of lines of each batch that is done.

    Returns:
        Attention with the words of its tokens, one for each line.

    Raises:
        ValueError: the model forms no attention weights over its source.
    """
    translator = run.translator
    source_tokenizer, target_tokenizer = translator.tokenizers
    end = target_tokenizer.eos_id
    source_cut, target_cut = (cutter(each, words) for each in run.languages)
    attention = translator.attention(
        run.variables, sources, translations, progress=progress
    )
    pairs = []
    for source, ids, named in zip(sources, translations, attention, strict=True):
        if not named:
            raise ValueError(
                f"the model of {run.folder.path} forms no attention weights over its "
                "source, so it has no alignment; train one that does, such as "
                "configs/quickstart_rnn.py."
            )
        target_ids = [token for token in ids if token != end]
        source_ids = source_tokenizer.encode(source)
        source_words = word_of_pieces(source_tokenizer, source_ids, source_cut)
        target_words = word_of_pieces(target_tokenizer, target_ids, target_cut)
        num_targets, num_sources = next(iter(named.values())).shape[1:]
        pairs.append(
            AttendedPair(
                named,
                [*source_words, -1][:num_sources],
                [*target_words, -1][:num_targets],
            )
        )
    return pairs


def choose_reading(
    run: TrainedRun, known: KnownPairs | None = None
) -> tuple[Reading, AlignmentScores | None]:
    """The layer, head and shift whose links are nearest to known ones.

    The choice is kept in the run folder and made once, see
    `attnjax.runs.kept_readings`.

    Args:
        run: an opened run.
        known: sentence pairs with known links; None takes the validation set of the
            experiment, if its alignment is known.

    Returns:
        The reading and its scores. Without known links it is the last layer's, heads
        averaged, not shifted, and there are no scores.

    Raises:
        ValueError: the model forms no attention weights over its source.
    """
    key = reading_key(run, known and known.facts)
    kept = KeptReadings(run)
    chosen = kept.find(key)
    if chosen is None:
        chosen = _choose(run, known or validation_pairs(run))
        kept.keep(key, chosen)
    logger.info("%s", chosen.reason)
    return chosen.reading, chosen.scores


def _choose(run: TrainedRun, known: KnownPairs) -> ChosenReading:
    most = _MOST_VALIDATION_PAIRS if known.gold else 1
    sources, targets = known.sources[:most], known.targets[:most]
    target_ids = run.translator.encode_targets(targets)
    pairs = attended_pairs(run, sources, target_ids, known.words)
    if not known.gold:
        last = list(pairs[0].attention)[-1]
        reason = (
            f"no links are known for {known.origin}, so the last layer's attention is "
            "read; give --validation SOURCE TARGET LINKS to choose layer and head by "
            "them"
        )
        reading = Reading(name=last, head=None, shifted=False)
        return ChosenReading(reading, None, reason)
    reading, scores = best_reading(pairs, known.gold[:most])
    reason = (
        f"reading chosen on {len(pairs)} pairs of {known.origin}: "
        f"{reading.describe()} (AER {scores.aer:.3f})"
    )
    return ChosenReading(reading, scores, reason)


def validation_pairs(
    run: TrainedRun, split: Literal["valid", "test"] = "valid"
) -> KnownPairs:
    """A set of the experiment, with its links where it knows them.

    Args:
        run: an opened run.
        split: which set.

    Returns:
        The pairs; ``gold`` is empty where nothing is known, as with a language without
        spaces: what a corpus knows are links of what spaces part.
    """
    corpus = run.corpus(split)
    sources, targets = list(corpus.source), list(corpus.target)
    gold: list[GoldAlignment] = []
    if not all(map(has_spaces, run.languages)):
        return KnownPairs(sources, targets, gold, corpus.origin)
    for source, target, items in zip(
        sources, targets, corpus.alignment or (), strict=corpus.alignment is not None
    ):
        lengths = len(split_words(source)), len(split_words(target))
        gold.append(gold_of_items(items, *lengths))
    return KnownPairs(sources, targets, gold, corpus.origin)


def known_pairs(
    source: Path,
    target: Path,
    links: Path,
    *,
    languages: tuple[str, str],
    words: Words = "language",
    one_based: bool = False,
) -> KnownPairs:
    """Sentence pairs with links from files.

    Args:
        source: source lines.
        target: as many target lines.
        links: as many lines in Pharaoh format.
        languages: codes of source and target.
        words: what the links count.
        one_based: whether they count from 1 instead of 0.

    Returns:
        The pairs.

    Raises:
        ValueError: numbers of lines differ, or a link is malformed or leaves its
            sentence.
    """
    known = read_lines(links)
    sources, targets = read_lines(source), read_lines(target)
    if not len(sources) == len(targets) == len(known) or not known:
        raise ValueError(
            f"{source}, {target} and {links} need equally many lines, at least one; "
            f"they have {len(sources)}, {len(targets)} and {len(known)}."
        )
    lengths = count_words(sources, targets, languages, words)
    gold = read_pharaoh(known, str(links), one_based=one_based, lengths=lengths)
    return KnownPairs(sources, targets, gold, str(source), words)


def count_words(
    sources: Sequence[str],
    targets: Sequence[str],
    languages: tuple[str, str],
    words: Words = "language",
) -> list[tuple[int, int]]:
    """The numbers of words that links of sentence pairs may be of.

    Args:
        sources: source lines.
        targets: as many target lines.
        languages: codes of source and target.
        words: what a word is.

    Returns:
        Numbers of source and target words of each pair.
    """
    source_cut, target_cut = (cutter(each, words) for each in languages)
    return [
        (len(source_cut(source)), len(target_cut(target)))
        for source, target in zip(sources, targets, strict=True)
    ]


def cutter(language: str, words: Words) -> Cutter:
    """What cuts the lines of a language for alignment.

    Args:
        language: its code.
        words: what a word is.

    Returns:
        `split_words` where spaces part the words, or are to; else
        `attnjax.words.words_of`.
    """
    if words == "spaces" or has_spaces(language):
        return split_words
    return functools.partial(words_of, language=language)


def align(
    run: TrainedRun,
    sources: Sequence[str],
    translations: Sequence[Sequence[int]],
    reading: Reading,
    *,
    progress: Progress = no_progress,
) -> list[AlignedPair]:
    """Links the words of given pairs.

    Args:
        run: an opened run.
        sources: source lines.
        translations: token ids of as many translations, ``</s>`` at the end.
        reading: which attention to read, and how; see `choose_reading`.
        progress: called with the number of lines of each batch that is done.

    Returns:
        Links and weights, one for each line; none for a line without words.
    """
    aligned = []
    if reading.words == "language":
        for language in run.languages:
            warn_once(cut_note(language))
    words = reading.words
    for pair in attended_pairs(run, sources, translations, words, progress=progress):
        links = read_alignment(pair, reading)
        aligned.append(AlignedPair(links, reading_weights(pair, reading)))
    return aligned


def align_both_ways(
    forward: Sequence[Alignment],
    opposite: Opposite,
    pairs: tuple[Sequence[str], Sequence[str]],
    *,
    method: SymmetrizationMethod,
) -> list[Alignment]:
    """Joins links with those of a model of the opposite direction.

    Args:
        forward: links of each pair, as (source word, target word).
        opposite: what translates targets into sources.
        pairs: the source lines, and as many target lines.
        method: how to join them, see `attnjax.evaluation.symmetrization`.

    Returns:
        Links of each pair, as (source word, target word).
    """
    sources, targets = pairs
    run = opposite.run
    ids = run.translator.encode_targets(sources)
    backward = align(run, targets, ids, opposite.reading)
    return [
        symmetrize(links, swap_sides(reverse.links), method)
        for links, reverse in zip(forward, backward, strict=True)
    ]
