"""What of Orbax our checkpoints stand on, with the settings that make it strict."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import orbax.checkpoint as ocp

from attnjax.storage.checkpoint_files import require_plain_json
from attnjax.storage.checkpoint_tree import (
    abstract_leaf,
    intact,
    present_parts,
    readable,
    require_fit,
    with_parts,
    without_place,
)
from attnjax.storage.commit import ManifestedPath
from attnjax.types import PyTree

Differing = Callable[[Mapping[str, Any]], list[str]]
"""From the values saved with a state to a line, old and new, for each that differs."""


def open_manager(
    folder: Path, kept: Callable[[list[int]], set[int]] | None
) -> ocp.CheckpointManager:
    """Opens a folder of checkpoints with Orbax.

    Args:
        folder: of all steps; it need not exist for a reader.
        kept: from the steps there are to those that stay; None opens for reading only.

    Returns:
        The manager.
    """
    return ocp.CheckpointManager(
        folder,
        options=ocp.CheckpointManagerOptions(
            preservation_policy=_Preserving(kept or set),
            create=False,
            read_only=kept is None,
            temporary_path_class=ManifestedPath,
            lightweight_initialize=True,  # no metadata is read before it is verified
            # Otherwise a folder that cannot be made leaves threads that wait for it,
            # and the process ends minutes later.
            async_options=ocp.AsyncOptions(create_directories_asynchronously=False),
        ),
        item_handlers={
            "state": ocp.StandardCheckpointHandler(),
            "extra": ocp.JsonCheckpointHandler(),
        },
    )


def load(
    manager: ocp.CheckpointManager,
    folder: Path,
    target: PyTree,
    differing: Differing = lambda extra: [],
) -> tuple[PyTree, dict[str, Any]]:
    """Reads a checkpoint into the structure of a target.

    Args:
        manager: of `open_manager`.
        folder: of the checkpoint; its name is the step.
        target: arrays or abstract arrays; those with a sharding are placed by it, the
            others on the first device.
        differing: what of the values saved with the state does not fit.

    Returns:
        The state, and the JSON values saved with it.

    Raises:
        DamagedCheckpointError: if the JSON values are none that were saved.
        ValueError: if any leaf is missing, extra, or of another shape or dtype, if
            anything else differs, or if the contents are no checkpoint.
    """
    require_plain_json(folder)
    step = int(folder.name)
    with readable(folder):
        stored = manager.item_metadata(step).state.tree
        values = ocp.args.Composite(extra=ocp.args.JsonRestore())
        extra = dict(manager.restore(step, args=values).extra)
    with intact(folder):
        others = differing(extra)
    fitting = without_place(target, stored)
    require_fit(folder, stored, fitting, others)
    abstract = present_parts(jax.tree.map(abstract_leaf, fitting))
    with readable(folder):
        arrays = ocp.args.Composite(state=ocp.args.StandardRestore(abstract))
        restored = manager.restore(step, args=arrays)
        return with_parts(target, restored.state), extra


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
