"""The usual observers of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import jax

from attnjax.training.hooks import Hook
from attnjax.training.metrics_log import MetricsLog
from attnjax.training.progress_bar import ProgressBar
from attnjax.training.tensorboard import TensorBoard


def default_hooks(
    workdir: Path, on_failure: Literal["stop", "continue"] = "stop"
) -> tuple[Hook, ...]:
    """Progress bar, JSON lines and TensorBoard, in the first process only.

    Args:
        workdir: the run folder.
        on_failure: whether a full disk ends the run.

    Returns:
        The hooks for `attnjax.training.loop.train`.
    """
    if jax.process_index() != 0:
        return ()
    logs = MetricsLog(workdir, on_failure), TensorBoard(workdir, on_failure)
    return ProgressBar(), *logs
