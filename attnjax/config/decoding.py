"""How sentences are produced, and what validation does."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal

from attnjax.config.checks import require, require_positive

_EVERY_METHOD = (
    *("method", "n_best", "min_tokens", "no_repeat_ngram"),
    *("max_extra_tokens", "max_source_tokens", "tokens_per_batch"),
)
_DRAWS = ("temperature", "top_k", "top_p", "seed")
RANKING = ("length_penalty", "length_penalty_kind", "coverage_penalty")

# The fields of `DecodingConfig` that each method reads; the others say nothing.
READ_BY = {
    "beam": (*_EVERY_METHOD, "beam_size", *RANKING),
    "sampling": (*_EVERY_METHOD, *_DRAWS),
    "mbr": (*_EVERY_METHOD, *_DRAWS, "num_samples", "risk_utility"),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class DecodingConfig:
    """How sentences are produced at test time.

    What the method does not read (see `READ_BY`) must keep its default.
    """

    # beam search, draws from the model, or of many draws the one most like the others
    # (minimum Bayes risk, Eikema and Aziz 2020)
    method: Literal["beam", "sampling", "mbr"] = "beam"
    beam_size: int = 4  # hypotheses that beam search keeps; 1 is greedy search
    n_best: int = 1  # outputs per sentence
    length_penalty: float = 0.6  # alpha: 0 is none, larger ones favour longer outputs
    # gnmt divides by ((5 + n) / 6)^alpha (Wu et al. 2016), plain by n^alpha
    length_penalty_kind: Literal["gnmt", "plain"] = "gnmt"
    coverage_penalty: float = 0.0  # beta of Wu et al. 2016, for source words left out
    min_tokens: int = 0  # of an output, </s> included
    no_repeat_ngram: int = 0  # no n-gram of this order occurs twice; 0 allows all
    temperature: float = 1.0  # of draws; below 1 they are surer than the model
    top_k: int = 0  # draws are among so many most probable tokens; 0 is no limit
    top_p: float = 1.0  # draws are among the fewest tokens of this probability
    num_samples: int = 32  # draws of minimum Bayes risk
    risk_utility: Literal["chrf", "bleu"] = "chrf"  # likeness, of minimum Bayes risk
    seed: int = 0  # of draws; the same sentence and seed give the same ones
    max_extra_tokens: int = 50  # output limit beyond the source length, in tokens
    max_source_tokens: int = 1_024  # longer sources are cut, with a warning
    tokens_per_batch: int = 4_096  # padded source tokens decoded at once

    def __post_init__(self) -> None:
        require_positive(
            self,
            *("beam_size", "n_best", "temperature", "num_samples"),
            *("max_extra_tokens", "max_source_tokens", "tokens_per_batch"),
        )
        names = "length_penalty", "coverage_penalty", "min_tokens", "no_repeat_ngram"
        for name in (*names, "top_k"):
            value = getattr(self, name)
            require(value >= 0, f"{name} must be 0 or more, got {value}.")
        require(
            0 < self.top_p <= 1,
            f"top_p must be greater than 0 and at most 1, got {self.top_p}.",
        )
        most = {"beam": self.beam_size, "mbr": self.num_samples}.get(self.method)
        name = "beam_size" if self.method == "beam" else "num_samples"
        require(
            most is None or self.n_best <= most,
            f"n_best must be at most {name}, got n_best={self.n_best}, {name}={most}; "
            f"raise {name}.",
        )
        defaults = {field.name: field.default for field in dataclasses.fields(self)}
        changed = [name for name in defaults if getattr(self, name) != defaults[name]]
        _require_read(self.method, changed)

    def searching(self, **changes: Any) -> DecodingConfig:
        """This config with some fields replaced, perhaps by another method.

        Args:
            **changes: fields and their values.

        Returns:
            The config; what its method does not read has gone back to the defaults.

        Raises:
            ValueError: the method does not read one of the changed fields, or the
                values do not fit together.
        """
        method = changes.get("method", self.method)
        _require_read(method, list(changes))
        kept = {name: getattr(self, name) for name in READ_BY[method]}
        return DecodingConfig(**{**kept, **changes})

    @classmethod
    def stored(cls, **fields: Any) -> DecodingConfig:
        """A config that was written before unread fields were refused.

        Args:
            **fields: as they were stored.

        Returns:
            The config without those that its method does not read.
        """
        read = READ_BY[fields.get("method", "beam")]
        return cls(**{name: fields[name] for name in fields if name in read})


def _require_read(method: str, names: list[str]) -> None:
    """Refuses names of fields that a method does not read."""
    require(
        method in READ_BY,
        f"method must be one of {', '.join(READ_BY)}, got {method!r}.",
    )
    unread = [name for name in names if name not in READ_BY[method]]
    if unread:
        others = [each for each in READ_BY if unread[0] in READ_BY[each]]
        raise ValueError(
            f"{_listed(unread)} cannot be set where method is {method}, which reads "
            f"only {_listed(READ_BY[method])}; leave it out"
            + (f", or set method to {_listed(others, 'or')}." if others else ".")
        )


def _listed(names: Sequence[str], conjunction: str = "and") -> str:
    *first, last = names
    return f"{', '.join(first)} {conjunction} {last}" if first else last


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluationConfig:
    """What validation during training does; the test set is always scored whole."""

    max_pairs: int = 1_000  # first pairs of the validation set that are translated
    beam_size: int = 1  # of validation during training

    def __post_init__(self) -> None:
        require_positive(self, "max_pairs", "beam_size")
