"""Checkpoints of the training state, a thin and strict interface over Orbax.

Orbax on its own restores a flipped bit, answers False when a step cannot be saved, lets
a NaN evict the best checkpoint and casts dtypes in silence; here each of these is an
error or cannot happen.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, NamedTuple

import jax
import orbax.checkpoint as ocp

from attnjax.processes import wait_for_all
from attnjax.storage.checkpoint_files import (
    clear_incomplete,
    has_all_parts,
    remove_half_written,
    set_aside,
)
from attnjax.storage.checkpoint_tree import present_parts, small_on_host
from attnjax.storage.faults import (
    StorageError,
    require_folder,
    size_bytes,
    storage_error,
    written,
)
from attnjax.storage.manifest import (
    ANNOUNCEMENT,
    DamagedCheckpointError,
    verified_for_all,
)
from attnjax.storage.orbax_manager import Differing, load, open_manager
from attnjax.storage.scores import Scores
from attnjax.types import PyTree

logger = logging.getLogger(__name__)


class Restored(NamedTuple):
    """A checkpoint that was read.

    Attributes:
        step: of it.
        state: the structure of the target, with its arrays.
        extra: the JSON values saved with it.
    """

    step: int
    state: PyTree
    extra: dict[str, Any]


class _Writing(NamedTuple):
    """What is being written, for the message if it fails."""

    what: str
    needed_bytes: int


class Checkpoints:
    """The checkpoints of one run: the latest ``keep`` and the best by each measure.

    Saving goes on in the background; `close`, or leaving the ``with`` block, waits for
    it. Every process of a run calls every method.

    Attributes:
        folder: where they lie, one subfolder for each step.
    """

    def __init__(
        self,
        folder: Path,
        keep: int | None,
        *,
        damaged: Literal["previous", "refuse"] = "previous",
        on_save_failure: Literal["stop", "continue"] = "stop",
        differing: Differing = lambda extra: [],
    ) -> None:
        """Opens a folder of checkpoints, to write if ``keep`` is given.

        A writer removes what a run that was killed while saving left behind, and says
        so.

        Args:
            folder: made by a writer if it does not exist.
            keep: how many of the latest to keep; None opens for reading only.
            damaged: what becomes of a damaged checkpoint where the latest is asked for:
                the previous one takes its place, with a warning, or it is refused. One
                that is asked for by number or as the best is refused in any case.
            on_save_failure: what a full disk or a lost folder means: `save` raises, or
                logs an error and returns. The last failure is raised by `close`.
            differing: what of the values saved with a state does not fit; a line each
                for the message that refuses it, together with its leaves.
        """
        self.folder = folder.absolute()
        self._keep = keep
        self._when_damaged, self._on_save_failure = damaged, on_save_failure
        self._differing = differing
        self._writing: _Writing | None = None
        self._unsaved: StorageError | None = None
        self._scores = Scores(self.folder)
        if keep is not None and jax.process_index() == 0:
            with written("checkpoints", self.folder):
                self.folder.mkdir(parents=True, exist_ok=True)
                clear_incomplete(self.folder, self._kept)
        wait_for_all("checkpoints cleared")
        self._manager = self._open()
        self._scores.keep(self.steps())

    def __enter__(self) -> Checkpoints:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self.close()
        except StorageError as failure:
            if error is None:
                raise
            logger.error("%s", failure)  # and what was raised first goes on

    def close(self) -> None:
        """Waits until everything is saved, and closes.

        Raises:
            StorageError: if the last save failed.
        """
        try:
            self.wait()
            if self._unsaved is not None:
                raise self._unsaved
        finally:
            self._manager.close()

    def wait(self) -> None:
        """Waits until everything is saved; tells what went wrong meanwhile.

        Raises:
            StorageError: if the last save failed, unless training is to continue.
        """
        try:
            self._manager.wait_until_finished()
        except Exception as error:
            self._fail(error)
        else:
            if self._writing is not None:
                self._writing = self._unsaved = None

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
        return self._scores.best_of(self.steps())

    def scores(self) -> dict[int, float]:
        """The scores by step, rising, of those measured as the newest one was."""
        return self._scores.comparable(self.steps())

    def compare_by(self, measure: str) -> tuple[int, float] | None:
        """Says what the scores to come are measured on, as `Scores.compare_by`."""
        self._scores.keep(self.steps())
        return self._scores.compare_by(measure)

    def save(
        self,
        step: int,
        state: PyTree,
        extra: Mapping[str, Any],
        score: float | None = None,
    ) -> bool:
        """Saves in the background; the arrays may be donated once this returns.

        Args:
            step: greater than that of every checkpoint there is.
            state: a tree of arrays.
            extra: JSON values, such as the position in the data.
            score: ranks checkpoints, higher is better; None or NaN never ranks.

        Returns:
            Whether it was begun: False if it failed and training is to continue.

        Raises:
            ValueError: if the step is not newer than the newest checkpoint.
            TypeError: if ``extra`` holds something else than JSON values.
            RuntimeError: if the folder is open for reading only.
            StorageError: if the storage fails, or failed since the save before.
        """
        if self._keep is None:
            raise RuntimeError(
                f"the checkpoint of step {step} was not saved: {self.folder} is open "
                "for reading only."
            )
        self.wait()
        newest = max(self._manager.all_steps(), default=None)
        if newest is not None and step <= newest:
            raise ValueError(
                f"cannot save step {step} in {self.folder}: a checkpoint of step "
                f"{newest} exists; call discard_after({step - 1}) first if training "
                "went back on purpose."
            )
        json.dumps(extra)  # fails here and not in a background thread
        self._writing = _Writing(f"the checkpoint of step {step}", size_bytes(state))
        try:
            self._begin(step, state, extra, score)
        except Exception as error:
            self._fail(error)
            return False
        return True

    def set_score(self, step: int, score: float) -> None:
        """Ranks a step, also one that is saved already.

        Args:
            step: of a checkpoint that exists or is about to be saved.
            score: higher is better; a score that is not finite never ranks.

        Raises:
            StorageError: if it cannot be stored, unless training is to continue; then
                the next save stores it.
        """
        self._rank(step, score)
        try:
            self._scores.store()
        except OSError as error:
            what = f"the score of step {step}"
            self._tell(storage_error(error, what, self.folder), error)

    def discard_after(self, step: int) -> None:
        """Deletes all checkpoints newer than a step, to go on from that one.

        Args:
            step: the newest step to stay.
        """
        self.wait()
        for newer in [s for s in self._manager.all_steps() if s > step]:
            self._manager.delete(newer)
        self._scores.keep(self._manager.all_steps())
        self._scores.store()

    def restore(
        self, step: int | Literal["best"] | None, target: PyTree
    ) -> tuple[PyTree, dict[str, Any]]:
        """Verifies and reads a checkpoint into the structure of a target.

        Args:
            step: a number, "best", or None for what `resume` goes on from.
            target: arrays or abstract arrays; those with a sharding are placed by it,
                the others on the first device.

        Returns:
            The state, and the ``extra`` values saved with it.

        Raises:
            FileNotFoundError: if there is no such checkpoint.
            DamagedCheckpointError: if a file of it is not as it was saved.
            ValueError: if any leaf is missing, extra, or of another shape or dtype, or
                anything else differs; nothing is cast.
        """
        if step is None and (found := self.resume(target)) is not None:
            return found.state, found.extra
        return self._read(self._resolve(step), target)

    def resume(self, target: PyTree) -> Restored | None:
        """Verifies and reads the checkpoint to go on from.

        It is the latest; if that is damaged and the policy allows it, the latest that
        is not. A writer then sets the damaged ones aside.

        Args:
            target: as for `restore`.

        Returns:
            The checkpoint, None if there is none.

        Raises:
            DamagedCheckpointError: if it is damaged and the policy is to refuse it, or
                if all are damaged: nothing begins anew in silence.
            ValueError: as `restore`.
        """
        steps = self.steps()
        damaged: list[int] = []
        for step in reversed(steps):
            try:
                state, extra = self._read(step, target)
            except DamagedCheckpointError as damage:
                if self._when_damaged == "refuse" or step == steps[0]:
                    raise
                logger.warning("%s Going back to the one before it.", damage)
                damaged.append(step)
                continue
            if damaged and self._keep is not None:
                self._set_aside(damaged)
            return Restored(step, state, extra)
        return None

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

    def _read(self, step: int, target: PyTree) -> tuple[PyTree, dict[str, Any]]:
        folder = self.folder / str(step)
        with verified_for_all(folder, name=folder.name):
            return load(self._manager, folder, target, self._differing)

    def _begin(
        self, step: int, state: PyTree, extra: Mapping[str, Any], score: float | None
    ) -> None:
        require_folder(self.folder)
        if score is not None:
            self._rank(step, score)
        self._scores.store()
        self._manager.save(
            step,
            args=ocp.args.Composite(
                state=ocp.args.StandardSave(small_on_host(present_parts(state))),
                extra=ocp.args.JsonSave(dict(extra)),
            ),
            custom_metadata=ANNOUNCEMENT,
            force=True,  # it is newer, and Orbax's own rule would decline in silence
        )

    def _rank(self, step: int, score: float) -> None:
        self._scores.rank(step, score)
        self._scores.keep({*self._manager.all_steps(), step})

    def _fail(self, error: Exception) -> None:
        """Makes room again after a save that failed, forgets it, and tells of it."""
        what, needed_bytes = self._writing or _Writing("a checkpoint", 0)
        failure = storage_error(error, what, self.folder, needed_bytes)
        self._writing = None
        if jax.process_count() == 1:  # the others may not know of it yet
            self._manager.close()
            remove_half_written(self.folder)
            self._manager = self._open()
        self._tell(failure, error)

    def _tell(self, failure: StorageError | None, error: Exception) -> None:
        """Raises, or logs a fault of the storage if training is to continue."""
        if failure is None:
            raise error
        # Several processes would have to agree on going on without this checkpoint.
        if self._on_save_failure == "stop" or jax.process_count() > 1:
            raise failure from error
        logger.error("%s Training continues without it.", failure)
        self._unsaved = failure

    def _set_aside(self, steps: Sequence[int]) -> None:
        self._manager.close()
        if jax.process_index() == 0:
            for step in steps:
                set_aside(self.folder / str(step), "damaged")
        wait_for_all("checkpoints set aside")
        self._manager = self._open()

    def _open(self) -> ocp.CheckpointManager:
        return open_manager(self.folder, None if self._keep is None else self._kept)

    def _kept(self, steps: list[int]) -> set[int]:
        latest = steps[-(self._keep or len(steps)) :]
        return {*latest, *self._scores.best_of_each_measure(steps)}
