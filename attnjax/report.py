"""Evaluation of a run folder: scores, translations and pictures, as files.

`evaluate` is the library call behind ``python eval.py --workdir W``.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from attnjax.diagnostics.attention_plot import plot_attention
from attnjax.diagnostics.learning_curve import plot_learning_curve
from attnjax.evaluation.bleu import corpus_scores
from attnjax.evaluation.buckets import bleu_by_length
from attnjax.experiment import TrainedRun
from attnjax.tasks.translation import TranslationTask
from attnjax.tasks.translator import Translations

_PICTURE_WORDS = (4, 18)  # source words of a sentence that makes a legible heatmap


def evaluate(
    run: TrainedRun, split: Literal["valid", "test"], *, num_pictures: int = 3
) -> tuple[dict[str, Any], list[Path]]:
    """Translates and scores a whole split, and draws what the model attended to.

    Args:
        run: an opened run folder.
        split: the set that is scored; none of its lines is left out.
        num_pictures: sentences whose attention is drawn.

    Returns:
        The report, also written to ``evaluation/<split>.json``, and the files written.
    """
    corpus = run.corpus(split)
    translations = run.translator.translate(run.variables, corpus.source)
    language = run.experiment.data.target_language
    scores = corpus_scores(translations.texts, corpus.target, target_language=language)
    buckets = bleu_by_length(
        corpus.source, translations.texts, corpus.target, target_language=language
    )
    report = {
        "split": split,
        "step": run.step,
        "lines": len(corpus),
        **dataclasses.asdict(scores),
        "bleu_by_source_words": [dataclasses.asdict(bucket) for bucket in buckets],
        "beam_size": run.translator.config.beam_size,
        "length_penalty": run.translator.config.length_penalty,
        "tokens_per_second": round(translations.num_tokens / translations.seconds, 1),
        "unfinished": translations.num_unfinished,
        "cut": translations.num_cut,
    }
    folder = run.folder.evaluation
    folder.mkdir(parents=True, exist_ok=True)
    hypotheses = folder / f"{split}.{language}"
    hypotheses.write_text(_as_lines(translations.texts), encoding="utf-8", newline="")
    report_file = folder / f"{split}.json"
    report_file.write_text(
        json.dumps(report, indent=2, ensure_ascii=False) + "\n", encoding="utf-8"
    )
    pictures = _draw(run, split, corpus.source, translations, num_pictures)
    return report, [hypotheses, report_file, *pictures]


def _as_lines(texts: Sequence[str]) -> str:
    r"""One text a line; a \n inside a text would shift all lines after it."""
    return "".join(text.replace("\n", " ") + "\n" for text in texts)


def _draw(
    run: TrainedRun,
    split: str,
    sources: Sequence[str],
    translations: Translations,
    num_pictures: int,
) -> list[Path]:
    """Heatmaps of the first sentences of a legible length, and the learning curve."""
    folder = run.folder.pictures
    folder.mkdir(parents=True, exist_ok=True)
    fewest, most = _PICTURE_WORDS
    chosen = [
        number
        for number, source in enumerate(sources)
        if fewest <= len(source.split()) <= most and translations.ids[number]
    ][:num_pictures]
    pictures = []
    if chosen:
        pictures = _draw_attention(run, split, sources, translations, chosen)
    if run.folder.metrics.exists():
        curve = folder / "learning_curve.png"
        plot_learning_curve(run.folder.metrics, curve, score=TranslationTask.score)
        pictures.append(curve)
    return pictures


def _draw_attention(
    run: TrainedRun,
    split: str,
    sources: Sequence[str],
    translations: Translations,
    chosen: Sequence[int],
) -> list[Path]:
    """The last layer's cross-attention of the chosen lines, one picture each."""
    tokenizers = run.translator.tokenizers
    lines = [sources[number] for number in chosen]
    ids = [translations.ids[number] for number in chosen]
    pictures = []
    for number, line, attention in zip(
        chosen, lines, run.translator.attention(run.variables, lines, ids), strict=True
    ):
        if not attention:  # a model without attention
            return []
        name = list(attention)[-1]
        weights = attention[name]
        path = run.folder.pictures / f"{split}_{number + 1}.png"
        plot_attention(
            weights,
            [*tokenizers.source.pieces(tokenizers.source.encode(line)), "</s>"],
            _pieces_with_end(run, translations.ids[number]),
            path,
            title=f"{split} line {number + 1}: {name}",
        )
        pictures.append(path)
    return pictures


def _pieces_with_end(run: TrainedRun, ids: Sequence[int]) -> list[str]:
    tokenizer = run.translator.tokenizers.target
    text_ids = [token for token in ids if token != tokenizer.eos_id]
    return [*tokenizer.pieces(text_ids), "</s>"]
