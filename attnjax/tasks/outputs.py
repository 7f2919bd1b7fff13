"""What a `Translator` gives back."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np

Side = Literal["source", "target"]
Progress = Callable[[int], None]
"""Is told how many lines each finished batch had."""


def no_progress(done: int) -> None:
    """The `Progress` that nobody looks at."""
    del done


@dataclasses.dataclass(frozen=True, kw_only=True)
class Hypothesis:
    """One translation of one line.

    Attributes:
        text: detokenised.
        ids: its tokens, ``</s>`` included when it was generated.
        log_probability: the sum over the tokens under the model, in nats.
        score: what ranks it, see `attnjax.config.DecodingConfig`.
        finished: False if it reached its length limit before ``</s>``.
        attention: ``[T, S]`` where the model looked for each token while searching
            (the last layer's heads averaged, ``</s>`` included on both sides); None
            unless it was asked for.
    """

    text: str = ""
    ids: list[int] = dataclasses.field(default_factory=list)
    log_probability: float = 0.0
    score: float = 0.0
    finished: bool = True
    attention: np.ndarray | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Translations:
    """Translated lines, in the order of the input.

    Attributes:
        n_best: the hypotheses of each line, the best first; an empty line has one
            empty hypothesis.
        num_cut: source lines that were longer than allowed and were cut.
        seconds: wall time.
    """

    n_best: list[list[Hypothesis]]
    num_cut: int
    seconds: float

    @property
    def best(self) -> list[Hypothesis]:
        """The best hypothesis of each line."""
        return [hypotheses[0] for hypotheses in self.n_best]

    @property
    def texts(self) -> list[str]:
        """The best translation of each line."""
        return [hypothesis.text for hypothesis in self.best]

    @property
    def ids(self) -> list[list[int]]:
        """The tokens of the best translation of each line."""
        return [hypothesis.ids for hypothesis in self.best]

    @property
    def num_tokens(self) -> int:
        """Tokens of the best translations, ``</s>`` included."""
        return sum(map(len, self.ids))

    @property
    def num_unfinished(self) -> int:
        """Best translations that reached their length limit."""
        return sum(not hypothesis.finished for hypothesis in self.best)


class TokenAttention(NamedTuple):
    """Where the tokens of a sentence pair look, in one layer.

    Attributes:
        weights: ``[H, T, S]``, or with as many tokens as the sides have.
        queries: the side whose tokens look. A token of the target looks from the step
            that writes it.
        keys: the side that is looked at. Of the target it is what was written before
            the step: ``<s>`` and all tokens but the last.
    """

    weights: np.ndarray
    queries: Side
    keys: Side


@dataclasses.dataclass(frozen=True, kw_only=True)
class ForcedScore:
    """The model's judgement of a given translation.

    Attributes:
        token_log_probabilities: of each token given those before it, in nats.
        score: as search would have ranked it, see `attnjax.config.DecodingConfig`.
    """

    token_log_probabilities: np.ndarray
    score: float

    @property
    def log_probability(self) -> float:
        """The sum over the tokens, in nats."""
        return float(self.token_log_probabilities.sum(dtype=np.float64))
