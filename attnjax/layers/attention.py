"""Multi-head attention with any scorer or mechanism, whole or one step at a time."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from attnjax.config import PositionsName, ScorerName
from attnjax.fields import Options
from attnjax.layers.dropout import Dropout
from attnjax.layers.linear import Linear
from attnjax.layers.mechanism import CatalogAttention, require_slot
from attnjax.layers.positions import RelativePositions
from attnjax.layers.scorer import Scorer
from attnjax.ops.attend import Dense
from attnjax.ops.catalog import MECHANISMS, entry
from attnjax.ops.entry import Entry, Sizes, Slot
from attnjax.ops.relative import Bias
from attnjax.types import Array, Attended, Mask, PyTree


class Memory(NamedTuple):
    """Keys and values of a sequence, split into heads and ready to be attended to.

    Attributes:
        key: ``[B, H, S, *]``, prepared by the scorer.
        value: ``[B, H, S, K]``.
    """

    key: Array
    value: Array


class MultiHeadAttention(nn.Module):
    """Attention of H heads, each on its own projections (Vaswani et al. 2017, 3.2.2).

    ``head_h = attention(x W_q, y W_k, y W_v); output = [head_1 ... head_H] W_o``

    One instance either attends to its own input (`attend_self`, and for decoding
    `begin` and `step`) or to a memory (`prepare`, once per sentence, and
    `attend_memory`). Masks carry no head axis.

    Attributes:
        width: D, of input and output.
        num_heads: H; each head is ``D / H`` wide.
        scorer: how a query scores a key.
        max_keys: longest memory of the location scorer and of mechanisms with arrays
            as long as the keys; no limit for the others.
        mechanism: the options of a line of the catalog.
        slot: where in a model this layer stands.
        positions: terms between two positions, of `attend_self` and `step`.
        dropout: rate on the attention weights, of mechanisms that take a scorer.
        dtype: of the computation; parameters are float32.

    Raises:
        ValueError: at construction, if the heads do not divide the width, the mechanism
            has no place in the slot, or it would not see scorer, dropout or positions.
    """

    width: int
    num_heads: int
    scorer: ScorerName = "scaled_dot"
    max_keys: int = 256
    mechanism: Options = Dense()
    slot: Slot = "encoder"
    positions: PositionsName = "none"
    dropout: float = 0.0
    dtype: Any = jnp.float32

    def __post_init__(self) -> None:
        """Checks the fields."""
        if self.width % self.num_heads:
            raise ValueError(
                f"width must be a multiple of num_heads, got {self.width=}, "
                f"{self.num_heads=}."
            )
        require_slot(self.mechanism, self.slot, self._sizes)
        takes_scorer = self.line.accepts_score
        if not takes_scorer and (self.dropout or self.scorer != "scaled_dot"):
            raise ValueError(
                "scorer and attention dropout belong to dense attention and would not "
                f"reach {MECHANISMS.name(self.mechanism)}, got {self.scorer=}, "
                f"{self.dropout=}; leave both at their defaults, or use Dense()."
            )
        _require_positions(self.mechanism, self.positions)
        super().__post_init__()

    @property
    def line(self) -> Entry:
        """The catalog's entry."""
        return entry(self.mechanism)

    @property
    def _sizes(self) -> Sizes:
        head_width = self.width // self.num_heads
        return Sizes(self.num_heads, head_width, head_width, self.max_keys)

    def setup(self) -> None:
        """Names the projections; one that is never used takes no parameters."""
        shared = self.line.shares_query_key
        into_heads = functools.partial(
            Linear, self.width, dtype=self.dtype, axes=("model", "heads")
        )
        self.query_key_value = into_heads(parts=2 if shared else 3)
        self.query = into_heads()
        self.key_value = into_heads(parts=2)
        self.output = Linear(self.width, dtype=self.dtype, axes=("heads", "model"))
        self.weight_dropout = Dropout(self.dropout)
        head_width = self.width // self.num_heads
        self.relative = RelativePositions(
            self.positions, self.num_heads, bidirectional=self.slot != "decoder"
        )
        self.attention = CatalogAttention(self.mechanism, self._sizes)
        if not self.line.accepts_score:
            return
        self.score = Scorer(
            kind=self.scorer,
            query_width=head_width,
            key_width=head_width,
            num_heads=self.num_heads,
            width=head_width,
            max_keys=self.max_keys,
            dtype=self.dtype,
        )

    def attend_self(self, x: Array, mask: Mask, *, train: bool) -> Attended:
        """Attends from every position of a sequence to that sequence.

        Args:
            x: ``[B, T, D]``.
            mask: which position may attend to which.
            train: whether dropout acts.

        Returns:
            ``[B, T, D]`` and the weights ``[B, H, T, T]``.
        """
        positions = jnp.arange(x.shape[1])[None, :]
        query, key, value = self._project_self(x, positions)
        memory = Memory(self._prepare_key(key), value)
        bias = self.relative.bias()
        return self._attend(query, memory, mask, bias=bias, train=train)

    def prepare(self, states: Array) -> Memory:
        """Projects what is attended to, once for all queries.

        Args:
            states: ``[B, S, D]``.

        Returns:
            Keys and values per head.
        """
        key, value = self._split_heads(self.key_value(states))
        return Memory(self._prepare_key(key), value)

    def attend_memory(
        self, x: Array, memory: Memory, mask: Mask, *, train: bool
    ) -> Attended:
        """Attends to a memory made by `prepare`.

        Args:
            x: ``[B, T, D]``.
            memory: keys and values.
            mask: which position may attend to which of the memory.
            train: whether dropout acts.

        Returns:
            ``[B, T, D]`` and the weights ``[B, H, T, S]``.
        """
        (query,) = self._split_heads(self.query(x)[:, :, None])
        return self._attend(query, memory, mask, train=train)

    def begin(self, batch_size: int, max_tokens: int) -> PyTree:
        """An empty cache for `step`.

        Args:
            batch_size: B.
            max_tokens: how many steps it holds.

        Returns:
            Keys and values of `max_tokens` positions, to be filled in, or what else the
            mechanism keeps of earlier positions.
        """
        head_width = self.width // self.num_heads
        key = self._prepare_key(jnp.zeros((1, self.num_heads, 1, head_width)))
        return self.attention.begin(batch_size, max_tokens, key.shape[-1], self.dtype)

    def step(self, x: Array, cache: PyTree, position: Array) -> tuple[Array, PyTree]:
        """Causal self-attention for one position; equals that row of `attend_self`.

        Args:
            x: ``[B, D]``, the input at this position.
            cache: from `begin`, or the step before.
            position: ``[B]`` int, the position in each row, below ``max_tokens``.

        Returns:
            ``[B, D]``, and the cache that includes this position.
        """
        query, key, value = self._project_self(x[:, None], position[:, None])
        inputs = query, self._prepare_key(key), value
        context, cache = self.attention.step(
            inputs, cache, position, bias=self.relative.bias(), **self._scorer()
        )
        return self._joined(context)[:, 0], cache

    def _project_self(self, x: Array, positions: Array) -> tuple[Array, Array, Array]:
        """Query, key and value ``[B, H, T, K]`` of one sequence."""
        *query_key, value = self._split_heads(self.query_key_value(x))
        if len(query_key) == 1:  # one projection for both: keys of unit length
            (query,) = query_key
            square = jnp.square(query.astype(jnp.float32)).mean(-1, keepdims=True)
            key = query * jax.lax.rsqrt(square + 1e-6).astype(query.dtype)
        else:
            query, key = query_key
        turned = self.relative.turned
        return turned(query, positions), turned(key, positions), value

    def _prepare_key(self, key: Array) -> Array:
        return self.score.prepare(key) if self.line.accepts_score else key

    def _scorer(self) -> dict[str, Any]:
        return {"score": self.score} if self.line.accepts_score else {}

    def _attend(
        self,
        query: Array,
        memory: Memory,
        mask: Mask,
        *,
        bias: Bias | None = None,
        train: bool,
    ) -> Attended:
        scoring = self._scorer()
        if scoring:
            scoring["dropout"] = functools.partial(self.weight_dropout, train=train)
        context, weights = self.attention(
            query,
            memory.key,
            memory.value,
            mask.over_heads(),
            bias=bias,
            train=train,
            **scoring,
        )
        return Attended(self._joined(context), weights)

    def _joined(self, context: Array) -> Array:
        """Heads ``[B, H, T, V]`` side by side, and the output projection."""
        joined = context.swapaxes(1, 2).reshape(context.shape[0], -1, self.width)
        return self.output(joined)

    def _split_heads(self, projected: Array) -> tuple[Array, ...]:
        """``[B, T, parts, D]`` to one ``[B, H, T, K]`` for each part."""
        batch, length, parts, _ = projected.shape
        split = projected.reshape(batch, length, parts, self.num_heads, -1)
        return tuple(jnp.transpose(split, (2, 0, 3, 1, 4)))


def _require_positions(mechanism: Options, positions: PositionsName) -> None:
    kind, line = MECHANISMS.name(mechanism), entry(mechanism)
    if positions in ("relative", "alibi") and not line.accepts_bias:
        raise ValueError(
            f"{positions} positions are added to the scores, which {kind} attention "
            "does not form pair by pair; use sinusoids or learned positions with it."
        )
    if positions == "rotary" and not line.pairwise:
        raise ValueError(
            f"rotary positions need scores that are dot products of one query and one "
            f"key; {kind} attention mixes them first. Use sinusoids or learned "
            "positions with it."
        )
