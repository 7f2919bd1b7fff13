"""Attention in sequence models, in JAX and Flax.

`open_run` opens a trained model; docs/library.md shows what can be done with it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attnjax.runs.opening import TrainedRun, open_run

__all__ = ["TrainedRun", "__version__", "open_run"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Loads what is asked for: importing the package alone costs nothing."""
    if name not in ("TrainedRun", "open_run"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module("attnjax.runs.opening"), name)
