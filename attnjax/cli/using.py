"""The subcommands that use run folders: translate, score, align and so on."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from attnjax.cli.devices import prepare_devices
from attnjax.config import DecodingConfig
from attnjax.terminal import tell

_DECIMALS = 4  # of printed scores and p-values; files keep them all


def evaluate(options: argparse.Namespace) -> int:
    """Scores a set of the experiment; tables on a terminal, one JSON line elsewhere."""
    run = _open(options)
    from attnjax.runs.evaluation import Heatmaps
    from attnjax.runs.evaluation import evaluate as library
    from attnjax.runs.report_tables import evaluation_text

    heatmaps = Heatmaps(
        count=options.pictures,
        layer=options.layer,
        head=options.head,
        whole_words=bool(options.whole_words),
        format=options.format or "png",
    )
    report, files = library(run, options.split, heatmaps)
    for file in files:
        tell(f"wrote {file}")
    if options.json or not sys.stdout.isatty():
        _write_json(report)
    else:
        print(f"\n{evaluation_text(report, str(run.folder.path))}")
        print(f"page to explore in a browser: {run.folder.page}")
    return 0


def translate(options: argparse.Namespace) -> int:
    """Translates lines as they come."""
    file, prefixes = options.file, options.prefixes
    total = None if file is None else _common_length(file, prefixes)
    run = _open(options)
    from attnjax.cli.progress import line_progress
    from attnjax.cli.streams import input_blocks
    from attnjax.data.lines import in_step, line_blocks
    from attnjax.runs.translation import as_columns, as_json, translated_lines

    reading = _reading(options, run) if options.alignments else None
    n_best = run.translator.config.n_best > 1
    blocks = input_blocks(file, **_block_sizes(run))
    names = str(file or "standard input"), str(prefixes)
    done = 0
    is_typed = file is None and sys.stdin.isatty()
    with line_progress(total, is_typed=is_typed) as advance:
        for lines, beginnings in (
            ((lines, None) for lines in blocks)
            if prefixes is None
            else in_step(blocks, line_blocks(prefixes), names)
        ):
            found = translated_lines(
                run,
                lines,
                prefixes=beginnings,
                reading=reading,
                with_attention=bool(options.attention),
                progress=advance,
            )
            for number, line in enumerate(found, start=done + 1):
                if options.json:
                    _write([json.dumps(as_json(line), ensure_ascii=False)])
                else:
                    rows = as_columns(line, with_scores=options.scores)
                    _write(f"{number}\t{row}" if n_best else row for row in rows)
            sys.stdout.flush()
            done += len(lines)
    return 0


def score(options: argparse.Namespace) -> int:
    """Prints log-probabilities of given translations."""
    total = _common_length(options.source, options.target)
    run = _open(options, method="beam")  # what it ranks by is what is printed
    from attnjax.cli.progress import line_progress

    tokenizer = run.translator.tokenizers.target
    with line_progress(total) as advance:
        for sources, targets in _pairs(options, run):
            ids = run.translator.encode_targets(targets)
            found = run.translator.score(run.variables, sources, ids, progress=advance)
            for line_ids, each in zip(ids, found, strict=True):
                if not options.json:
                    total = each.log_probability
                    _write([f"{each.score:.6f}\t{total:.6f}\t{len(line_ids)}"])
                    continue
                pieces = [*tokenizer.pieces(line_ids[:-1]), "</s>"]
                tokens = zip(pieces, each.token_log_probabilities.tolist(), strict=True)
                document = {
                    "score": each.score,
                    "log_probability": each.log_probability,
                    "tokens": [list(token) for token in tokens],
                }
                _write([json.dumps(document, ensure_ascii=False)])
            sys.stdout.flush()
    return 0


def align(options: argparse.Namespace) -> int:
    """Prints links of given pairs."""
    if options.gold_format == "naacl" and not options.validation:
        _require_unset(options, "gold_base", "files in NAACL's format count from 1")
    total = _common_length(options.source, options.target)
    run = _open(options)
    from attnjax.cli.progress import line_progress
    from attnjax.cli.streams import arrays_file
    from attnjax.evaluation.alignment_files import format_pharaoh
    from attnjax.runs.alignment import align as library
    from attnjax.runs.alignment import align_both_ways, count_words

    reading = _reading(options, run)
    opposite = _opposite(options)
    joining: Any = options.symmetrize or "grow-diag-final-and"
    found: list[Any] = []
    lengths: list[tuple[int, int]] = []
    done = 0
    with line_progress(total) as advance, arrays_file(options.soft) as keep:
        for sources, targets in _pairs(options, run):
            ids = run.translator.encode_targets(targets)
            aligned = library(run, sources, ids, reading, progress=advance)
            links = [pair.links for pair in aligned]
            for number, pair in enumerate(aligned, start=done + 1):
                keep(f"line_{number}", pair.weights)
            if opposite is not None:
                pairs = sources, targets
                links = align_both_ways(links, opposite, pairs, method=joining)
            _write(format_pharaoh(each) for each in links)
            sys.stdout.flush()
            done += len(links)
            if options.gold is not None:
                found += links
                lengths += count_words(sources, targets, run.languages, reading.words)
    if options.soft is not None:
        tell(f"wrote {options.soft}")
    if options.gold is not None:
        _print_error_rate(found, _read_gold(options, lengths))
    return 0


def draw(options: argparse.Namespace) -> int:
    """Draws the attention of a sentence; its translation goes to stdout."""
    run = _open(options)
    drawn = run.draw(
        options.sentence,
        options.output,
        target=options.target,
        layer=options.layer,
        head=options.head,
        whole_words=bool(options.whole_words),
    )
    print(drawn.target)
    tell(f"wrote {options.output}")
    return 0


def compare(options: argparse.Namespace) -> int:
    """Prints scores of outputs and whether they differ by chance."""
    from attnjax.runs.comparison import compare as library
    from attnjax.runs.report_tables import comparison_text

    if not any(path.is_dir() for path in options.systems):
        _require_unset(options, "split", "only a run folder has two sets")
    report = library(
        options.systems,
        options.references,
        target_language=options.language,
        split=options.split or "test",
        resamples=options.resamples,
    )
    form: Any = options.format or "text"
    if options.json:
        _write_json(report)
    else:
        print(comparison_text(report, form))
    for note in report["notes"] if form == "csv" else ():
        tell(f"note: {note}")
    return 0


def average(options: argparse.Namespace) -> int:
    """Stores the mean of checkpoints."""
    prepare_devices()
    from attnjax.runs.averaging import average as library

    path, steps = library(
        options.workdir, last=options.last, best=options.best, name=options.name
    )
    listed = ", ".join(f"{step:,}" for step in steps)
    tell(f"wrote {path}, the mean of steps {listed}")
    return 0


def _open(
    options: argparse.Namespace, workdirs: Sequence[Path] | None = None, **search: Any
) -> Any:
    """Opens the run folders with the search settings of the command line."""
    import dataclasses

    prepare_devices()
    from attnjax.runs.opening import open_ensemble

    names = [field.name for field in dataclasses.fields(DecodingConfig)]
    given = {name: getattr(options, name, None) for name in names}
    given = {name: value for name, value in given.items() if value is not None}
    return open_ensemble(
        workdirs or options.workdir,
        checkpoints=options.checkpoint or ["best"],
        search={**search, **given},
    )


def _reading(options: argparse.Namespace, run: Any) -> Any:
    """The reading that is named, or the best on the validation set."""
    from attnjax.evaluation.attention_readings import parse_reading
    from attnjax.runs.alignment import choose_reading, known_pairs

    if options.reading is not None:
        return _as_asked(options, parse_reading(options.reading))
    known = None
    if options.validation:
        known = known_pairs(
            *options.validation,
            languages=run.languages,
            words=options.words or "language",
            one_based=options.gold_base == 1,
        )
    return _as_asked(options, choose_reading(run, known)[0])


def _as_asked(options: argparse.Namespace, reading: Any) -> Any:
    import dataclasses

    reading = dataclasses.replace(reading, words=options.words or "language")
    if options.threshold is None:
        return reading
    return dataclasses.replace(reading, method=options.threshold)


def _require_unset(options: argparse.Namespace, name: str, reason: str) -> None:
    if getattr(options, name) is not None:
        raise ValueError(
            f"nobody reads --{name.replace('_', '-')} here, for {reason}; leave it out."
        )


def _read_gold(options: argparse.Namespace, lengths: list[tuple[int, int]]) -> Any:
    from attnjax.evaluation.alignment_files import read_naacl, read_pharaoh

    lines, origin = _read(options.gold), str(options.gold)
    if options.gold_format == "naacl":
        return read_naacl(lines, origin, num_sentences=len(lengths), lengths=lengths)
    one_based = options.gold_base == 1
    return read_pharaoh(lines, origin, one_based=one_based, lengths=lengths)


def _print_error_rate(links: Sequence[Any], gold: Sequence[Any]) -> None:
    from attnjax.evaluation.alignment import alignment_scores

    scores = alignment_scores(links, gold)
    tell(
        f"alignment error rate {scores.aer:.4f}, precision {scores.precision:.4f}, "
        f"recall {scores.recall:.4f}, {scores.num_predicted:,} links"
    )


def _opposite(options: argparse.Namespace) -> Any:
    """The run of the opposite direction and its reading; None if none is named."""
    if options.reverse is None:
        return None
    from attnjax.runs.alignment import Opposite, choose_reading

    run = _open(options, [options.reverse])
    return Opposite(run, _as_asked(options, choose_reading(run)[0]))


def _common_length(file: Path, other: Path | None) -> int | None:
    """The number of lines of one or two files, where it can be known beforehand."""
    from attnjax.data.lines import count_lines

    counts = [count_lines(each) for each in (file, other) if each is not None]
    if None not in counts and len(set(counts)) > 1:
        raise ValueError(
            f"line i of {other} must belong to line i of {file}, but they have "
            f"{counts[1]:,} and {counts[0]:,} lines; find where they part and mend "
            "the files."
        )
    return counts[0]


def _pairs(
    options: argparse.Namespace, run: Any
) -> Iterator[tuple[list[str], list[str]]]:
    """The lines of two files side by side, in blocks."""
    from attnjax.data.lines import in_step, line_blocks

    source, target = (
        line_blocks(file, **_block_sizes(run))
        for file in (options.source, options.target)
    )
    return in_step(source, target, (str(options.source), str(options.target)))


def _block_sizes(run: Any) -> dict[str, int]:
    """Text of a few batches: each block is computed and delivered by itself."""
    tokens = int(run.translator.config.tokens_per_batch)
    return {"block_bytes": 8 * tokens, "block_lines": max(1, tokens // 8)}


def _read(file: Path) -> list[str]:
    from attnjax.data.lines import read_lines

    return read_lines(file)


def _write(lines: Any) -> None:
    for line in lines:
        sys.stdout.write(line + "\n")


def _write_json(report: Any) -> None:
    """One line; numbers have the digits that mean something."""
    print(json.dumps(_rounded(report), ensure_ascii=False), flush=True)


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, _DECIMALS)
    if isinstance(value, dict):
        return {name: _rounded(each) for name, each in value.items()}
    return [*map(_rounded, value)] if isinstance(value, list | tuple) else value
