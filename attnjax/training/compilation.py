"""The persistent compilation cache, an effect that only scripts ask for."""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path

import jax


def enable_compilation_cache(folder: Path) -> None:
    """Keeps compiled programs on disk, so that the next start compiles nothing.

    Call it before the first compilation. Small programs are kept too: a run compiles
    dozens of them, and together they take longer than one would guess.

    Args:
        folder: made if it does not exist; several runs may share it.

    Raises:
        OSError: if it cannot be made or written to; nothing is kept then.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder):
        pass
    # A disk that is full later costs time alone; JAX would tell of each program.
    warnings.filterwarnings("ignore", "Error (reading|writing) persistent compilation")
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)
