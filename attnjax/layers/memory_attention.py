"""Attention of a recurrent decoder over the memory that an encoder left."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from attnjax.config import ScorerName
from attnjax.fields import Options
from attnjax.layers.linear import Linear
from attnjax.layers.scorer import Scorer
from attnjax.ops import hard, selection
from attnjax.ops.attend import Dense
from attnjax.ops.selection import BestKeys, LocalM, LocalP
from attnjax.ops.softmax import masked_softmax
from attnjax.partitioning import named
from attnjax.types import Array, Choices

PreparedMemory = Mapping[str, Array]


class Focus(NamedTuple):
    """Where queries look.

    Attributes:
        weights: ``[B, T, W]``, of all S keys or of a window of them.
        start: ``[B, T]`` int, the first key of each window; None if W = S.
        choices: of hard attention, if keys were drawn.
    """

    weights: Array
    start: Array | None = None
    choices: Choices | None = None

    def over(self, num_keys: int) -> Array:
        """The weights of all keys, ``[B, T, S]``."""
        if self.start is None:
            return self.weights
        return selection.spread_window(self.weights, self.start, num_keys)

    def mean(self, value: Array) -> jax.Array:
        """The context, ``c_t = sum_s w_ts v_s``; a single query reads its window only.

        Args:
            value: ``[B, S, V]``.

        Returns:
            ``[B, T, V]``.
        """
        if self.start is not None and self.start.shape[1] == 1:
            width = self.weights.shape[-1]
            value = selection.take_window(value, self.start[:, 0], width)
            return weighted_mean(self.weights, value)
        return weighted_mean(self.over(value.shape[1]), value)


class MemoryAttention(nn.Module):
    """One attention head whose weights and context are computed apart.

    The context is linear in the weights. A recurrence that needs the context only to
    multiply it by a matrix can therefore multiply the memory instead, once per
    sentence, and all contexts are formed together after the recurrence.

    The dot products need a memory as wide as the query. Where it is not (that of a
    bidirectional encoder), a learned map brings it to that width, once per sentence;
    the context is then a mean of the mapped memory.

    A query that looks at a window (local_m, local_p) scores the keys of that window and
    no others, if it comes alone, as in a recurrence or a decoding step.

    Attributes:
        kind: the scorer.
        query_width: D, of the decoder's hidden state.
        memory_width: N, of the encoder's states.
        width: A of the additive and concat scorers, and of the predicted centre.
        max_keys: table size of the location scorer.
        selection: which of the scored keys are used.
        dtype: of the computation; parameters and softmax are float32.
    """

    kind: ScorerName
    query_width: int
    memory_width: int
    width: int = 256
    max_keys: int = 256
    selection: Options = Dense()
    dtype: Any = jnp.float32

    def setup(self) -> None:
        """Makes the scorer, and what else the kind and the selection need."""
        is_dot = self.kind in ("dot", "scaled_dot")
        self.maps_memory = is_dot and self.memory_width != self.query_width
        if self.maps_memory:
            self.memory_map = Linear(self.query_width, dtype=self.dtype)
        if isinstance(self.selection, LocalP):
            init = named(nn.initializers.xavier_uniform(), "model", None)
            shape = (self.query_width, self.width)
            self.centre_kernel = self.param("centre_kernel", init, shape)
            init = nn.initializers.normal(self.width**-0.5)
            self.centre_vector = self.param("centre_vector", init, (self.width,))
        self.scorer = Scorer(
            self.kind,
            query_width=self.query_width,
            key_width=self.query_width if self.maps_memory else self.memory_width,
            width=self.width,
            max_keys=self.max_keys,
            dtype=self.dtype,
        )

    def prepare(self, memory: Array, valid: Array) -> PreparedMemory:
        """Does all work that is the same for every query.

        Args:
            memory: ``[B, S, N]``.
            valid: ``[B, S]`` bool, True on real positions.

        Returns:
            ``value [B, S, V]``, ``key [B, S, *]`` and ``valid [B, S]``.
        """
        value = self.memory_map(memory) if self.maps_memory else memory
        return {"value": value, "key": self.scorer.prepare(value), "valid": valid}

    def __call__(
        self,
        query: Array,
        memory: PreparedMemory,
        position: Array | None = None,
        noise: Array | None = None,
    ) -> Focus:
        """Weighs the memory for each query.

        Args:
            query: ``[B, T, D]``.
            memory: from `prepare`; with ``is_soft [B]`` bool, sentences that attend to
                all keys where a key is drawn for the others.
            position: ``[B, T]`` int, of the queries (local_m reads it).
            noise: ``[B, T, S]`` from `jax.random.gumbel`, where a key is drawn; None
                takes the best one (hard, gumbel).

        Returns:
            Weights whose rows sum to 1 (less under local_p's Gaussian), or to 0 for an
            empty sentence.

        Raises:
            ValueError: if local_m is not given the positions.
        """
        chosen = self.selection
        if isinstance(chosen, LocalM):
            return self._local(query, memory, position, chosen)
        scores_bts = self.scorer(query, memory["key"])
        valid_bts = memory["valid"][:, None, :]
        match chosen:
            case BestKeys(top_k=top_k):
                return Focus(selection.top_k_weights(scores_bts, valid_bts, top_k))
            case hard.GumbelChoice(temperature=temperature):
                return Focus(
                    hard.straight_through(scores_bts, valid_bts, noise, temperature)
                )
            case hard.HardChoice():
                return _drawn(scores_bts, valid_bts, noise, memory.get("is_soft"))
            case _:  # all keys
                return Focus(masked_softmax(scores_bts, valid_bts))

    def _local(
        self,
        query: Array,
        memory: PreparedMemory,
        position: Array | None,
        chosen: LocalM,
    ) -> Focus:
        num_keys, window = memory["valid"].shape[1], chosen.window
        width = selection.window_width(window, num_keys)
        centre_bt = self._centre(query, memory, position)
        valid_btw: Array
        is_alone = query.shape[1] == 1 and width < num_keys
        if is_alone:
            start_b = selection.window_start(centre_bt[:, 0], window, num_keys)
            scores_btw = self._window_scores(query, memory["key"], start_b, width)
            valid = selection.take_window(memory["valid"][..., None], start_b, width)
            valid_btw = jnp.swapaxes(valid, 1, 2)
        else:
            start_b = jnp.zeros(query.shape[:1], jnp.int32)
            scores_btw = self.scorer(query, memory["key"])
            valid_btw = memory["valid"][:, None, :]
        weights_btw = selection.local_weights(
            scores_btw,
            start_b[:, None, None] + jnp.arange(valid_btw.shape[-1])[None, None, :],
            centre_bt,
            valid_btw,
            window=window,
            gaussian=isinstance(chosen, LocalP),
        )
        return Focus(weights_btw, start_b[:, None] if is_alone else None)

    def _centre(
        self, query: Array, memory: PreparedMemory, position: Array | None
    ) -> Array:
        lengths = jnp.sum(memory["valid"], axis=-1)
        if isinstance(self.selection, LocalP):
            kernel = jnp.asarray(self.centre_kernel, self.dtype)
            vector = jnp.asarray(self.centre_vector, self.dtype)
            return selection.predicted_centre(query, kernel, vector, lengths)
        if position is None:
            raise ValueError("local_m attention looks around the position of a query.")
        return selection.monotonic_centre(position, lengths)

    def _window_scores(
        self, query: Array, key: Array, start: Array, width: int
    ) -> Array:
        if self.kind == "location":  # reads a table by absolute position, not the keys
            scores_bst = jnp.swapaxes(self.scorer(query, key), 1, 2)
            scores_bwt = selection.take_window(scores_bst, start, width)
            return jnp.swapaxes(scores_bwt, 1, 2)
        return self.scorer(query, selection.take_window(key, start, width))


def weighted_mean(weights: Array, value: Array) -> jax.Array:
    """The context, ``c_t = sum_s w_ts v_s``.

    Args:
        weights: ``[B, T, S]``.
        value: ``[B, S, V]``.

    Returns:
        ``[B, T, V]``.
    """
    return jnp.einsum("bts,bsv->btv", weights, value)


def _drawn(
    scores: Array, valid: Array, noise: Array | None, is_soft: Array | None
) -> Focus:
    """Hard attention: weights without a gradient, and what REINFORCE needs."""
    chosen_bts = hard.choose(scores, valid, noise)
    if noise is None:
        return Focus(chosen_bts)
    log_probability = hard.log_probability(scores, valid, chosen_bts)
    if is_soft is not None:
        is_soft = is_soft[:, None]
        weights_bts = masked_softmax(scores, valid)
        chosen_bts = jnp.where(is_soft[..., None], weights_bts, chosen_bts)
        log_probability = jnp.where(is_soft, 0.0, log_probability)
    choices = Choices(log_probability, hard.entropy(scores, valid))
    return Focus(chosen_bts, None, choices)
