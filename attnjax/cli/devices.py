"""What every command that computes does first."""

from __future__ import annotations

import os
from pathlib import Path


def prepare_devices() -> None:
    """Turns on the persistent compilation cache, shared by all runs of the user."""
    from attnjax.training.compilation import enable_compilation_cache

    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    enable_compilation_cache(Path(cache) / "attnjax" / "jax")
