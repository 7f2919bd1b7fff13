"""Learning rates, defined for update 1, 2, 3, ...

optax hands a schedule the number of updates *done*, so update ``n`` sees ``n - 1``. A
schedule that is written in that count gives rate 0 to the first update and reaches its
peak one update late; here every formula is written in ``n`` itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import jax.numpy as jnp

from attnjax.config import ScheduleConfig
from attnjax.types import Array

Schedule = Callable[[Array], Array]
"""Number of updates done (int scalar) to the float32 rate of the next update."""


def learning_rate(config: ScheduleConfig, num_steps: int) -> Schedule:
    """The learning rate with linear warm-up to update ``w = max(warmup_steps, 1)``.

    With ``n`` the number of the update, 1 for the first, and ``r = peak``::

        noam      r d^-0.5 min(n^-0.5, n w^-1.5)        (peak at n = w)
        rsqrt     r min(n / w, (w / n)^0.5)
        cosine    r n / w, then final + (r - final) (1 + cos(pi p)) / 2,
                  p = (n - w) / (num_steps - w)
        constant  r min(n / w, 1)

    Args:
        config: kind, peak, warm-up; ``width`` is noam's ``d``.
        num_steps: updates of the whole run; cosine ends there.

    Returns:
        A function of the count of updates done.

    Raises:
        ValueError: if noam has no width.

    Source: noam is Vaswani et al. 2017, eq. 3.
    """
    warmup, width = float(max(config.warmup_steps, 1)), config.width
    if config.kind == "noam" and width is None:
        raise ValueError(
            "the noam schedule needs the model's width; set optimizer.schedule.width."
        )

    def rate(count: Array) -> Array:
        update = jnp.asarray(count, jnp.float32) + 1.0
        rising = update / warmup
        match config.kind:
            case "noam":
                top = config.peak * cast(int, width) ** -0.5 * warmup**-0.5
                return top * jnp.minimum(rising, jnp.sqrt(warmup / update))
            case "rsqrt":
                return config.peak * jnp.minimum(rising, jnp.sqrt(warmup / update))
            case "constant":
                return config.peak * jnp.minimum(rising, 1.0)
            case "cosine":
                past = (update - warmup) / max(num_steps - warmup, 1.0)
                wave = (1.0 + jnp.cos(jnp.pi * jnp.clip(past, 0.0, 1.0))) / 2.0
                falling = config.final + (config.peak - config.final) * wave
                return jnp.where(update < warmup, config.peak * rising, falling)

    return rate
