"""Losses as sums over a batch; dividing by counts is left to the metrics."""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from attnjax.types import Array


class CrossEntropy(NamedTuple):
    """Weighted sums over all labels, float32 scalars.

    Attributes:
        loss: the smoothed cross-entropy in nats; the objective.
        nll: the negative log-likelihood in nats, without smoothing.
        correct: labels whose logit is above that of every other class.
        weight: the sum of the weights; the others divided by it are means.
    """

    loss: Array
    nll: Array
    correct: Array
    weight: Array


def cross_entropy(
    logits: Array, labels: Array, weights: Array, *, smoothing: float = 0.0
) -> CrossEntropy:
    """Cross-entropy with label smoothing, spread over all C classes.

    ``loss = logsumexp(z) - (1 - smoothing) z_label - smoothing mean_c(z_c)`` (Szegedy
    et al. 2016, section 7), in float32 whatever the input. The gradient,
    ``softmax(z) - (1 - smoothing) onehot - smoothing / C``, is formed from the logits
    and their log-sum-exp, so that no log-probabilities are kept for it.

    A label outside ``[0, C)`` cannot be refused inside a compiled function; it makes
    the sums NaN.

    Args:
        logits: ``[..., C]``.
        labels: ``[...]`` int.
        weights: ``[...]``, 1 for labels that count and 0 for padding.
        smoothing: the probability mass spread over all classes, in [0, 1).

    Returns:
        Sums over all labels.
    """
    rows = _row_losses(logits.reshape(-1, logits.shape[-1]), labels.ravel(), smoothing)
    weights = weights.ravel().astype(jnp.float32)
    loss, nll, correct = (jnp.sum(row * weights) for row in rows)
    return CrossEntropy(loss, nll, correct, jnp.sum(weights))


def token_losses(logits: Array, labels: Array, *, smoothing: float = 0.0) -> Array:
    """The smoothed cross-entropy of each label, whose sum is `cross_entropy`'s loss.

    Args:
        logits: ``[..., C]``.
        labels: ``[...]`` int.
        smoothing: the probability mass spread over all classes, in [0, 1).

    Returns:
        ``[...]`` float32 in nats.
    """
    flat = logits.reshape(-1, logits.shape[-1])
    return _row_losses(flat, labels.ravel(), smoothing)[0].reshape(labels.shape)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def _row_losses(
    logits: Array, labels: Array, smoothing: float
) -> tuple[Array, Array, Array]:
    """Loss, negative log-likelihood and correctness ``[N]`` of logits ``[N, C]``."""
    return _forward(logits, labels, smoothing)[0]


def _forward(logits: Array, labels: Array, smoothing: float):
    logits_nc = logits.astype(jnp.float32)
    num_classes = logits.shape[-1]
    is_class = (labels >= 0) & (labels < num_classes)
    label_logit = jnp.take_along_axis(logits_nc, labels[:, None], axis=-1)
    label_logit = jnp.where(is_class[:, None], label_logit, jnp.nan)
    peak = jnp.max(logits_nc, axis=-1, keepdims=True)
    log_total = jnp.log(jnp.sum(jnp.exp(logits_nc - peak), axis=-1)) + peak[:, 0]
    nll = log_total - label_logit[:, 0]
    uniform = log_total - jnp.mean(logits_nc, axis=-1)
    loss = (1.0 - smoothing) * nll + smoothing * uniform
    # Not an argmax: ties are not correct, and it is a plain sum, which vectorises.
    at_least = jnp.sum(logits_nc >= label_logit, axis=-1)
    correct = (at_least == 1).astype(jnp.float32)
    return (loss, nll, correct), (logits, labels, log_total)


def _backward(smoothing: float, residuals, cotangents):
    logits, labels, log_total = residuals
    of_loss, of_nll, _ = cotangents
    probability_nc = jnp.exp(logits.astype(jnp.float32) - log_total[:, None])
    classes = jnp.arange(logits.shape[-1], dtype=labels.dtype)
    is_label_nc = classes[None, :] == labels[:, None]
    on_label = of_nll + (1.0 - smoothing) * of_loss
    everywhere = smoothing / logits.shape[-1] * of_loss
    gradient_nc = (
        (of_loss + of_nll)[:, None] * probability_nc
        - jnp.where(is_label_nc, on_label[:, None], 0.0)
        - everywhere[:, None]
    )
    return gradient_nc.astype(logits.dtype), None


_row_losses.defvjp(_forward, _backward)
