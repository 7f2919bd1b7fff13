"""The scorer of an attention layer: one switch for RNNs and multi-head attention."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from attnjax.config import ScorerName
from attnjax.ops import scorers
from attnjax.partitioning import named
from attnjax.types import Array


class Scorer(nn.Module):
    """Scores queries against keys; owns the parameters that its kind needs.

    Used in two steps, so that work on the keys is done once per sentence::

        prepared = scorer.prepare(key)
        scores = scorer(query, prepared)  # again and again

    ==========  ==================================  ===============================
    kind        score                               parameters (after a head axis)
    ==========  ==================================  ===============================
    dot         ``q · k``                           none
    scaled_dot  ``q · k / sqrt(K)``                 none
    general     ``q W k``                           ``weight [K_query, K_key]``
    additive    ``v · tanh(W_q q + W_k k + b)``     ``query_kernel [K_query, A]``,
                                                    ``key_kernel [K_key, A]``,
                                                    ``bias [A]``, ``vector [A]``
    concat      ``v · tanh(W [q; k])``              ``weight [K_query + K_key, A]``,
                                                    ``vector [A]``
    location    ``(q W)[s]``, blind to the keys     ``table [K_query, P]``
    ==========  ==================================  ===============================

    Attributes:
        kind: which score; see `attnjax.ops.scorers`.
        query_width: K of the queries.
        key_width: K of the keys; the dot products need ``query_width``.
        num_heads: H if queries and keys are ``[B, H, ..., K]``, each head with its own
            parameters; None if they have no head axis.
        width: A of the additive and concat scorers.
        max_keys: P of the location scorer, the most keys it can score.
        dtype: of the computation; parameters are float32.
    """

    kind: ScorerName
    query_width: int
    key_width: int
    num_heads: int | None = None
    width: int = 256
    max_keys: int = 256
    dtype: Any = jnp.float32

    def setup(self) -> None:
        """Makes the parameters of this kind, and refuses unequal widths in a dot."""
        if self.kind in ("dot", "scaled_dot") and self.query_width != self.key_width:
            raise ValueError(
                f"the {self.kind} scorer needs queries and keys of equal width, got "
                f"{self.query_width} and {self.key_width}; project one of them, or use "
                "general or additive."
            )
        heads = () if self.num_heads is None else (self.num_heads,)
        axes = ("model",) if self.num_heads is None else ("heads", None)
        batch_axis = tuple(range(len(heads)))
        matrix_init = nn.initializers.xavier_uniform(batch_axis=batch_axis)

        def matrix(name: str, *shape: int) -> jax.Array:
            init = named(matrix_init, *axes, None)
            parameter = self.param(name, init, (*heads, *shape))
            return jnp.asarray(parameter, self.dtype)

        def vector(name: str, init: nn.initializers.Initializer) -> jax.Array:
            parameter = self.param(name, init, (*heads, self.width))
            return jnp.asarray(parameter, self.dtype)

        match self.kind:
            case "general":
                self.weight = matrix("weight", self.query_width, self.key_width)
            case "additive":
                self.query_kernel = matrix("query_kernel", self.query_width, self.width)
                self.key_kernel = matrix("key_kernel", self.key_width, self.width)
                self.bias = vector("bias", nn.initializers.zeros)
                self.vector = vector("vector", nn.initializers.normal(self.width**-0.5))
            case "concat":
                joined_width = self.query_width + self.key_width
                self.weight = matrix("weight", joined_width, self.width)
                self.vector = vector("vector", nn.initializers.normal(self.width**-0.5))
            case "location":
                self.table = matrix("table", self.query_width, self.max_keys)

    def prepare(self, key: Array) -> jax.Array:
        """Does all work that depends on the keys alone.

        Args:
            key: ``[..., S, K_key]``.

        Returns:
            Prepared keys ``[..., S, *]`` for `__call__`. The location scorer reads
            nothing but their number: its prepared keys have width 0.
        """
        key = jnp.asarray(key, self.dtype)
        match self.kind:
            case "general":
                return scorers.general_keys(key, self.weight)
            case "additive":
                key_projected = jnp.einsum("...sk,...ka->...sa", key, self.key_kernel)
                return key_projected + _as_row(self.bias, key_projected.ndim)
            case "concat":
                _, of_key = scorers.concat_parts(self.weight, self.query_width)
                return jnp.einsum("...sk,...ka->...sa", key, of_key)
            case "location":
                return key[..., :0]
            case _:
                return key

    def __call__(self, query: Array, prepared: Array) -> jax.Array:
        """Scores every query against every key.

        Args:
            query: ``[..., T, K_query]``.
            prepared: ``[..., S, *]``, from `prepare`.

        Returns:
            ``[..., T, S]``.

        Raises:
            ValueError: if there are more keys than ``max_keys`` (location).
        """
        query = jnp.asarray(query, self.dtype)
        match self.kind:
            case "scaled_dot":
                return scorers.scaled_dot_scores(query, prepared)
            case "additive":
                query_projected = jnp.einsum(
                    "...tk,...ka->...ta", query, self.query_kernel
                )
                return scorers.additive_scores(query_projected, prepared, self.vector)
            case "concat":
                of_query, _ = scorers.concat_parts(self.weight, self.query_width)
                query_projected = jnp.einsum("...tk,...ka->...ta", query, of_query)
                return scorers.additive_scores(query_projected, prepared, self.vector)
            case "location":
                num_keys = prepared.shape[-2]
                return scorers.location_scores(query, self.table, num_keys)
            case _:  # dot, and general once its keys are projected
                return scorers.dot_scores(query, prepared)


def _as_row(bias: jax.Array, ndim: int) -> jax.Array:
    """``[..., A]`` as ``[1, ..., 1, A]`` of rank `ndim`; a head axis stays put."""
    bias = bias[..., None, :]
    return bias.reshape((1,) * (ndim - bias.ndim) + bias.shape)
