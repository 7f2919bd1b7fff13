"""A bad step told to a reader: what, where, in which sentences, and what to do."""

from __future__ import annotations

import hashlib
import json
import logging
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from attnjax.storage.checkpoint_tree import leaves_by_name
from attnjax.storage.files import replace_file
from attnjax.training.anomalies import Verdict
from attnjax.types import BatchIterator, PyTree

logger = logging.getLogger(__name__)

ADVICE = (
    "Lower optimizer.schedule.peak, raise optimizer.schedule.warmup_steps, set "
    "optimizer.clip_norm, train with training.precision='float32', meet the batches in "
    "another order with training.order_seed, or pass over such ones with "
    "training.on_bad_step='skip'; all of these may change in this run folder, while "
    "mended lines are other data and need a new one."
)
_DAMAGED_RATIO = (
    1.5  # of a loss to the lowest before: far beyond what batches differ by
)
_DAMAGED_NATS = 0.5  # and so much on top, for losses near 0


class DivergenceError(ArithmeticError):
    """A bad step that was not to be passed over."""


class Anomaly(NamedTuple):
    """A bad step; the fields of ``anomaly_<step>.json``.

    Attributes:
        step: its number.
        reason: what is wrong with it.
        action: what was done about it: "stop", "skip" or "rollback".
        loss: the mean loss.
        gradient_norm: the global norm.
        usual_gradient_norm: the running mean of the good steps before.
        first_bad_leaf: the first parameter whose gradient is not finite; if all are,
            the one with the largest gradient.
        bad_leaves: all parameters whose gradient is not finite.
        batches: of each micro-batch its ``fingerprint``, and its ``lines`` where the
            data can tell.
        advice: what to do.
    """

    step: int
    reason: str
    action: str
    loss: float
    gradient_norm: float
    usual_gradient_norm: float
    first_bad_leaf: str
    bad_leaves: list[str]
    batches: list[dict[str, Any]]
    advice: str = ADVICE

    @staticmethod
    def of(
        step: int,
        verdict: Verdict,
        action: str,
        params: PyTree,
        batches: list[dict[str, Any]],
    ) -> Anomaly:
        """Reads a verdict.

        Args:
            step: the number of the step.
            verdict: what was found in it.
            action: what is done about it.
            params: any tree of the parameters' structure, for the names.
            batches: of `describe_batches`.

        Returns:
            The description.
        """
        found: Verdict = jax.device_get(verdict)
        loss, norm = float(found.loss), float(found.gradient_norm)
        usual = float(found.usual_norm)
        names = [f"params.{name}" for name in leaves_by_name(params)]
        bad = [names[n] for n in np.flatnonzero(~np.isfinite(found.leaf_norms))]
        first = bad[0] if bad else names[int(np.argmax(found.leaf_norms))]
        if not np.isfinite(loss):
            reason = f"the loss is {loss}"
        elif not np.isfinite(norm):
            reason = f"the gradient norm is {norm}"
        else:
            times = norm / usual
            reason = f"the gradient norm {norm:.4g} is {times:.4g} times the usual one"
        return Anomaly(step, reason, action, loss, norm, usual, first, bad, batches)

    def __str__(self) -> str:
        where = "first" if self.bad_leaves else "most of it"
        prints = ", ".join(batch["fingerprint"] for batch in self.batches)
        lines = [line for batch in self.batches for line in batch.get("lines", ())]
        told = f" ({lines[0]}, and {len(lines) - 1} more)" if lines else ""
        return (
            f"{self.reason} at step {self.step}; {where} in the gradient of "
            f"{self.first_bad_leaf}, batch {prints}{told}"
        )

    def write(self, folder: Path) -> Path | None:
        """Writes it as JSON, whole or not at all; what is not finite as a string.

        A failure is logged only: it must not hide the anomaly itself.

        Args:
            folder: the run folder.

        Returns:
            The file, named after the step and, but for the first, the process, since
            each has read its own lines; None if it could not be written.
        """
        process = jax.process_index()
        name = f"anomaly_{self.step}" + (f"_process_{process}" if process else "")
        path = folder / f"{name}.json"
        fields = {key: _for_json(value) for key, value in self._asdict().items()}
        text = json.dumps(fields, indent=2, ensure_ascii=False)
        try:
            replace_file(path, (text + "\n").encode(errors="replace"))
        except OSError as error:
            logger.warning("cannot write %s: %s", path, error)
            return None
        return path


def undamaged(losses: Mapping[int, float], steps: Sequence[int]) -> list[int]:
    """Lists the checkpoints from before the weights were damaged.

    What ends in NaN often begins many updates before: the loss leaves the lowest it has
    been far behind and does not come back, and no checkpoint saved since is worth going
    on from.

    Args:
        losses: of the weights after so many updates, 0 for the initial ones.
        steps: of the checkpoints, rising.

    Returns:
        Those up to the last whose loss is not far above the lowest before it, and those
        of which nothing is known.
    """
    lowest, last = math.inf, -1
    for step, loss in sorted(losses.items()):
        if loss <= _DAMAGED_RATIO * lowest + _DAMAGED_NATS:
            last = step
        lowest = min(lowest, loss)
    return [step for step in steps if step <= last or step not in losses]


def where_to_go_on(losses: Mapping[int, float], steps: Sequence[int]) -> str:
    """Says from which checkpoint to go on after a bad step.

    Args:
        losses: as for `undamaged`.
        steps: of the checkpoints, rising.

    Returns:
        The end of a sentence.
    """
    if not steps:
        return "there is no checkpoint yet, so it begins anew"
    sound = undamaged(losses, steps)
    if not sound:
        return (
            "the weights seem to have been damaged before the first checkpoint there "
            "is, so begin anew in another --workdir"
        )
    if sound[-1] == steps[-1]:
        return f"the last checkpoint is from before (it is of step {steps[-1]})"
    return (
        f"the last checkpoint, of step {steps[-1]}, seems to be damaged already, so go "
        f"on from that of step {sound[-1]} with --from-step {sound[-1]}"
    )


def describe_batches(
    batches: BatchIterator, position: Mapping[str, Any], count: int
) -> list[dict[str, Any]]:
    """Reads batches again to name them; the iterator stands behind them afterwards.

    Args:
        batches: may have a method ``describe_last() -> list[str]``, which names where
            the examples of the latest batch come from.
        position: before the first of them.
        count: how many.

    Returns:
        The ``fingerprint`` of each, and its ``lines`` where the iterator can tell.
    """
    batches.set_state(position)
    described = []
    for _ in range(count):
        description: dict[str, Any] = {"fingerprint": fingerprint(next(batches))}
        if (describe_last := getattr(batches, "describe_last", None)) is not None:
            description["lines"] = describe_last()
        described.append(description)
    return described


def fingerprint(batch: PyTree) -> str:
    """A short hash of all arrays of a batch, their shapes and types.

    Args:
        batch: numpy arrays.

    Returns:
        16 hexadecimal digits.
    """
    digest = hashlib.sha256()
    for leaf in map(np.asarray, jax.tree.leaves(batch)):
        digest.update(f"{leaf.dtype} {leaf.shape}\n".encode())
        digest.update(np.ascontiguousarray(leaf).tobytes())
    return digest.hexdigest()[:16]


def _for_json(value: Any) -> Any:
    return str(value) if isinstance(value, float) and not np.isfinite(value) else value
