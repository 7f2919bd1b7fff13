r"""Alignment error rates of trained models, beside an aligner trained for nothing else.

    python -m attnjax.benchmarks.alignment --forward runs/grc_en \
        --backward runs/en_grc --data corpus --languages grc en

``corpus/{train,valid,test}.{grc,en}`` are the texts and ``.align`` the known links
(Pharaoh format). Layer, head and shift are chosen on the validation set. A run on CLDR
phrases needs no files: ``--cldr runs/quickstart_rnn``.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path

import tyro

from attnjax.data.parallel import split_words
from attnjax.data.text_files import read_lines
from attnjax.evaluation.alignment import GoldAlignment, alignment_scores
from attnjax.evaluation.attention_readings import (
    AttendedPair,
    read_alignment,
)
from attnjax.evaluation.ibm_aligner import train_ibm_aligner
from attnjax.evaluation.symmetrization import (
    SymmetrizationMethod,
    swap_sides,
    symmetrize,
)
from attnjax.runs.alignment import (
    KnownPairs,
    attended_pairs,
    choose_reading,
    known_pairs,
    validation_pairs,
)
from attnjax.runs.opening import TrainedRun, open_run
from attnjax.terminal import run_command
from attnjax.types import Alignment

_METHODS: tuple[SymmetrizationMethod, ...] = (
    "intersection",
    "union",
    "grow-diag-final-and",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Arguments:
    """What to align."""

    forward: tuple[Path, ...] = ()  # run folders that translate the first language
    backward: tuple[Path, ...] = ()  # as many runs of the opposite direction
    data: Path = Path("corpus")  # folder of the corpus
    languages: tuple[str, str] = ("grc", "en")  # suffixes of its files
    cldr: tuple[Path, ...] = ()  # run folders on CLDR phrases


def main() -> None:
    """Prints the tables."""
    arguments = tyro.cli(Arguments, description=__doc__)
    if arguments.forward:
        print("| model | reading | AER | precision | recall |")
        print("| --- | --- | ---: | ---: | ---: |")
        valid, test = (_known(arguments, split) for split in ("valid", "test"))
        for runs in zip(arguments.forward, arguments.backward, strict=True):
            _print_both_ways(runs, valid, test)
        _print_baseline(arguments, test)
    for workdir in arguments.cldr:
        _print_cldr(open_run(workdir))


def reversed_pairs(known: KnownPairs) -> KnownPairs:
    """The same pairs for the opposite direction.

    Args:
        known: pairs with their links.

    Returns:
        Targets as sources, and the links turned round.
    """
    gold = [
        GoldAlignment(swap_sides(each.sure), swap_sides(each.possible))
        for each in known.gold
    ]
    return known._replace(sources=known.targets, targets=known.sources, gold=gold)


def items_of(pair: AttendedPair, links: Alignment) -> AttendedPair:
    """A pair whose "words" are the items that are known to translate each other.

    Args:
        pair: attention with the words of its tokens.
        links: of all words of each item with all of its translation.

    Returns:
        The pair with the number of the item of each token, -1 outside of items; item i
        of the source is item i of the target.
    """
    sources: dict[int, int] = {}
    targets: dict[int, int] = {}
    for source, target in sorted(links):
        known = sources.get(source, targets.get(target))
        item = len(set(sources.values())) if known is None else known
        sources[source] = targets[target] = item
    return pair._replace(
        source_words=[sources.get(word, -1) for word in pair.source_words],
        target_words=[targets.get(word, -1) for word in pair.target_words],
    )


def _known(arguments: Arguments, split: str) -> KnownPairs:
    suffixes = (*arguments.languages, "align")
    source, target, links = (
        arguments.data / f"{split}.{suffix}" for suffix in suffixes
    )
    return known_pairs(
        source, target, links, languages=arguments.languages, words="spaces"
    )


def _print_both_ways(
    workdirs: tuple[Path, Path], valid: KnownPairs, test: KnownPairs
) -> None:
    links = []
    for workdir, is_backward in zip(workdirs, (False, True), strict=True):
        turn = reversed_pairs if is_backward else KnownPairs._make
        links.append(_print_direction(open_run(workdir), turn(valid), turn(test)))
    forward, backward = links[0], [swap_sides(each) for each in links[1]]
    _print_joined(f"{workdirs[0].name}, {workdirs[1].name}", forward, backward, test)


def _print_direction(
    run: TrainedRun, valid: KnownPairs, test: KnownPairs
) -> list[Alignment]:
    """Prints the chosen reading and the same shifted the other way; its links."""
    reading, _ = choose_reading(run, valid)
    ids = run.translator.encode_targets(test.targets)
    pairs = attended_pairs(run, test.sources, ids, test.words)
    name = run.folder.path.name
    other = dataclasses.replace(reading, shifted=not reading.shifted)
    for each in (other, reading):
        links = [read_alignment(pair, each) for pair in pairs]
        _print_row(name, each.describe(), links, test.gold)
    return links


def _print_joined(
    name: str,
    forward: Sequence[Alignment],
    backward: Sequence[Alignment],
    test: KnownPairs,
) -> None:
    pairs = list(zip(forward, backward, strict=True))
    for method in _METHODS:
        joined = [symmetrize(*both, method) for both in pairs]
        _print_row(name, method, joined, test.gold)


def _print_baseline(arguments: Arguments, test: KnownPairs) -> None:
    """IBM model 1 with a diagonal prior, trained on the texts of all three sets."""
    sources, targets = (
        [
            split_words(line.lower())
            for split in ("train", "valid", "test")
            for line in read_lines(arguments.data / f"{split}.{language}")
        ]
        for language in arguments.languages
    )
    name, count = "IBM 1 with diagonal prior", len(test.sources)
    there = train_ibm_aligner(sources, targets)
    back = train_ibm_aligner(targets, sources)
    pairs = list(zip(sources[-count:], targets[-count:], strict=True))
    forward = [there.align(source, target) for source, target in pairs]
    backward = [swap_sides(back.align(target, source)) for source, target in pairs]
    _print_row(name, "forward", forward, test.gold)
    _print_row(name, "backward", backward, test.gold)
    _print_joined(name, forward, backward, test)


def _print_row(
    name: str, reading: str, links: Sequence[Alignment], gold: Sequence[GoldAlignment]
) -> None:
    scores = alignment_scores(links, gold)
    figures = scores.aer, scores.precision, scores.recall
    print(f"| {name} | {reading} | {' | '.join(f'{f:.3f}' for f in figures)} |")


def _print_cldr(run: TrainedRun) -> None:
    reading, _ = choose_reading(run)
    test = validation_pairs(run, "test")
    items = run.corpus("test").alignment or ()
    pairs = attended_pairs(
        run, test.sources, run.translator.encode_targets(test.targets)
    )
    print(f"{run.folder.path.name}, CLDR test set, {reading.describe()}")
    words = [read_alignment(pair, reading) for pair in pairs]
    print("words:", alignment_scores(words, test.gold))
    merged = [items_of(*each) for each in zip(pairs, items, strict=True)]
    counts = [max(pair.target_words, default=-1) + 1 for pair in merged]
    gold = [
        GoldAlignment.all_sure(frozenset((item, item) for item in range(count)))
        for count in counts
    ]
    found = [read_alignment(pair, reading) for pair in merged]
    for most in (5, 20, None):
        chosen = [
            number
            for number, source in enumerate(test.sources)
            if most is None or len(source.split()) <= most
        ]
        scores = alignment_scores(
            [found[number] for number in chosen], [gold[number] for number in chosen]
        )
        label = "all lines" if most is None else f"lines of up to {most} words"
        print(f"items, {label} ({len(chosen)}): {scores}")


if __name__ == "__main__":
    sys.exit(run_command(main))
