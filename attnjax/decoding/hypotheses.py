"""What every search takes and returns."""

from __future__ import annotations

from typing import NamedTuple

from attnjax.types import Array, PyTree


class SpecialTokens(NamedTuple):
    """The ids that a search must know by meaning.

    ``pad_id`` and ``bos_id`` are never generated, unless one of them is also ``eos_id``
    (some published models start with ``</s>`` or ``<pad>``).
    """

    pad_id: int
    bos_id: int
    eos_id: int


class Hypotheses(NamedTuple):
    """The outputs of a search for a batch, per row the best first.

    Finished hypotheses come before unfinished ones, and each group falls in ``scores``.
    A row that has fewer than J hypotheses at all (a tiny vocabulary) is filled up with
    absent ones: length 0, log-probability and score -inf.

    Attributes:
        tokens: ``[B, J, L]`` int32, without ``<s>``. A finished hypothesis has exactly
            one ``</s>``, its last token; ``<pad>`` follows.
        lengths: ``[B, J]`` int32, generated tokens: with ``</s>``, without ``<s>``.
        log_probabilities: ``[B, J]`` float32, the sum over the generated tokens under
            the model's own softmax, in nats.
        scores: ``[B, J]`` float32, what ranks them.
        finished: ``[B, J]`` bool; False if the length limit came before ``</s>``.
        trace: what the caller's ``trace`` read from the state that each hypothesis
            ended in, every leaf ``[B, J, ...]``; None unless it was asked for.
    """

    tokens: Array
    lengths: Array
    log_probabilities: Array
    scores: Array
    finished: Array
    trace: PyTree = None
