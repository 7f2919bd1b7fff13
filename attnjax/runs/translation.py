"""Translations with all that can be said of them, as columns and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from attnjax.evaluation.alignment_files import format_pharaoh
from attnjax.evaluation.attention_readings import Reading
from attnjax.runs.alignment import align
from attnjax.runs.opening import TrainedRun
from attnjax.tasks.outputs import Hypothesis, Progress, no_progress
from attnjax.types import Alignment


class TranslatedLine(NamedTuple):
    """A source line and its translations.

    Attributes:
        source: the line.
        hypotheses: the best first.
        links: of each hypothesis' words; None unless they were asked for.
    """

    source: str
    hypotheses: list[Hypothesis]
    links: list[Alignment] | None


def translated_lines(
    run: TrainedRun,
    lines: Sequence[str],
    *,
    prefixes: Sequence[str] | None = None,
    reading: Reading | None = None,
    with_attention: bool = False,
    progress: Progress = no_progress,
) -> list[TranslatedLine]:
    """Translates lines, and aligns their words if a reading is given.

    Args:
        run: an opened run.
        lines: source sentences.
        prefixes: what each translation begins with.
        reading: which attention the links are read from; None gives no links.
        with_attention: whether hypotheses carry the attention of the search.
        progress: called with the number of lines of each batch that is translated.

    Returns:
        As many results as lines, in their order.

    Raises:
        ValueError: as `Translator.translate`, or the model does not attend.
    """
    found = run.translator.translate(
        run.variables,
        lines,
        prefixes=prefixes,
        with_attention=with_attention,
        progress=progress,
    )
    if reading is None:
        return [
            TranslatedLine(line, hypotheses, None)
            for line, hypotheses in zip(lines, found.n_best, strict=True)
        ]
    sources = [
        line
        for line, hypotheses in zip(lines, found.n_best, strict=True)
        for _ in hypotheses
    ]
    ids = [hypothesis.ids for hypotheses in found.n_best for hypothesis in hypotheses]
    links = iter([pair.links for pair in align(run, sources, ids, reading)])
    return [
        TranslatedLine(line, hypotheses, [next(links) for _ in hypotheses])
        for line, hypotheses in zip(lines, found.n_best, strict=True)
    ]


def as_columns(line: TranslatedLine, *, with_scores: bool) -> list[str]:
    """One row for each hypothesis, its columns parted by tabs.

    Args:
        line: of `translated_lines`.
        with_scores: whether score and log-probability are columns.

    Returns:
        The text alone where nothing else was asked for; then it keeps its tabs.
    """
    rows = []
    for place, hypothesis in enumerate(line.hypotheses):
        columns = [hypothesis.text.replace("\n", " ")]
        if with_scores:
            numbers = hypothesis.score, hypothesis.log_probability
            columns += [f"{number:.6f}" for number in numbers]
        if line.links is not None:
            columns.append(format_pharaoh(line.links[place]))
        if len(columns) > 1:
            columns[0] = columns[0].replace("\t", " ")
        rows.append("\t".join(columns))
    return rows


def as_json(line: TranslatedLine) -> dict[str, Any]:
    """A line and its translations as JSON values.

    Args:
        line: of `translated_lines`.

    Returns:
        ``source`` and ``translations``, each with its text, score, log-probability,
        number of tokens, whether it is finished, and what else was asked for.
    """
    translations = []
    for place, hypothesis in enumerate(line.hypotheses):
        document: dict[str, Any] = {
            "text": hypothesis.text,
            "score": hypothesis.score,
            "log_probability": hypothesis.log_probability,
            "tokens": len(hypothesis.ids),
            "finished": hypothesis.finished,
        }
        if line.links is not None:
            document["alignment"] = sorted(map(list, line.links[place]))
        if hypothesis.attention is not None:
            document["attention"] = hypothesis.attention.round(4).tolist()
        translations.append(document)
    return {"source": line.source, "translations": translations}
