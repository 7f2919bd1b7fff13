"""What every command that computes does first."""

from __future__ import annotations

import logging
import os
from pathlib import Path

logger = logging.getLogger(__name__)


def prepare_devices() -> None:
    """Turns on the persistent compilation cache, shared by all runs of the user.

    Where there is no folder for it, everything is compiled at each start.
    """
    from attnjax.training.compilation import enable_compilation_cache

    try:
        cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        enable_compilation_cache(Path(cache) / "attnjax" / "jax")
    except (OSError, RuntimeError) as error:  # the latter without a home
        logger.warning(
            "compiled programs are not kept for the next start, as there is no folder "
            "for them (%s); name one by XDG_CACHE_HOME",
            error,
        )
