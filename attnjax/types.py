"""Shapes and contracts that the whole package shares; imports nothing of ours.

The alphabet of axes, used as the suffix of local arrays and in einsum subscripts:

====  ==========================  ====  ==========================
B     batch                       A     scorer width
T     queries / target positions  F     feed-forward width
S     keys / source positions     C     classes / vocabulary
D     model width                 J     beam
H     heads                       W     window
K     key width of one head       P     patches
V     value width of one head     N, E  nodes, edges
====  ==========================  ====  ==========================
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np

Array = jax.Array | np.ndarray
PyTree = Any
Variables = Mapping[str, PyTree]  # linen collections: {"params": ..., ...}
Alignment = frozenset[tuple[int, int]]  # (source word, target word), both from 0


class Longest(NamedTuple):
    """The longest sentences that a model can take, in tokens with ``</s>``.

    Attributes:
        source: tokens of a source.
        target: tokens of a target.
        setting: the config's field that ends them, for a message.
    """

    source: int = 1 << 30
    target: int = 1 << 30
    setting: str = ""


class Attended(NamedTuple):
    """What an attention mechanism computed.

    Attributes:
        context: ``[..., T, V]``, the weighted mean of the values.
        weights: ``[..., T, S]``, what each value counts with: rows that sum to 1 (to 0
            where no key is allowed) unless the mechanism says otherwise; None if it
            never forms them.
    """

    context: Array
    weights: Array | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mask:
    """The facts of which query may attend to which key; True means "may attend".

    The facts are kept apart so that a mechanism which never builds the ``T x S`` matrix
    can still honour them; one that cannot honour a fact raises. ``Mask()`` allows all.

    Attributes:
        valid: ``[..., S]`` bool, keys that are real; None if all are.
        causal: a query sees no later key. Query and key sequences end together
            (bottom-right alignment), so a single query sees every key.
        window: ``(left, right)`` positions around the query's own; None means no limit.
        query_segments: ``[..., T]`` int, the packed sentence of each query; a query
            sees keys of its own segment only. Given together with ``key_segments``.
        key_segments: ``[..., S]`` int.

    The leading axes broadcast against those of the query and key: with heads, pass
    ``valid`` as ``[B, 1, S]`` (`over_heads` does so).
    """

    valid: Array | None = None
    causal: bool = False
    window: tuple[int, int] | None = None
    query_segments: Array | None = None
    key_segments: Array | None = None

    def __post_init__(self) -> None:
        if (self.query_segments is None) != (self.key_segments is None):
            raise ValueError(
                "a segment mask needs query_segments and key_segments, got only one; "
                "pass both, or neither."
            )
        if not isinstance(self.causal, bool | np.bool_):
            raise ValueError(
                "causal must be True or False, which is known before anything is "
                f"compiled, got {self.causal!r}."
            )
        if self.window is not None and not _are_two_counts(self.window):
            raise ValueError(
                "window must be a tuple of two counts of positions >= 0, got "
                f"{self.window!r}."
            )

    def over_heads(self) -> Mask:
        """The same facts for arrays that have a head axis before ``T`` or ``S``."""

        def with_head_axis(fact: Array | None) -> Array | None:
            if fact is None:
                return None
            if not getattr(fact, "ndim", 0):
                raise ValueError(
                    "a mask's facts must be arrays with an axis of positions, got "
                    f"{fact!r}."
                )
            return fact[..., None, :]

        return dataclasses.replace(
            self,
            valid=with_head_axis(self.valid),
            query_segments=with_head_axis(self.query_segments),
            key_segments=with_head_axis(self.key_segments),
        )


def _are_two_counts(window: Any) -> bool:
    return (
        isinstance(window, tuple)
        and len(window) == 2
        and all(
            isinstance(side, int | np.integer) and not isinstance(side, bool)
            for side in window
        )
        and min(window) >= 0
    )


jax.tree_util.register_dataclass(
    Mask,
    data_fields=["valid", "query_segments", "key_segments"],
    meta_fields=["causal", "window"],
)


class Mechanism(Protocol):
    """An attention mechanism: query, key, value and mask facts to a context."""

    def __call__(self, query: Array, key: Array, value: Array, mask: Mask) -> Attended:
        """Attends with every query; see `Attended` for the shapes."""
        ...


class Tokens(NamedTuple):
    """A batch of token sequences together with its masks.

    Attributes:
        ids: ``[B, T]`` int32.
        valid: ``[B, T]`` bool, True on real tokens; padding lies on the right.
        segments: ``[B, T]`` int32, 1, 2, ... for the packed sentences of a row, 0 on
            padding; None unless sentences are packed.
        positions: ``[B, T]`` int32, position in the own sentence; None unless packed.
    """

    ids: Array
    valid: Array
    segments: Array | None = None
    positions: Array | None = None


class PairBatch(NamedTuple):
    """A batch of source and target sentences, as the data pipeline makes it.

    Attributes:
        source: source sentences, each ending in ``</s>``.
        inputs: decoder inputs: per segment ``<s>`` and the target but its last token.
        labels: ``[B, T]`` int32, the target, each sentence ending in ``</s>``.
        weights: ``[B, T]`` float32, 1 on real labels, 0 on padding.
    """

    source: Tokens
    inputs: Tokens
    labels: Array
    weights: Array


class Encoded(NamedTuple):
    """What an encoder hands to a decoder.

    Attributes:
        states: ``[B, S, D]`` one vector per source position; of several models the
            `Encoded` of each.
        source: the source facts (``valid``, ``segments``) that the states belong to.
        final: the encoder's summary where the family has one (RNN), else None.
        attention: named self-attention weights, each ``[B, H, S, S]``.
    """

    states: Any
    source: Tokens
    final: PyTree
    attention: Mapping[str, Array]


class Choices(NamedTuple):
    """Discrete choices that a model drew in training, one at each target position.

    No gradient passes through a draw; one that is to be learned from needs the cost it
    led to, which the model does not know. So the model hands this to whoever knows it.

    Attributes:
        log_probability: ``[B, T]`` float32 in nats, 0 where nothing was drawn.
        entropy: ``[B, T]`` float32 in nats, of what it was drawn from.
    """

    log_probability: Array
    entropy: Array


class Decoded(NamedTuple):
    """What a teacher-forced decoder computed.

    Attributes:
        logits: ``[B, T, C]`` unnormalised log-probabilities of each position's label.
        attention: named weights: ``[B, H, T, S]`` (cross) and ``[B, H, T, T]`` (self).
            Every model that attends to its source has names ending in "cross".
        choices: that were drawn in training, or None. A model that has some has a
            method ``choice_loss(choices, costs [B, T], weights [B, T])`` too: what they
            add to the objective, given the cost of each target token.
    """

    logits: Array
    attention: Mapping[str, Array]
    choices: Choices | None = None


class Stepped(NamedTuple):
    """What a decoder computed for one more position.

    Attributes:
        logits: ``[B, C]`` of the next token.
        state: for the next step, every leaf leading with the batch axis.
        attention: named cross-attention weights of this position, ``[B, H, S]``, under
            the names of `Decoded`.
    """

    logits: Array
    state: PyTree
    attention: Mapping[str, Array]


class Seq2Seq(Protocol):
    """The one contract of sequence-to-sequence models, each a linen module.

    Loss, search and evaluation use nothing else. ``__call__`` is
    ``decode(encode(source), inputs)``. The incremental pair, ``begin`` and ``step``,
    gives the logits of ``decode`` one position at a time. No array is longer than
    ``longest`` allows, padding included: callers cut or refuse before they lay out.
    """

    @property
    def longest(self) -> Longest:
        """Where tables of positions end."""
        ...

    def __call__(self, source: Tokens, inputs: Tokens, *, train: bool) -> Decoded:
        """Encodes and decodes in one pass, as in training."""
        ...

    def encode(self, source: Tokens, *, train: bool) -> Encoded:
        """Reads the source sentences."""
        ...

    def decode(self, encoded: Encoded, inputs: Tokens, *, train: bool) -> Decoded:
        """Logits of every target position, given the tokens before it."""
        ...

    def begin(self, encoded: Encoded, max_tokens: int) -> tuple[PyTree, PyTree]:
        """Returns ``(constants, state)``; every leaf of both leads with the batch axis.

        ``constants`` are what all steps of a sentence share (projected keys, the source
        mask); ``state`` is what changes (caches, recurrent state, the position).
        """
        ...

    def step(self, constants: PyTree, state: PyTree, tokens: Array) -> Stepped:
        """Last tokens ``[B]`` to logits ``[B, C]`` and the next state."""
        ...


Step = Callable[[PyTree, Array], tuple[Array, PyTree]]
"""What search sees: ``step(state, tokens [B]) -> (logits [B, C], state)``.

Every leaf of the state leads with the batch axis, so that reordering beams is one
``tree.map``."""


class Ratio(NamedTuple):
    """A metric kept as a sum and a count until the last moment, float32 scalars."""

    total: Array
    count: Array  # type: ignore[assignment]  # hides tuple.count, which nobody needs


Metrics = Mapping[str, Ratio]  # "loss" is the objective: gradients follow its total


class Task(Protocol):
    """One kind of problem: loss, metrics and evaluation. The trainer knows no more.

    Attributes:
        unit: what ``metrics["loss"].count`` counts, for the log ("target tokens").
        score: the name in `evaluate`'s result that ranks checkpoints, higher is better.
    """

    unit: str
    score: str

    @property
    def measure(self) -> str:
        """What a score is measured on; scores that differ in it are not compared."""
        ...

    def init(self, rng: jax.Array) -> Variables:
        """Fresh parameters and other collections."""
        ...

    def loss(
        self, variables: Variables, batch: PyTree, rng: jax.Array, *, train: bool
    ) -> tuple[Metrics, Variables]:
        """Summed metrics of one batch, and the non-parameter collections after it."""
        ...

    def evaluate(self, variables: Variables) -> Mapping[str, float]:
        """Scores on the validation set, on the host."""
        ...


class BatchIterator(Protocol):
    """An endless iterator over training batches whose position can be stored."""

    def __next__(self) -> PyTree:
        """The next batch."""
        ...

    def get_state(self) -> Mapping[str, Any]:
        """The exact position, as JSON-serialisable values."""
        ...

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Continues exactly where `get_state` was called."""
        ...
