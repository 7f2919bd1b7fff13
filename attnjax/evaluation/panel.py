"""The BLEU figures that papers print for one output, side by side.

They differ by points for one and the same text (27.5 to 29.0 for one Transformer base
on newstest2014), so a figure means something only with the name of its tokenizer.
"""

from __future__ import annotations

import dataclasses
import re
import unicodedata
from collections.abc import Sequence

from sacrebleu.metrics.bleu import BLEU

from attnjax.evaluation.bleu import bleu_tokenizer, make_bleu
from attnjax.evaluation.lines import References, present_references, reference_sets
from attnjax.words import has_spaces

_COMPOUND = re.compile(r"(\S)-(\S)")
_INSIDE_WORDS = frozenset(".,-'`")  # the tokenizer or the split decides about these

_HEADLINE = "the figure to report: the standard tokenizer of this target language"
_MEANINGLESS = (
    "meaningless for this target language, which has no spaces between words: whole "
    "sentences count as words"
)
_NOT_COMPARABLE = (
    "tokenised BLEU, not comparable with sacreBLEU: hyphenated words split on both "
    "sides, as older papers on WMT'14 English-German did"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PanelScore:
    """One BLEU figure of an output.

    Attributes:
        name: ``13a``, ``intl``, ``13a lower-cased``, ``compound-split``, or the name
            of the target language's own tokenizer.
        bleu: 0 to 100.
        signature: How it was computed, in sacreBLEU's form.
        headline: Whether this is the figure to report; true of exactly one.
        note: What to know when reading it; empty if nothing.
    """

    name: str
    bleu: float
    signature: str
    headline: bool = False
    note: str = ""


def bleu_panel(
    hypotheses: Sequence[str], references: References, *, target_language: str
) -> list[PanelScore]:
    """BLEU of one output under the tokenizers in use, the figure to report first.

    The tokenizer of the target language (`bleu_tokenizer`: ``zh``, ``ja-mecab``,
    ``ko-mecab``, ``char``, else ``13a``) gives the headline. ``13a``, ``intl`` and
    lower-cased ``13a`` follow, marked as meaningless where the script has no spaces
    between words; elsewhere also the compound-split figure, see `split_compounds`.

    Args:
        hypotheses: The output as plain, detokenised text, one string per line.
        references: As many strings, or several such columns.
        target_language: A code such as ``de`` or ``zh_Hant``.

    Returns:
        Three to five figures, the headline first.

    Raises:
        ValueError: If the counts of lines differ or there are none.
    """
    present = present_references(reference_sets(hypotheses, references))
    own = bleu_tokenizer(target_language)
    spaces = has_spaces(target_language)
    others = {"13a": make_bleu("13a"), "intl": make_bleu("intl")}
    others["13a lower-cased"] = make_bleu("13a", lowercase=True)
    others.pop(own, None)
    headline = _score(own, make_bleu(own), hypotheses, present, note=_HEADLINE)
    panel = [dataclasses.replace(headline, headline=True)]
    for name, metric in others.items():
        note = "" if spaces else _MEANINGLESS
        panel.append(_score(name, metric, hypotheses, present, note=note))
    if spaces:
        panel.append(_compound_split(hypotheses, present))
    return panel


def split_compounds(text: str) -> str:
    """Tokenises one line as scripts for WMT'14 English-German did before scoring.

    ``rich-text format`` becomes ``rich ##AT##-##AT## text format``, so that a
    hyphenated word counts as three. The rule acts once on each stretch between
    hyphens, hence ``a-b-c`` keeps its second hyphen, as in the script that papers
    used (``get_ende_bleu.sh`` of tensor2tensor). That script tokenises with Moses; this
    is the tokenizer 13a and every other symbol or punctuation mark set apart, which
    differs from Moses in abbreviations and apostrophes.

    Args:
        text: Plain text.

    Returns:
        Tokens, separated by single spaces.

    Example:
        >>> split_compounds("A „rich-text“ format.")
        'A „ rich ##AT##-##AT## text “ format .'
    """
    tokens = make_bleu("13a").tokenizer(text.rstrip())
    apart = "".join(
        f" {character} " if _is_mark(character) else character for character in tokens
    )
    split = _COMPOUND.sub(r"\1 ##AT##-##AT## \2", apart)
    return " ".join(split.split())


def _is_mark(character: str) -> bool:
    """Whether Moses would set a character apart wherever it stands."""
    return character not in _INSIDE_WORDS and unicodedata.category(character)[0] in "PS"


def _score(
    name: str,
    metric: BLEU,
    hypotheses: Sequence[str],
    present: Sequence[Sequence[str]],
    *,
    note: str,
) -> PanelScore:
    score = metric.corpus_score(hypotheses, present).score
    return PanelScore(
        name=name,
        bleu=min(score, 100.0),
        signature=str(metric.get_signature()),
        note=note,
    )


def _compound_split(
    hypotheses: Sequence[str], present: Sequence[Sequence[str]]
) -> PanelScore:
    """Unsmoothed, as the script's ``multi-bleu.perl`` is."""
    metric = BLEU(tokenize="none", smooth_method="none", force=True)
    score = metric.corpus_score(
        [split_compounds(line) for line in hypotheses],
        # None marks a reference that is missing.
        [[line and split_compounds(line) for line in column] for column in present],
    ).score
    signature = metric.get_signature()
    signature.update("tok", "13a+compound-split")
    return PanelScore(
        name="compound-split",
        bleu=min(score, 100.0),
        signature=f"{signature}|not comparable with sacreBLEU",
        note=_NOT_COMPARABLE,
    )
