"""The folder that a run lives in: its files, whose it is, and what its config was.

====================  =======================================================
``config.json``       the resolved experiment
``history.jsonl``     who trained from which step, on what, with what changed
``tokenizer/``        the trained tokenizers
``checkpoints/``      the latest and the best states
``averaged/``         averages of checkpoints, from ``attnjax average``
``readings.json``     which attention is read as word alignment, chosen once
``metrics.jsonl``     one line per log point and validation
``anomaly_7.json``    what was wrong with step 7, if something was
``lock.json``         who writes to the folder, while somebody does
``tensorboard/``      the same numbers for TensorBoard
``evaluation/``       translations and scores, from ``eval.py``
``pictures/``         attention heatmaps and the learning curve
``report.html``       all of it as one page, with the attention to explore
====================  =======================================================

A folder belongs to the run that has a checkpoint or a log in it; until then it is free,
and a start that fails leaves it as it was.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from attnjax import config_json
from attnjax.config import Experiment
from attnjax.json_files import read_bounded
from attnjax.storage.checkpoint_files import has_checkpoint
from attnjax.storage.faults import written
from attnjax.storage.files import replace_text
from attnjax.storage.run_lock import hold_run_folder
from attnjax.unread_options import without_unread

# What may differ when a run is continued: it changes neither the weights' shapes nor
# the meaning of what was already trained.
_FREE = (
    *("training", "decoding", "evaluation", "workdir"),
    *("optimizer.schedule", "optimizer.clip_norm"),
)
_IDENTITY = ("model", "data")  # sections that weights belong to
_NEVER_ON_OR_OFF = "training.ema_decay: "  # the state has averages, or has not


@dataclasses.dataclass(frozen=True)
class RunFolder:
    """Names of the files in a run folder."""

    path: Path

    @property
    def config(self) -> Path:
        """The resolved experiment as JSON."""
        return self.path / "config.json"

    @property
    def tokenizer(self) -> Path:
        """The folder of the tokenizers."""
        return self.path / "tokenizer"

    @property
    def checkpoints(self) -> Path:
        """The folder of the checkpoints."""
        return self.path / "checkpoints"

    @property
    def averaged(self) -> Path:
        """The folder of averaged weights."""
        return self.path / "averaged"

    @property
    def metrics(self) -> Path:
        """The log, one JSON object a line."""
        return self.path / "metrics.jsonl"

    @property
    def evaluation(self) -> Path:
        """The folder of translations and scores."""
        return self.path / "evaluation"

    @property
    def pictures(self) -> Path:
        """The folder of heatmaps and curves."""
        return self.path / "pictures"

    @property
    def page(self) -> Path:
        """The page that shows the run in a browser."""
        return self.path / "report.html"

    @property
    def is_free(self) -> bool:
        """Whether no run has left a checkpoint, an average or a log in it."""
        return not (
            has_checkpoint(self.checkpoints)
            or any(self.averaged.glob("*"))
            or (self.metrics.exists() and self.metrics.stat().st_size > 0)
        )


def read_config(folder: RunFolder) -> Experiment:
    """The resolved experiment of a run folder, without options that nobody reads."""
    text = read_bounded(folder.config)
    return without_unread(config_json.from_json(text, origin=str(folder.config)))


@contextlib.contextmanager
def held(folder: RunFolder) -> Iterator[None]:
    """Holds a run folder for writing; what a start that fails wrote, is removed.

    Args:
        folder: made if it does not exist.

    Yields:
        Nothing.

    Raises:
        ValueError: if another process holds it.
        OSError: if it cannot be written to.
    """
    parents = [p for p in (folder.path, *folder.path.parents) if not p.exists()]
    before = set(folder.path.glob("*"))
    try:
        with hold_run_folder(folder.path) as lock:
            try:
                yield
            except BaseException:
                if folder.is_free:
                    _remove(set(folder.path.glob("*")) - before - {lock})
                raise
    finally:
        for path in parents:
            with contextlib.suppress(OSError):  # it is in use, or was never made
                path.rmdir()


def claim(folder: RunFolder, experiment: Experiment) -> list[str]:
    """Makes a free folder this experiment's, or says what differs from its run's.

    Args:
        folder: held for writing.
        experiment: that is to be trained in it.

    Returns:
        A line, old and new, for each field that differs and may not; the refusal is put
        off, for the data and the weights may differ as well.

    Raises:
        ValueError: if the folder is no free one and holds no config, or one of another
            run that has no checkpoint yet, or a file of that name that is no config.
        StorageError: if the config cannot be written.
    """
    if not folder.config.exists():
        if not folder.is_free:
            raise ValueError(
                f"{folder.path} holds a run, but no {folder.config.name}, which says "
                "what was trained there; restore it from a copy, or choose another "
                "--workdir."
            )
        write_config(folder, experiment)
        return []
    stored = read_config(folder)
    if folder.is_free:
        if any(differing_fields(stored.data, experiment.data)):
            shutil.rmtree(folder.tokenizer, ignore_errors=True)  # of those other data
        write_config(folder, experiment)
        return []
    lines = changed_fields(stored, experiment)
    refused = [line for line in lines if not _may_change(line)]
    if refused and not has_checkpoint(folder.checkpoints):
        raise ValueError(
            f"{folder.path} holds a run with another config ({'; '.join(refused)}); "
            "choose another --workdir, or delete it."
        )
    return refused


def require_same(folder: RunFolder, experiment: Experiment, digest: str) -> None:
    """Refuses, in one process of several, what the first one has not begun.

    Args:
        folder: that the first process has claimed.
        experiment: of this process.
        digest: `digest_of` the first one's.

    Raises:
        ValueError: if the folder is not shared, or the experiment another one.
    """
    if not folder.config.exists():
        raise ValueError(
            f"{folder.path} is not the run folder of the first process; all processes "
            "of a run need one folder that they share, such as a network drive."
        )
    if digest_of(experiment) != digest:
        changed = changed_fields(read_config(folder), experiment)
        raise ValueError(
            "the processes of a run need one config, but this one's is another than "
            f"the first one's ({'; '.join(changed)}); give all the same command."
        )


def require_run(folder: RunFolder) -> None:
    """Refuses a folder that nobody trained in, or whose config was lost.

    Args:
        folder: to be opened.

    Raises:
        ValueError: it has no ``config.json``.
    """
    if folder.config.is_file():
        return
    advice = (
        f"train first: python train.py --config FILE --workdir {folder.path}"
        if folder.is_free
        else "it holds a run, so restore that file from a copy."
    )
    raise ValueError(f"{folder.path} is not a run folder (no config.json); {advice}")


def write_config(folder: RunFolder, experiment: Experiment) -> None:
    """Writes ``config.json``, whole or not at all.

    Args:
        folder: made if it does not exist.
        experiment: the content.

    Raises:
        StorageError: if the storage fails.
    """
    with written(folder.config.name, folder.path):
        folder.path.mkdir(parents=True, exist_ok=True)
        replace_text(folder.config, config_json.to_json(experiment))


def digest_of(experiment: Experiment) -> str:
    """A short hash of all fields of an experiment."""
    return hashlib.sha256(config_json.to_json(experiment).encode()).hexdigest()[:16]


def changed_fields(old: Experiment, new: Experiment) -> list[str]:
    """A line, ``section.field: old -> new``, for each field that differs."""
    return list(differing_fields(old, new))


def differing_fields(
    old: Any, new: Any, name: str = "", *, places: bool = True
) -> Iterator[str]:
    """Lists ``section.field: old -> new`` where two configs differ.

    Args:
        old: a section, or the value of a field.
        new: another one.
        name: of both.
        places: whether paths count, which say where something lies.

    Yields:
        The lines.
    """
    if dataclasses.is_dataclass(old) and type(old) is type(new):
        for field in dataclasses.fields(old):
            yield from differing_fields(
                getattr(old, field.name),
                getattr(new, field.name),
                f"{name}.{field.name}".lstrip("."),
                places=places,
            )
    elif old != new and (places or not isinstance(new, Path)):
        yield f"{name}: {_briefly(old)} -> {_briefly(new)}"


def identity_of(experiment: Experiment) -> dict[str, Any]:
    """What weights belong to, as JSON values to be stored with them."""
    return {name: config_json.encode(getattr(experiment, name)) for name in _IDENTITY}


def differing_identity(stored: Any, experiment: Experiment) -> list[str]:
    """What weights were trained as, where the experiment says something else.

    Args:
        stored: what `identity_of` gave; None of weights from before it was kept.
        experiment: whose weights they are to be.

    Returns:
        A line, old and new, for each difference; where files lie may differ.

    Raises:
        ValueError: if it is no identity.
    """
    if stored is None:
        return []
    lines: list[str] = []
    for name in _IDENTITY:
        old = without_unread(config_json.decode_section(stored[name], name))
        new = without_unread(getattr(experiment, name))
        lines += differing_fields(old, new, name, places=False)
    return lines


def _may_change(line: str) -> bool:
    if line.startswith(_NEVER_ON_OR_OFF) and "None" in line:
        return False
    return line.startswith(_FREE)


def _briefly(value: Any) -> Any:
    """Of a section only the name: those of two kinds have other fields anyway."""
    return type(value).__name__ if dataclasses.is_dataclass(value) else value


def _remove(paths: set[Path]) -> None:
    for path in paths:
        if path.name.startswith("anomaly_"):  # it says why the start failed
            continue
        with contextlib.suppress(OSError):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
