"""Metrics as sums and counts on the device until the last moment.

Padding, ragged batches, micro-batches and devices then cost nothing in truth: sums and
counts are added, and the one division happens on the host.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from attnjax.types import Array, Metrics, Ratio

LEARNING_RATE = "learning_rate"
GRADIENT_NORM = "gradient_norm"


def add_metrics(left: Metrics, right: Metrics) -> dict[str, Ratio]:
    """Adds two sets of metrics of the same names, sum to sum and count to count."""
    return {
        name: Ratio(left[name].total + right[name].total, left[name].count + more.count)
        for name, more in right.items()
    }


def safe_divisor(count: Array) -> Array:
    """The count itself, or 1 where it is 0, so that an empty batch gives 0 and not NaN.

    Args:
        count: scalar, 0 or more.

    Returns:
        A scalar greater than 0.
    """
    return jnp.where(count > 0, count, jnp.ones_like(count))


def to_floats(metrics: Metrics) -> dict[str, float]:
    """Fetches metrics from the device and divides; an empty count gives 0.

    Args:
        metrics: sums and counts, float32 scalars.

    Returns:
        The mean of each metric as a Python float.
    """
    fetched = jax.device_get(dict(metrics))
    return {
        name: float(total) / float(count) if count > 0 else 0.0
        for name, (total, count) in fetched.items()
    }


class Window(NamedTuple):
    """The metrics of the steps since the last log point, summed on the device.

    Attributes:
        metrics: the sums; of the learning rate only the latest value.
        first_bad_step: int32, the first step whose loss or gradient norm was NaN or
            infinite, 0 if none was.
    """

    metrics: dict[str, Ratio]
    first_bad_step: Array

    @staticmethod
    def of(metrics: Metrics, step: Array) -> Window:
        """A window of one step.

        Args:
            metrics: what the step measured.
            step: int32, the number of that step, 1 for the first.

        Returns:
            The window.
        """
        finite = jnp.isfinite(metrics["loss"].total)
        finite &= jnp.isfinite(metrics[GRADIENT_NORM].total)
        return Window(dict(metrics), jnp.where(finite, 0, step).astype(jnp.int32))

    def extended(self, metrics: Metrics, step: Array) -> Window:
        """The window with one more step.

        Args:
            metrics: what the step measured.
            step: int32, the number of that step.

        Returns:
            The longer window.
        """
        new = Window.of(metrics, step)
        summed = add_metrics(self.metrics, new.metrics)
        if LEARNING_RATE in summed:
            summed[LEARNING_RATE] = new.metrics[LEARNING_RATE]
        bad = jnp.where(
            self.first_bad_step > 0, self.first_bad_step, new.first_bad_step
        )
        return Window(summed, bad)

    def to_json(self) -> dict[str, list[float]]:
        """Fetches the sums as JSON values; float32 survives the round trip exactly."""
        fetched = jax.device_get(self.metrics)
        return {name: [float(x) for x in ratio] for name, ratio in fetched.items()}

    @staticmethod
    def from_json(stored: Mapping[str, Any]) -> Window:
        """Reads what `to_json` stored; the stored steps were all finite.

        Args:
            stored: name to ``[total, count]``.

        Returns:
            The window, as numpy scalars on the host.
        """
        metrics = {
            name: Ratio(np.asarray(total, np.float32), np.asarray(count, np.float32))
            for name, (total, count) in stored.items()
        }
        return Window(metrics, np.asarray(0, np.int32))
