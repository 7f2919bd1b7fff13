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
SKIPPED_STEPS = "skipped_steps"  # total: bad steps passed over, count: all steps


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
    """

    metrics: dict[str, Ratio]

    @staticmethod
    def of(metrics: Metrics) -> Window:
        """A window of one step.

        Args:
            metrics: what the step measured.

        Returns:
            The window.
        """
        return Window(dict(metrics))

    def extended(self, metrics: Metrics) -> Window:
        """The window with one more step, of which it takes the names.

        A metric that it did not have, for it was stored by another version, begins now.

        Args:
            metrics: what the step measured.

        Returns:
            The longer window.
        """
        known = {name: ratio for name, ratio in metrics.items() if name in self.metrics}
        summed = {**metrics, **add_metrics(self.metrics, known)}
        if LEARNING_RATE in summed:
            summed[LEARNING_RATE] = metrics[LEARNING_RATE]
        return Window(summed)

    def to_json(self) -> dict[str, list[float]]:
        """Fetches the sums as JSON values; float32 survives the round trip exactly."""
        fetched = jax.device_get(self.metrics)
        return {name: [float(x) for x in ratio] for name, ratio in fetched.items()}

    @staticmethod
    def from_json(stored: Mapping[str, Any]) -> Window:
        """Reads what `to_json` stored.

        Args:
            stored: name to ``[total, count]``.

        Returns:
            The window, as numpy scalars on the host.
        """
        metrics = {
            name: Ratio(np.asarray(float(total), "f4"), np.asarray(float(count), "f4"))
            for name, (total, count) in stored.items()
        }
        return Window(metrics)
