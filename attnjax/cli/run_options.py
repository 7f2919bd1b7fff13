"""What every command over run folders is told: folders, weights, search settings."""

from __future__ import annotations

import argparse
import typing
from collections.abc import Sequence
from pathlib import Path

from attnjax.config import DecodingConfig
from attnjax.config.decoding import RANKING

_SEARCH_HELP = {
    "method": "beam search, sampling, or minimum Bayes risk over samples",
    "beam_size": "hypotheses that beam search keeps; 1 is greedy search",
    "n_best": "translations of each line",
    "length_penalty": "alpha; larger values favour longer translations",
    "length_penalty_kind": "gnmt divides by ((5 + n) / 6)^alpha, plain by n^alpha",
    "coverage_penalty": "beta, for source words that were left out",
    "min_tokens": "shortest translation, in tokens with </s>",
    "no_repeat_ngram": "order of n-grams that may not occur twice; 0 allows all",
    "temperature": "of samples; below 1 they are surer than the model",
    "top_k": "sample among so many most probable tokens; 0 is no limit",
    "top_p": "sample among the fewest tokens of this probability",
    "num_samples": "samples of minimum Bayes risk",
    "risk_utility": "likeness, of minimum Bayes risk",
    "seed": "of samples",
    "max_extra_tokens": "longest translation beyond the source, in tokens",
    "max_source_tokens": "longer lines are cut",
    "tokens_per_batch": "padded source tokens decoded at once",
}
# What forced decoding reads of the search settings, and what its scores read besides.
FORCING = ("max_source_tokens", "tokens_per_batch")
SCORING = (*RANKING, *FORCING)
SEARCHING_ONE = tuple(name for name in _SEARCH_HELP if name != "n_best")


def add_run_options(
    parser: argparse.ArgumentParser, search: Sequence[str] = tuple(_SEARCH_HELP)
) -> None:
    """Adds these options to a command.

    Args:
        parser: of the command.
        search: the search settings that it reads.
    """
    parser.add_argument(
        "--workdir",
        type=Path,
        required=True,
        action="append",
        help="the run folder; given several times, an ensemble",
    )
    parser.add_argument(
        "--checkpoint",
        action="append",
        type=lambda text: int(text) if text.isdecimal() else text,
        metavar="{best,latest,STEP,averaged[/NAME]}",
        help="which weights (default: best); given several times, an ensemble",
    )
    group = parser.add_argument_group("search (default: as in the run's config)")
    types = typing.get_type_hints(DecodingConfig)
    for name in search:
        kind = types[name]
        choices = typing.get_args(kind) or None
        group.add_argument(
            f"--{name.replace('_', '-')}",
            type=str if choices else kind,
            choices=choices,
            help=_SEARCH_HELP[name],
        )
