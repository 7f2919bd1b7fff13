"""Averages of checkpoints on disk, each under a name.

An average is nothing to go on training from, so it lies apart from the checkpoints, in
a folder of its own, and a resumed run never meets it.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import orbax.checkpoint as ocp

from attnjax.storage.checkpoint_files import remove_half_written, require_plain_json
from attnjax.storage.checkpoint_tree import abstract_leaf, readable, require_fit
from attnjax.storage.commit import TEMPORARY, ManifestedPath
from attnjax.storage.faults import size_bytes, storage_error
from attnjax.storage.manifest import ANNOUNCEMENT, MANIFEST, verified_for_all
from attnjax.types import Variables

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_PARTS = ("_CHECKPOINT_METADATA", "variables/_METADATA", "description/metadata")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Average:
    """What a stored average was made of.

    Attributes:
        name: of its folder.
        steps: of the checkpoints, rising.
        scores: of those of them that were scored, by step.
        vocabulary: fingerprint of the tokenizers that the weights belong to; None of an
            average from before it was kept.
        config: what else they belong to, as JSON values; None as well.
    """

    name: str
    steps: tuple[int, ...]
    scores: Mapping[int, float]
    vocabulary: str | None = None
    config: Any = None


def save_average(
    folder: Path,
    name: str,
    variables: Variables,
    *,
    steps: Sequence[int],
    scores: Mapping[int, float],
    vocabulary: str | None = None,
    config: Any = None,
) -> Path:
    """Stores an average under a name; it is there as a whole, or not at all.

    Args:
        folder: of all averages, made if it does not exist.
        name: letters, digits and ``. _ -``, such as ``last-5``.
        variables: the linen collections.
        steps: of the checkpoints that were averaged.
        scores: by step; those of other steps are left out.
        vocabulary: fingerprint of the tokenizers that the weights belong to.
        config: what else they belong to, as JSON values.

    Returns:
        The folder of this average.

    Raises:
        ValueError: if the name is taken, or is no plain name.
        StorageError: if the storage fails; what was there stays.
    """
    require_new_name(folder, name)
    path = folder.absolute() / name
    description = {
        "steps": list(steps),
        "scores": {str(step): scores[step] for step in steps if step in scores},
        "vocabulary": vocabulary,
        "config": config,
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _checkpointer() as checkpointer:
            checkpointer.save(
                path,
                args=ocp.args.Composite(
                    variables=ocp.args.StandardSave(variables),
                    description=ocp.args.JsonSave(description),
                ),
                custom_metadata=ANNOUNCEMENT,
            )
    except Exception as error:
        what = f"the average {name!r}"
        failure = storage_error(error, what, folder, size_bytes(variables))
        remove_half_written(folder)
        if failure is None:
            raise
        raise failure from error
    return path


def require_new_name(folder: Path, name: str) -> None:
    """Refuses a name that is taken, or is no plain name.

    Args:
        folder: of all averages; it need not exist.
        name: letters, digits and ``. _ -``.

    Raises:
        ValueError: if an average cannot be stored under it.
    """
    path = folder.absolute() / name
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"an average is named by letters, digits, '.', '_' and '-', got {name!r}; "
            f"a name such as last-5 would do."
        )
    if path.exists():
        raise ValueError(
            f"an average {name!r} exists already in {folder}; choose another name, or "
            f"delete {path}."
        )


def average_names(folder: Path) -> list[str]:
    """The names of the complete averages in a folder, sorted.

    Args:
        folder: of all averages; it need not exist.

    Returns:
        The names, empty if there are none.
    """
    complete = {path.name for path in folder.glob("*") if _is_complete(path)}
    return sorted(name for name in complete if _NAME.fullmatch(name))


def load_average(
    folder: Path,
    name: str | None,
    target: Variables,
    *,
    vocabulary: str | None = None,
    differing: Callable[[Any], list[str]] = lambda config: [],
) -> tuple[Variables, Average]:
    """Reads an average into the structure of a target.

    Args:
        folder: of all averages.
        name: which one; None if there is but one.
        target: arrays or abstract arrays; those with a sharding are placed by it, the
            others on the first device.
        vocabulary: fingerprint of the present tokenizers; None accepts any.
        differing: from the config stored with it to a line for each difference.

    Returns:
        The variables, and what they are the average of.

    Raises:
        FileNotFoundError: if there is no complete average of that name.
        DamagedCheckpointError: if a file of it is not as it was saved.
        ValueError: if no name is given and there are several, if any leaf is missing,
            extra, or of another shape or dtype, or if the tokenizers are others;
            nothing is cast.
    """
    name = _resolve(folder, name)
    path = folder.absolute() / name
    abstract = jax.tree.map(abstract_leaf, target)
    with verified_for_all(path), _checkpointer() as checkpointer:
        require_plain_json(path)
        with readable(path):
            stored = checkpointer.metadata(path).item_metadata.variables.tree
            values = ocp.args.Composite(description=ocp.args.JsonRestore())
            description = checkpointer.restore(path, args=values).description
            average = _described(name, description)
            others = differing(average.config) + _other_vocabulary(average, vocabulary)
        require_fit(path, stored, target, others)
        with readable(path):
            arrays = ocp.args.Composite(variables=ocp.args.StandardRestore(abstract))
            return checkpointer.restore(path, args=arrays).variables, average


def _checkpointer() -> ocp.Checkpointer:
    return ocp.Checkpointer(
        ocp.CompositeCheckpointHandler(
            variables=ocp.StandardCheckpointHandler(),
            description=ocp.JsonCheckpointHandler(),
        ),
        temporary_path_class=ManifestedPath,
    )


def _described(name: str, description: Mapping[str, Any]) -> Average:
    scores = {int(step): float(score) for step, score in description["scores"].items()}
    steps = tuple(map(int, description["steps"]))
    if not steps:
        raise ValueError("it is the average of nothing")
    vocabulary = description.get("vocabulary")
    return Average(
        name=name,
        steps=steps,
        scores=scores,
        vocabulary=vocabulary,
        config=description.get("config"),
    )


def _other_vocabulary(average: Average, present: str | None) -> list[str]:
    if None in (average.vocabulary, present) or average.vocabulary == present:
        return []
    return [f"data.vocabulary: {average.vocabulary} -> {present}"]


def _is_complete(path: Path) -> bool:
    """Also if it lost a file since; `verified_for_all` finds that."""
    written = all((path / part).exists() for part in _PARTS)
    return (written or (path / MANIFEST).exists()) and TEMPORARY not in path.name


def _resolve(folder: Path, name: str | None) -> str:
    names = average_names(folder)
    if not names:
        raise FileNotFoundError(
            f"there is no average in {folder}; make one by `attnjax average`."
        )
    if name is None and len(names) > 1:
        raise ValueError(
            f"there are {len(names)} averages in {folder}, so say which: {names}."
        )
    if name is not None and name not in names:
        raise FileNotFoundError(
            f"there is no complete average {name!r} in {folder}; there are {names}."
        )
    return names[0] if name is None else name
