"""The attention of one layer over one sentence pair, with the texts of its tokens."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Literal

import numpy as np

from attnjax.types import Array

Head = int | Literal["mean"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class AttentionMap:
    """What attention pictures and pages show.

    Attributes:
        weights: ``[H, T, S]``; a row says how much each key gave to one query.
        queries: T texts, of the tokens or words that look.
        keys: S texts, of those that are looked at.
        query_axis: What the queries are, such as "target".
        key_axis: What the keys are, such as "source".
        heads: The name of each head; none counts several from 0, and leaves a single
            one without a name.

    Raises:
        ValueError: At construction, if the weights do not fit the texts, or there is
            no text or head.
    """

    weights: Array
    queries: Sequence[str]
    keys: Sequence[str]
    query_axis: str = "target"
    key_axis: str = "source"
    heads: Sequence[str] = ()

    def __post_init__(self) -> None:
        """Checks the shapes and names the heads."""
        shape, expected = np.shape(self.weights), (len(self.queries), len(self.keys))
        if len(shape) != 3 or shape[1:] != expected or not all(shape):
            raise ValueError(
                f"weights must be [H, T, S] with T, S = {expected} tokens, at least "
                f"one each; got shape {shape}."
            )
        counted = [f"head {head}" for head in range(shape[0])]
        names = tuple(self.heads) or (tuple(counted) if len(counted) > 1 else ("",))
        if len(names) != shape[0]:
            raise ValueError(f"{shape[0]} heads need as many names, got {names}.")
        object.__setattr__(self, "heads", names)

    def of_head(self, head: Head) -> AttentionMap:
        """The same of one head alone.

        Args:
            head: Its number, from 0, or "mean" for the mean of all.

        Returns:
            A map with one head.

        Raises:
            ValueError: If there is no such head.
        """
        weights_hts = np.asarray(self.weights)
        if head == "mean":
            mean_1ts = weights_hts.mean(axis=0, keepdims=True)
            return dataclasses.replace(
                self, weights=mean_1ts, heads=(f"mean of {len(weights_hts)} heads",)
            )
        if not (isinstance(head, int) and 0 <= head < len(weights_hts)):
            last = len(weights_hts) - 1
            raise ValueError(f"there are heads 0 to {last}, and 'mean'; got {head!r}.")
        return dataclasses.replace(
            self, weights=weights_hts[head : head + 1], heads=(self.heads[head],)
        )
