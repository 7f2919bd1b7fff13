"""The usual observers of a run."""

from __future__ import annotations

from pathlib import Path

import jax

from attnjax.training.hooks import Hook
from attnjax.training.metrics_log import MetricsLog
from attnjax.training.progress_bar import ProgressBar
from attnjax.training.tensorboard import TensorBoard


def default_hooks(workdir: Path) -> tuple[Hook, ...]:
    """Progress bar, JSON lines and TensorBoard, in the first process only.

    Args:
        workdir: the run folder.

    Returns:
        The hooks for `attnjax.training.loop.train`.
    """
    if jax.process_index() != 0:
        return ()
    return ProgressBar(), MetricsLog(workdir), TensorBoard(workdir)
