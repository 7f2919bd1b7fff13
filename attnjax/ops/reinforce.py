"""The gradient of an expected cost over choices that were drawn: REINFORCE.

With choices ``s`` of probability ``p(s)`` and costs ``c(s)`` that follow from them
(Williams 1992; Xu et al. 2015, section 4.1 and eq. 11 to 12)::

    grad E[c] = E[grad c(s)] + E[(c(s) - b) grad log p(s)]        for any b without s

The first term is ordinary backpropagation with the choices held fixed; `surrogate` has
the second as its gradient. Xu et al. write it with a reward, ``log p(y | s)``, which is
minus the cost here.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from attnjax.ops.door import require_same_shape
from attnjax.types import Array


class Baseline(NamedTuple):
    """A moving average of the cost of a token, as two moving sums.

    Sums make the average exact from the first batch on, weigh each token alike, and are
    additive over devices.

    Attributes:
        cost: float32 scalar.
        tokens: float32 scalar.
    """

    cost: Array
    tokens: Array

    @property
    def value(self) -> Array:
        """The average cost of a token; 0 before the first batch."""
        return self.cost / jnp.where(self.tokens > 0, self.tokens, 1.0)

    def moved(self, costs: Array, weights: Array, decay: float) -> Baseline:
        """The baseline after one more batch, ``b <- decay b + (1 - decay) mean cost``.

        Args:
            costs: ``[B, T]`` of the tokens, in nats.
            weights: ``[B, T]``, 1 for tokens that count and 0 for padding.
            decay: 0.9 in Xu et al. 2015.

        Returns:
            The next baseline.

        Raises:
            ValueError: if shapes differ.
        """
        require_same_shape("Baseline.moved", costs=costs, weights=weights)
        cost = jnp.sum(jax.lax.stop_gradient(costs) * weights)
        return Baseline(
            decay * self.cost + (1 - decay) * cost,
            decay * self.tokens + (1 - decay) * jnp.sum(weights),
        )


def empty_baseline() -> Baseline:
    """The baseline before the first batch."""
    return Baseline(jnp.zeros((), jnp.float32), jnp.zeros((), jnp.float32))


def advantages(costs: Array, weights: Array, baseline: Array) -> jax.Array:
    """How much worse than usual it went from each position on.

    ``A_t = sum_{t' >= t} (c_t' - b)``. A choice at ``t`` cannot change an earlier cost,
    so that leaving those out keeps the expected gradient that Xu et al.'s cost of the
    whole sentence has, at less variance; the baseline is that of the remaining tokens.

    Args:
        costs: ``[B, T]`` of the tokens, in nats.
        weights: ``[B, T]``, 1 for tokens that count and 0 for padding.
        baseline: scalar, the usual cost of a token.

    Returns:
        ``[B, T]`` float32, without a gradient.

    Raises:
        ValueError: if shapes differ.
    """
    require_same_shape("advantages", costs=costs, weights=weights)
    excess = (costs.astype(jnp.float32) - baseline) * weights
    return jax.lax.stop_gradient(jnp.cumsum(excess[:, ::-1], axis=1)[:, ::-1])


def surrogate(log_probability: Array, advantage: Array, weights: Array) -> jax.Array:
    """A term whose gradient is ``sum_t A_t grad log p(s_t)``, and whose value is 0.

    Its value would mean nothing, so that it is taken out of the loss that is reported.

    Args:
        log_probability: ``[B, T]`` of the choices, in nats.
        advantage: ``[B, T]`` from `advantages`.
        weights: ``[B, T]``, 1 for tokens that count and 0 for padding.

    Returns:
        Float32 scalar, summed over the batch.

    Raises:
        ValueError: if shapes differ.
    """
    require_same_shape(
        "surrogate",
        log_probability=log_probability,
        advantage=advantage,
        weights=weights,
    )
    term = jnp.sum(advantage * log_probability * weights)
    return term - jax.lax.stop_gradient(term)
