"""Evaluation of a run folder: scores, translations and pictures, as files.

`evaluate` is the library call behind ``python eval.py --workdir W``.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from attnjax.data.parallel import ParallelCorpus
from attnjax.diagnostics.attention_map import Head
from attnjax.diagnostics.learning_curve import plot_learning_curve
from attnjax.diagnostics.run_page import (
    AttentionExample,
    RunPage,
    Sample,
    write_run_page,
)
from attnjax.evaluation.buckets import bleu_by_length
from attnjax.evaluation.notes import warn_once
from attnjax.runs.comparison import scores_of
from attnjax.runs.drawing import AttendedSentence, attended_sentences, draw_sentence
from attnjax.runs.evaluated import keep_other, provenance
from attnjax.runs.opening import TrainedRun
from attnjax.storage.faults import written
from attnjax.storage.files import replace_text
from attnjax.tasks.outputs import Translations
from attnjax.tasks.translation import TranslationTask
from attnjax.training.metrics_log import read_metrics
from attnjax.words import cut_note, word_cut, words_of

logger = logging.getLogger(__name__)

_PICTURE_WORDS = (4, 18)  # source words of a sentence that makes a legible heatmap
_SAMPLES = 50  # translations on the page


@dataclasses.dataclass(frozen=True, kw_only=True)
class Heatmaps:
    """Which attention is drawn.

    Attributes:
        count: sentences, the first of a legible length.
        layer: name of the weights, such as ``decoder/layer_0/cross`` or
            ``encoder/layer_0/self``; None means the last layer's over the source.
        head: its number, from 0, or "mean"; None draws all heads.
        whole_words: whether subwords are merged to words.
        format: of the files.
    """

    count: int = 3
    layer: str | None = None
    head: Head | None = None
    whole_words: bool = False
    format: Literal["png", "svg"] = "png"


_DEFAULT_HEATMAPS = Heatmaps()


def evaluate(
    run: TrainedRun,
    split: Literal["valid", "test"],
    heatmaps: Heatmaps = _DEFAULT_HEATMAPS,
) -> tuple[dict[str, Any], list[Path]]:
    """Translates and scores a whole split, and draws what the model attended to.

    Args:
        run: an opened run folder.
        split: the set that is scored; none of its lines is left out.
        heatmaps: which attention is drawn.

    Returns:
        The report, also written to ``evaluation/<split>.json``, and the files written.

    Raises:
        ValueError: the model has no attention of the layer that is to be drawn.
        StorageError: the files cannot be written.
    """
    corpus = run.corpus(split)
    translations = run.translator.translate(run.variables, corpus.source)
    report = _report(run, split, corpus, translations)
    if report["zero_reason"] is not None:
        logger.warning("BLEU reads 0.0: %s", report["zero_reason"])
    folder = run.folder.evaluation
    hypotheses = folder / f"{split}.{run.languages[1]}"
    report_file = folder / f"{split}.json"
    examples = _examples(run, corpus, translations, heatmaps)
    with written("the evaluation", run.folder.path):
        folder.mkdir(parents=True, exist_ok=True)
        keep_other(report_file, hypotheses, report)
        replace_text(hypotheses, _as_lines(translations.texts))
        text = json.dumps(report, indent=2, ensure_ascii=False) + "\n"
        replace_text(report_file, text)
        pictures = _draw(run, split, examples, heatmaps)
        _write_page(run, report, corpus, translations, examples)
    return report, [hypotheses, report_file, *pictures, run.folder.page]


def _report(
    run: TrainedRun, split: str, corpus: ParallelCorpus, translations: Translations
) -> dict[str, Any]:
    language = run.languages[1]
    scores = scores_of(translations.texts, [corpus.target], target_language=language)
    note = cut_note(run.languages[0])
    if note is not None:
        warn_once(note)
        scores["notes"].append(note)
    buckets = bleu_by_length(
        corpus.source,
        translations.texts,
        corpus.target,
        source_language=run.languages[0],
        target_language=language,
    )
    return {
        "split": split,
        "step": run.step,
        "lines": len(corpus),
        **provenance(run, corpus),
        **scores,
        "source_words_cut_by": word_cut(run.languages[0]),
        "bleu_by_source_words": [dataclasses.asdict(bucket) for bucket in buckets],
        "decoding": dataclasses.asdict(run.translator.config),
        "tokens_per_second": round(translations.num_tokens / translations.seconds, 1),
        "unfinished": translations.num_unfinished,
        "cut": translations.num_cut,
    }


def _as_lines(texts: Sequence[str]) -> str:
    r"""One text a line; a \n inside a text would shift all lines after it."""
    return "".join(text.replace("\n", " ") + "\n" for text in texts)


class _Example(NamedTuple):
    """A line whose attention is shown."""

    number: int
    sentence: AttendedSentence


def _examples(
    run: TrainedRun,
    corpus: ParallelCorpus,
    translations: Translations,
    heatmaps: Heatmaps,
) -> list[_Example]:
    """The first lines of a legible length; none if the model does not attend."""
    fewest, most = _PICTURE_WORDS
    chosen = [
        number
        for number, source in enumerate(corpus.source)
        if fewest <= len(words_of(source, run.languages[0])) <= most
        and translations.ids[number]
    ][: heatmaps.count]
    sources = [corpus.source[number] for number in chosen]
    ids = [translations.ids[number] for number in chosen]
    found = attended_sentences(run, sources, ids, whole_words=heatmaps.whole_words)
    return [
        _Example(number, sentence)
        for number, sentence in zip(chosen, found, strict=True)
        if sentence.layers
    ]


def _draw(
    run: TrainedRun, split: str, examples: Sequence[_Example], heatmaps: Heatmaps
) -> list[Path]:
    """Heatmaps of one layer, and the learning curve."""
    pictures = []
    for number, sentence in examples:
        file = f"{split}_{number + 1}.{heatmaps.format}"
        path = run.folder.pictures / file
        draw_sentence(
            sentence,
            path,
            layer=heatmaps.layer,
            head=heatmaps.head,
            title=f"{split} line {number + 1}",
        )
        pictures.append(path)
    if read_metrics(run.folder.path):  # none, where it ended before the first
        curve = run.folder.pictures / "learning_curve.png"
        plot_learning_curve(run.folder.metrics, curve, score=TranslationTask.score)
        pictures.append(curve)
    return pictures


def _write_page(
    run: TrainedRun,
    report: dict[str, Any],
    corpus: ParallelCorpus,
    translations: Translations,
    examples: Sequence[_Example],
) -> None:
    texts = zip(corpus.source, translations.texts, corpus.target, strict=True)
    page = RunPage(
        title=run.folder.path.absolute().name,
        configuration=json.loads(run.folder.config.read_text(encoding="utf-8")),
        records=read_metrics(run.folder.path),
        scores=report,
        samples=[
            Sample(source=source, output=output, reference=reference)
            for source, output, reference in itertools.islice(texts, _SAMPLES)
        ],
        attention=[
            AttentionExample(sentence=sentence.source, layers=sentence.layers)
            for _, sentence in examples
        ],
        main_score=TranslationTask.score,
        languages=run.languages,
    )
    write_run_page(run.folder.page, page)
