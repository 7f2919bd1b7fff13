"""How sentences are produced, and what validation does."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Annotated, Any, Literal, get_args

from attnjax.fields import (
    BatchTokens,
    Count,
    CountOrZero,
    NotNegative,
    Positive,
    ReadWith,
    Section,
    Seed,
    Within,
    require,
    unmet,
)

MethodName = Literal["beam", "sampling", "mbr"]

_BEAM = ReadWith({"method": ("beam",)})
_DRAWS = ReadWith({"method": ("sampling", "mbr")})
_RISK = ReadWith({"method": ("mbr",)})

RANKING = ("length_penalty", "length_penalty_kind", "coverage_penalty")


@dataclasses.dataclass(frozen=True, kw_only=True)
class DecodingConfig(Section):
    """How sentences are produced at test time."""

    # beam search, draws from the model, or of many draws the one most like the others
    # (minimum Bayes risk, Eikema and Aziz 2020)
    method: MethodName = "beam"
    # hypotheses that beam search keeps; 1 is greedy search
    beam_size: Annotated[Count, _BEAM] = 4
    n_best: Count = 1  # outputs per sentence
    # alpha: 0 is none, larger ones favour longer outputs
    length_penalty: Annotated[NotNegative, _BEAM] = 0.6
    # gnmt divides by ((5 + n) / 6)^alpha (Wu et al. 2016), plain by n^alpha
    length_penalty_kind: Annotated[Literal["gnmt", "plain"], _BEAM] = "gnmt"
    # beta of Wu et al. 2016, for source words left out
    coverage_penalty: Annotated[NotNegative, _BEAM] = 0.0
    min_tokens: CountOrZero = 0  # of an output, </s> included
    # no n-gram of this order occurs twice; 0 allows all
    no_repeat_ngram: CountOrZero = 0
    # of draws; below 1 they are surer than the model
    temperature: Annotated[Positive, _DRAWS] = 1.0
    # draws are among so many most probable tokens; 0 is no limit
    top_k: Annotated[CountOrZero, _DRAWS] = 0
    # draws are among the fewest tokens of this probability
    top_p: Annotated[float, Within(above=0, most=1), _DRAWS] = 1.0
    num_samples: Annotated[Count, _RISK] = 32  # draws of minimum Bayes risk
    # likeness, of minimum Bayes risk
    risk_utility: Annotated[Literal["chrf", "bleu"], _RISK] = "chrf"
    # of draws; the same sentence and seed give the same ones
    seed: Annotated[Seed, _DRAWS] = 0
    max_extra_tokens: Count = 50  # output limit beyond the source length, in tokens
    max_source_tokens: Count = 1_024  # longer sources are cut, with a warning
    tokens_per_batch: BatchTokens = 4_096  # padded source tokens decoded at once

    def __post_init__(self) -> None:
        super().__post_init__()
        most = {"beam": self.beam_size, "mbr": self.num_samples}.get(self.method)
        name = "beam_size" if self.method == "beam" else "num_samples"
        require(
            most is None or self.n_best <= most,
            f"n_best must be at most {name}, got n_best={self.n_best}, {name}={most}; "
            f"raise {name}.",
        )

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


# The fields that each method reads; the others say nothing.
READ_BY = {
    method: [
        field.name
        for field in dataclasses.fields(DecodingConfig)
        if not unmet(DecodingConfig(method=method), field.name)
    ]
    for method in get_args(MethodName)
}


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
class EvaluationConfig(Section):
    """What validation during training does; the test set is always scored whole."""

    max_pairs: Count = 1_000  # first pairs of the validation set that are translated
    beam_size: Count = 1  # of validation during training
