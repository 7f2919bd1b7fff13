"""The subcommands that use run folders: translate, score, align and so on."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from attnjax.cli.devices import prepare_devices
from attnjax.config import DecodingConfig
from attnjax.terminal import tell


def evaluate(options: argparse.Namespace) -> int:
    """Scores a set of the experiment; one JSON line on stdout."""
    run = _open(options)
    from attnjax.runs.evaluation import Heatmaps
    from attnjax.runs.evaluation import evaluate as library

    heatmaps = Heatmaps(
        count=options.pictures, layer=options.layer, format=options.format
    )
    report, files = library(run, options.split, heatmaps)
    print(json.dumps(report, ensure_ascii=False), flush=True)
    for file in files:
        tell(f"wrote {file}")
    return 0


def translate(options: argparse.Namespace) -> int:
    """Translates lines as they come."""
    prefixes = _read(options.prefixes) if options.prefixes else None
    run = _open(options)
    from attnjax.cli.streams import line_blocks
    from attnjax.runs.translation import as_columns, as_json, translated_lines

    reading = _reading(options, run) if options.alignments else None
    done = 0
    for lines in line_blocks(options.file):
        beginning = None if prefixes is None else prefixes[done : done + len(lines)]
        found = translated_lines(
            *(run, lines),
            prefixes=beginning,
            reading=reading,
            with_attention=options.attention,
        )
        for number, line in enumerate(found, start=done + 1):
            if options.json:
                _write([json.dumps(as_json(line), ensure_ascii=False)])
            else:
                n_best = run.translator.config.n_best > 1
                rows = as_columns(line, with_scores=options.scores)
                _write(f"{number}\t{row}" if n_best else row for row in rows)
        sys.stdout.flush()
        done += len(lines)
    if prefixes is not None and len(prefixes) != done:
        raise ValueError(
            f"{options.prefixes} has {len(prefixes)} lines, but the input has {done}; "
            "each line needs one, and an empty one forces nothing."
        )
    return 0


def score(options: argparse.Namespace) -> int:
    """Prints log-probabilities of given translations."""
    sources, targets = _read_pair(options.source, options.target)
    run = _open(options)
    tokenizer = run.translator.tokenizers.target
    ids = run.translator.encode_targets(targets)
    for line_ids, found in zip(
        ids, run.translator.score(run.variables, sources, ids), strict=True
    ):
        if options.json:
            pieces = [*tokenizer.pieces(line_ids[:-1]), "</s>"]
            tokens = zip(pieces, found.token_log_probabilities.tolist(), strict=True)
            document = {
                "score": found.score,
                "log_probability": found.log_probability,
                "tokens": [list(token) for token in tokens],
            }
            _write([json.dumps(document, ensure_ascii=False)])
        else:
            total = found.log_probability
            _write([f"{found.score:.6f}\t{total:.6f}\t{len(line_ids)}"])
    sys.stdout.flush()
    return 0


def align(options: argparse.Namespace) -> int:
    """Prints links of given pairs."""
    sources, targets = _read_pair(options.source, options.target)
    run = _open(options)
    import numpy as np

    from attnjax.evaluation.alignment_files import format_pharaoh
    from attnjax.runs.alignment import align as library
    from attnjax.runs.alignment import align_both_ways

    reading = _reading(options, run)
    aligned = library(run, sources, run.translator.encode_targets(targets), reading)
    links = [pair.links for pair in aligned]
    if options.soft is not None:
        arrays = {f"line_{n}": pair.weights for n, pair in enumerate(aligned, start=1)}
        np.savez_compressed(options.soft, **arrays)  # type: ignore[arg-type]
        tell(f"wrote {options.soft}")
    if options.reverse is not None:
        opposite = _open(options, [options.reverse])
        links = align_both_ways(
            *(links, opposite, sources, targets), method=options.symmetrize
        )
    if options.gold is not None:
        _print_error_rate(links, options.gold, options.gold_format)
    _write(format_pharaoh(each) for each in links)
    sys.stdout.flush()
    return 0


def compare(options: argparse.Namespace) -> int:
    """Prints scores of outputs and whether they differ by chance."""
    from attnjax.runs.comparison import compare as library
    from attnjax.runs.comparison import table

    report = library(
        *(options.systems, options.references),
        target_language=options.language,
        split=options.split,
        resamples=options.resamples,
    )
    print(json.dumps(report, ensure_ascii=False) if options.json else table(report))
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


def _open(options: argparse.Namespace, workdirs: Sequence[Path] | None = None) -> Any:
    """Opens the run folders with the search settings of the command line."""
    import dataclasses

    prepare_devices()
    from attnjax.runs.opening import open_ensemble

    names = [field.name for field in dataclasses.fields(DecodingConfig)]
    return open_ensemble(
        workdirs or options.workdir,
        checkpoints=options.checkpoint or ["best"],
        search={
            name: value
            for name in names
            if (value := getattr(options, name, None)) is not None
        },
    )


def _reading(options: argparse.Namespace, run: Any) -> Any:
    """The reading that is named, or the best on the validation set."""
    import dataclasses

    from attnjax.evaluation.attention_readings import parse_reading
    from attnjax.runs.alignment import choose_reading, known_pairs

    if options.reading is not None:
        reading = parse_reading(options.reading)
    else:
        validation = options.validation
        known = known_pairs(*validation) if validation else None
        reading, _ = choose_reading(run, known)
    if options.threshold is None:
        return reading
    return dataclasses.replace(reading, method=options.threshold)


def _print_error_rate(links: Sequence[Any], gold: Path, form: str) -> None:
    from attnjax.evaluation.alignment import alignment_scores
    from attnjax.evaluation.alignment_files import read_naacl, read_pharaoh

    if form == "naacl":
        known = read_naacl(_read(gold), str(gold), num_sentences=len(links))
    else:
        known = read_pharaoh(_read(gold), str(gold))
    scores = alignment_scores(links, known)
    tell(
        f"alignment error rate {scores.aer:.4f}, precision {scores.precision:.4f}, "
        f"recall {scores.recall:.4f}, {scores.num_predicted:,} links"
    )


def _read_pair(source: Path, target: Path) -> tuple[list[str], list[str]]:
    sources, targets = _read(source), _read(target)
    if len(sources) != len(targets):
        raise ValueError(
            f"line i of {target} must translate line i of {source}, but they have "
            f"{len(targets)} and {len(sources)} lines."
        )
    return sources, targets


def _read(file: Path) -> list[str]:
    from attnjax.data.text_files import read_lines

    return read_lines(file)


def _write(lines: Any) -> None:
    for line in lines:
        sys.stdout.write(line + "\n")
