"""Attention to one key: the choice, its probability, and gradients through it.

A choice is drawn with the Gumbel-max trick: with independent ``g_s = -log(-log u_s)``,
``argmax_s(e_s + g_s)`` has the probabilities ``softmax(e)``. So the caller hands in
noise for a draw, and none for the best key.
"""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any, Literal

import jax
import jax.numpy as jnp

from attnjax.fields import (
    Fraction,
    NotNegative,
    Options,
    ReadWith,
    Seed,
    Temperature,
    Within,
)
from attnjax.ops.door import door, require_allowed, require_same_shape
from attnjax.ops.masks import allowed, with_rank
from attnjax.ops.relative import Bias, biased
from attnjax.ops.scorers import scaled_dot_scores
from attnjax.ops.softmax import masked_softmax
from attnjax.types import Array, Attended, Mask


@dataclasses.dataclass(frozen=True, kw_only=True)
class Hard(Options):
    """A single key: drawn in training, the best one at test time."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Gumbel(Options):
    """A single key, with the gradient of a relaxed choice."""

    temperature: Temperature = 1.0  # temperature tau of the relaxed choice


_SAMPLED = ReadWith({"test_choice": ("sample",)})


@dataclasses.dataclass(frozen=True, kw_only=True)
class HardChoice(Options):
    """A single key, learned by REINFORCE (Xu et al. 2015, section 4.1)."""

    # key at test time: the best one, or one drawn with its probability
    test_choice: Literal["argmax", "sample"] = "argmax"
    seed: Annotated[Seed, _SAMPLED] = 0  # seed of what is drawn at test time
    # share of training sentences that attend to all keys after all
    soft_rate: Annotated[float, Within(least=0, most=1)] = 0.5
    cost_weight: NotNegative = 1.0  # lambda_r, of the gradient by REINFORCE
    entropy_weight: NotNegative = 0.01  # lambda_e, of the choices' entropy in nats
    baseline_decay: Fraction = 0.9  # decay of the moving average of a token's cost


@dataclasses.dataclass(frozen=True, kw_only=True)
class GumbelChoice(Gumbel):
    """A single key, with the gradient of a relaxed choice (Jang et al. 2017)."""

    # key at test time: the best one, or one drawn with its probability
    test_choice: Literal["argmax", "sample"] = "argmax"
    seed: Annotated[Seed, _SAMPLED] = 0  # seed of what is drawn at test time


def choose(
    scores: Array, allowed: Array | None, noise: Array | None = None
) -> jax.Array:
    """One key per query: the best, or with noise one drawn from the softmax.

    Args:
        scores: ``[..., T, S]``.
        allowed: bool, as `masked_softmax` takes it; None allows every key.
        noise: ``[..., T, S]`` from `jax.random.gumbel`; None takes the best key.

    Returns:
        ``[..., T, S]`` in the dtype of ``scores``, 1 at the key and 0 elsewhere; all 0
        where no key is allowed. No gradient passes.

    Raises:
        ValueError: if the arrays do not fit together.
    """
    possible = _possible(scores, allowed)
    merit = _noisy(scores, noise)
    merit = jax.lax.stop_gradient(jnp.where(possible, merit, -jnp.inf))
    keys = jnp.arange(scores.shape[-1])
    is_best = with_rank(keys, merit.ndim) == jnp.argmax(merit, axis=-1, keepdims=True)
    return (is_best & possible).astype(scores.dtype)


def log_probability(scores: Array, allowed: Array | None, chosen: Array) -> jax.Array:
    """``log softmax(e)_s`` of the key ``s`` that was chosen.

    Args:
        scores: ``[..., T, S]``.
        allowed: bool, as `masked_softmax` takes it; None allows every key.
        chosen: ``[..., T, S]`` from `choose`.

    Returns:
        ``[..., T]`` float32 in nats; 0 where no key is allowed.

    Raises:
        ValueError: if the arrays do not fit together.
    """
    require_same_shape("log_probability", scores=scores, chosen=chosen)
    return jnp.sum(chosen * _log_softmax(scores, allowed), axis=-1)


def entropy(scores: Array, allowed: Array | None) -> jax.Array:
    """``H = -sum_s p_s log p_s`` of the distribution that keys are drawn from.

    Args:
        scores: ``[..., T, S]``.
        allowed: bool, as `masked_softmax` takes it; None allows every key.

    Returns:
        ``[..., T]`` float32 in nats; 0 where no key is allowed.

    Raises:
        ValueError: if the arrays do not fit together.
    """
    require_allowed(scores, allowed)
    weights = masked_softmax(scores.astype(jnp.float32), allowed)
    return -jnp.sum(weights * _log_softmax(scores, allowed), axis=-1)


def straight_through(
    scores: Array,
    allowed: Array | None,
    noise: Array | None = None,
    temperature: float = 1.0,
) -> jax.Array:
    """A choice in the forward pass, a softmax in the backward pass.

    ``w = onehot(argmax_s(e_s + g_s))``, with the gradient of
    ``softmax((e + g) / temperature)``: straight-through Gumbel-softmax (Jang et al.
    2017, section 2.2). The gradient is biased, the less so the lower the temperature,
    and its variance grows as the temperature falls.

    Args:
        scores: ``[..., T, S]``.
        allowed: bool, as `masked_softmax` takes it; None allows every key.
        noise: ``[..., T, S]`` from `jax.random.gumbel`; None takes the best key.
        temperature: tau, of the softmax.

    Returns:
        ``[..., T, S]`` in the dtype of ``scores``; all 0 where no key is allowed.

    Raises:
        ValueError: if the arrays do not fit together, or the temperature is not above
            0.
    """
    if not temperature > 0.0:
        raise ValueError(f"temperature must be above 0, got {temperature}.")
    require_allowed(scores, allowed)
    relaxed = masked_softmax(_noisy(scores, noise) / temperature, allowed)
    chosen = choose(scores, allowed, noise)
    return chosen + (relaxed - jax.lax.stop_gradient(relaxed)).astype(scores.dtype)


def noise_at(position: Array, num_keys: int, seed: int) -> jax.Array:
    """Noise for draws at test time, which depends on the position alone.

    Every sentence and beam sees the same noise, so that a translation does not depend
    on what else is in its batch; that of the first keys is the same for any ``S``.

    Args:
        position: ``[...]`` int, of the queries.
        num_keys: S.
        seed: of all noise.

    Returns:
        ``[..., S]`` float32.
    """
    rng = jax.random.key(seed)

    def at(position: Array) -> jax.Array:
        return jax.random.gumbel(jax.random.fold_in(rng, position), (num_keys,))

    return jax.vmap(at)(position.ravel()).reshape(*position.shape, num_keys)


@door
def hard_attention(
    query: Array,
    key: Array,
    value: Array,
    mask: Mask,
    *,
    rng: Array | None = None,
    bias: Bias | None = None,
) -> Attended:
    """Attention to one key: drawn with its softmax probability, or the best.

    The hard attention of Xu et al. 2015, section 4.1, inside a network of many layers.
    Their gradient, REINFORCE, needs the cost that a choice led to, which a layer does
    not know: here the gradient is that of the softmax (straight-through, Bengio et al.
    2013), biased but of low variance. The recurrent models have REINFORCE
    (`HardChoice`).

    Args:
        query: ``[..., T, K]``.
        key: ``[..., S, K]``.
        value: ``[..., S, V]``.
        mask: which query may attend to which key; every fact is honoured.
        rng: of the draw; None takes the best key.
        bias: added to the scores, a function of the offset of key from query.

    Returns:
        Context ``[..., T, V]``, one of the values for each query, and its weights.
    """
    scores, permitted = _scored(query, key, mask, bias)
    relaxed = masked_softmax(scores, permitted)
    chosen = choose(scores, permitted, _gumbel(rng, scores))
    return _mean(chosen + (relaxed - jax.lax.stop_gradient(relaxed)), value)


@door
def gumbel_attention(
    query: Array,
    key: Array,
    value: Array,
    mask: Mask,
    *,
    temperature: float = 1.0,
    rng: Array | None = None,
    bias: Bias | None = None,
) -> Attended:
    """Attention to one key with the straight-through Gumbel-softmax as its gradient.

    See `straight_through`; Jang et al. 2017. In contrast to `hard_attention` the
    gradient is that of the softmax which contains the noise of the draw.

    Args:
        query: ``[..., T, K]``.
        key: ``[..., S, K]``.
        value: ``[..., S, V]``.
        mask: which query may attend to which key; every fact is honoured.
        temperature: tau, of the softmax that gives the gradient.
        rng: of the draw; None takes the best key.
        bias: added to the scores, a function of the offset of key from query.

    Returns:
        Context ``[..., T, V]``, one of the values for each query, and its weights.
    """
    scores, permitted = _scored(query, key, mask, bias)
    noise = _gumbel(rng, scores)
    return _mean(straight_through(scores, permitted, noise, temperature), value)


def attend_to_best(scores: Array, value: Array, mask: Mask, **options: Any) -> Attended:
    """The value of the best key, for decoding one position at a time.

    Args:
        scores: ``[..., T, S]``.
        value: ``[..., S, V]``.
        mask: which query may attend to which key.
        **options: of the mechanism; not needed for the best key.

    Returns:
        Context ``[..., T, V]`` and weights ``[..., T, S]``.
    """
    del options
    return _mean(choose(scores, allowed(mask, scores.shape)), value)


def _scored(
    query: Array, key: Array, mask: Mask, bias: Bias | None
) -> tuple[Array, Array | None]:
    """Float32 scores, since rounding would change which key is the best."""
    scores = scaled_dot_scores(query.astype(jnp.float32), key.astype(jnp.float32))
    return biased(scores, bias), allowed(mask, scores.shape)


def _mean(weights: jax.Array, value: Array) -> Attended:
    context = jnp.einsum("...ts,...sv->...tv", weights.astype(value.dtype), value)
    return Attended(context, weights)


def _gumbel(rng: Array | None, scores: Array) -> jax.Array | None:
    return None if rng is None else jax.random.gumbel(rng, scores.shape)


def _noisy(scores: Array, noise: Array | None) -> jax.Array:
    merit = jnp.asarray(scores, jnp.float32)
    if noise is None:
        return merit
    require_same_shape("a draw", scores=scores, noise=noise)
    return merit + noise


def _possible(scores: Array, allowed: Array | None) -> jax.Array:
    require_allowed(scores, allowed)
    every = jnp.ones(scores.shape, bool)
    return every if allowed is None else every & allowed


def _log_softmax(scores: Array, allowed: Array | None) -> jax.Array:
    """Log-probabilities ``[..., T, S]`` float32, 0 for keys that are not allowed."""
    possible = _possible(scores, allowed)
    any_possible = jnp.any(possible, axis=-1, keepdims=True)
    scores = scores.astype(jnp.float32)
    peak = jnp.max(jnp.where(possible, scores, -jnp.inf), axis=-1, keepdims=True)
    peak = jax.lax.stop_gradient(jnp.where(any_possible, peak, 0.0))
    shifted = jnp.where(possible, scores - peak, 0.0)
    total = jnp.sum(jnp.where(possible, jnp.exp(shifted), 0.0), axis=-1, keepdims=True)
    log_total = jnp.log(jnp.where(any_possible, total, 1.0))
    return jnp.where(possible, shifted - log_total, 0.0)
