"""Checkpoints of the training state, a thin and strict interface over Orbax.

Orbax on its own answers False when a step cannot be saved, lets a NaN evict the best
checkpoint and casts dtypes in silence; here each of these is an error or cannot happen.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import jax
import orbax.checkpoint as ocp

from attnjax.training.checkpoint_files import (
    clear_incomplete,
    has_all_parts,
    read_scores,
    write_scores,
)
from attnjax.training.checkpoint_tree import abstract_leaf, require_fit
from attnjax.types import PyTree


class Checkpoints:
    """The checkpoints of one run: the latest ``keep`` and the best one.

    Saving goes on in the background; `close`, or leaving the ``with`` block, waits for
    it. Every process of a run calls every method.

    Attributes:
        folder: where they lie, one subfolder for each step.
    """

    def __init__(self, folder: Path, keep: int | None) -> None:
        """Opens a folder of checkpoints, to write if ``keep`` is given.

        A writer removes what a run that ended while saving left behind, and says so.

        Args:
            folder: made by a writer if it does not exist.
            keep: how many of the latest to keep; None opens for reading only.
        """
        self.folder = folder.absolute()
        self._keep = keep
        if keep is not None and jax.process_index() == 0:
            clear_incomplete(self.folder)
        self._manager = ocp.CheckpointManager(
            self.folder,
            options=ocp.CheckpointManagerOptions(
                preservation_policy=_Preserving(self._kept),
                create=keep is not None,
                read_only=keep is None,
            ),
            item_handlers={
                "state": ocp.StandardCheckpointHandler(),
                "extra": ocp.JsonCheckpointHandler(),
            },
        )
        stored = read_scores(self.folder)
        existing = self.steps()
        self._scores = {s: score for s, score in stored.items() if s in existing}

    def __enter__(self) -> Checkpoints:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Waits until everything is saved, and closes."""
        self._manager.close()

    def wait(self) -> None:
        """Waits until everything is saved; raises what went wrong meanwhile."""
        self._manager.wait_until_finished()

    def steps(self) -> list[int]:
        """The steps of the complete checkpoints, rising; waits for one under way."""
        self.wait()
        steps = sorted(self._manager.all_steps())
        return [step for step in steps if has_all_parts(self.folder / str(step))]

    def latest_step(self) -> int | None:
        """The newest step that has a complete checkpoint, None if there is none."""
        return max(self.steps(), default=None)

    def best_step(self) -> int | None:
        """The step of the highest score, the earliest of equals, None without any."""
        return self._best_of(self.steps())

    def scores(self) -> dict[int, float]:
        """The scores by step, rising, of the complete checkpoints that have one."""
        return {s: self._scores[s] for s in self.steps() if s in self._scores}

    def save(
        self,
        step: int,
        state: PyTree,
        extra: Mapping[str, Any],
        score: float | None = None,
    ) -> None:
        """Saves in the background; the arrays may be donated once this returns.

        Args:
            step: greater than that of every checkpoint there is.
            state: a tree of arrays.
            extra: JSON values, such as the position in the data.
            score: ranks checkpoints, higher is better; None or NaN never ranks.

        Raises:
            ValueError: if the step is not newer than the newest checkpoint.
            TypeError: if ``extra`` holds something else than JSON values.
            RuntimeError: if Orbax declines to save, or an earlier save failed.
        """
        newest = max(self._manager.all_steps(), default=None)
        if newest is not None and step <= newest:
            raise ValueError(
                f"cannot save step {step} in {self.folder}: a checkpoint of step "
                f"{newest} exists; call discard_after({step - 1}) first if training "
                "went back on purpose."
            )
        if score is not None:
            self.set_score(step, score)
        json.dumps(extra)  # fails here and not in a background thread
        saved = self._manager.save(
            step,
            args=ocp.args.Composite(
                state=ocp.args.StandardSave(_present_parts(state)),
                extra=ocp.args.JsonSave(dict(extra)),
            ),
        )
        if not saved:
            raise RuntimeError(
                f"the checkpoint of step {step} was not saved in {self.folder}: Orbax "
                "declined it; is the folder open for reading only?"
            )

    def set_score(self, step: int, score: float) -> None:
        """Ranks a step, also one that is saved already.

        Args:
            step: of a checkpoint that exists or is about to be saved.
            score: higher is better; a score that is not finite never ranks.
        """
        if math.isfinite(score):
            existing = {*self._manager.all_steps(), step}
            ranked = {**self._scores, step: float(score)}
            self._scores = {s: ranked[s] for s in sorted(existing & ranked.keys())}
            self._write_scores()

    def discard_after(self, step: int) -> None:
        """Deletes all checkpoints newer than a step, to go on from that one.

        Args:
            step: the newest step to stay.
        """
        self.wait()
        for newer in [s for s in self._manager.all_steps() if s > step]:
            self._manager.delete(newer)
            self._scores.pop(newer, None)
        self._write_scores()

    def restore(
        self, step: int | Literal["best"] | None, target: PyTree
    ) -> tuple[PyTree, dict[str, Any]]:
        """Reads a checkpoint into the structure of a target.

        Args:
            step: a number, "best", or None for the latest.
            target: arrays or abstract arrays; those with a sharding are placed by it,
                the others on the first device.

        Returns:
            The state, and the ``extra`` values saved with it.

        Raises:
            FileNotFoundError: if there is no such checkpoint.
            ValueError: if any leaf is missing, extra, or of another shape or dtype;
                nothing is cast.
        """
        number = self._resolve(step)
        stored = self._manager.item_metadata(number).state.tree
        require_fit(self.folder / str(number), stored, target)
        abstract = _present_parts(jax.tree.map(abstract_leaf, target))
        restored = self._manager.restore(
            number,
            args=ocp.args.Composite(
                state=ocp.args.StandardRestore(abstract), extra=ocp.args.JsonRestore()
            ),
        )
        if dataclasses.is_dataclass(target) and not isinstance(target, type):
            return dataclasses.replace(target, **restored.state), restored.extra
        return restored.state, restored.extra

    def _resolve(self, step: int | Literal["best"] | None) -> int:
        steps = self.steps()
        if not steps:
            raise FileNotFoundError(
                f"there is no checkpoint in {self.folder}; train first, or name the "
                "run folder of a run that was trained."
            )
        if step is None:
            return steps[-1]
        if step == "best":
            best = self.best_step()
            if best is None:
                raise FileNotFoundError(
                    f"no checkpoint in {self.folder} has a score, so none is the best; "
                    f"name one of the steps {steps}."
                )
            return best
        if step not in steps:
            raise FileNotFoundError(
                f"there is no checkpoint of step {step} in {self.folder}; there are "
                f"{steps}."
            )
        return step

    def _best_of(self, steps: Sequence[int]) -> int | None:
        ranked = [step for step in sorted(steps) if step in self._scores]
        return max(ranked, key=self._scores.__getitem__, default=None)

    def _kept(self, steps: list[int]) -> set[int]:
        kept = set(steps[-(self._keep or len(steps)) :])
        best = self._best_of(steps)
        return kept if best is None else kept | {best}

    def _write_scores(self) -> None:
        if jax.process_index() == 0:
            write_scores(self.folder, self._scores)


class _Preserving:
    """Orbax's question which checkpoints to keep, answered by our own scores."""

    def __init__(self, kept: Callable[[list[int]], set[int]]) -> None:
        self._kept = kept

    def should_preserve(
        self, checkpoints: Sequence[Any], *, context: Any
    ) -> list[bool]:
        del context
        kept = self._kept([checkpoint.step for checkpoint in checkpoints])
        return [checkpoint.step in kept for checkpoint in checkpoints]


def _present_parts(state: PyTree) -> PyTree:
    """The fields of a state that are not None, by name.

    Orbax stores that a part is None; without it a new optional part of the state leaves
    the checkpoints of runs that do not use it as they were.
    """
    if not dataclasses.is_dataclass(state) or isinstance(state, type):
        return state
    fields = {f.name: getattr(state, f.name) for f in dataclasses.fields(state)}
    return {name: value for name, value in fields.items() if value is not None}
