"""Random damage to any file of a run: nothing of it is ever restored in silence.

The whole sweep: python -m pytest -m sweep tests/faults/test_mutations.py
"""

import contextlib
import re
import shutil
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnjax.storage.averages import load_average, save_average
from attnjax.storage.checkpoints import Checkpoints
from attnjax.storage.manifest import DamagedCheckpointError

NUM_SWEPT, NUM_QUICK = 200, 20
KINDS = ("flip", "flip", "flip", "cut", "delete", "grow", "zero")


class Damage(NamedTuple):
    """What is done to a file."""

    kind: str
    file: Path
    place: int
    bit: int

    def do(self):
        content = bytearray(self.file.read_bytes())
        if self.kind == "flip":
            content[self.place] ^= 1 << self.bit
        elif self.kind == "cut":
            del content[self.place :]
        elif self.kind == "grow":
            content[self.place : self.place] = b"\0"
        elif self.kind == "zero":  # as a disk that lost a sector
            content[self.place] ^= 1
            content[: self.place] = bytes(self.place)
        if self.kind == "delete":
            self.file.unlink()
        else:
            self.file.write_bytes(content)


def random_damage(folder, seed):
    """Chooses a file, each as likely as any other, and what happens to it."""
    rng = np.random.default_rng(seed)
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    file = files[rng.integers(len(files))]
    place = int(rng.integers(max(file.stat().st_size, 1)))
    kind = str(rng.choice(KINDS)) if file.stat().st_size else "delete"
    return Damage(kind, file, place, int(rng.integers(8)))


def state(value):
    kernel = jax.random.normal(jax.random.key(value), (40, 30))
    return {"a": {"kernel": kernel, "rng": jax.random.key(value)}, "b": jnp.arange(5)}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Steps 1 and 2, scored, and the average "both"."""
    folder = tmp_path_factory.mktemp("run")
    with Checkpoints(folder / "checkpoints", 9) as checkpoints:
        for step in (1, 2):
            checkpoints.save(step, state(step), {"step": step}, score=step)
    variables = {"params": state(3)["a"]}
    save_average(folder / "averaged", "both", variables, steps=[1, 2], scores={1: 1})
    return folder


def silent(folder, seed):
    """What is wrong with how a damaged step 2 is met, None if nothing is."""
    damage = random_damage(folder / "2", seed)
    damage.do()
    name = damage.file.relative_to(folder / "2").as_posix()
    with Checkpoints(folder, None) as checkpoints:
        try:
            checkpoints.restore(2, state(0))
        except DamagedCheckpointError as error:
            if not re.search(rf"/2(/| is damaged: ){re.escape(name)}\b", str(error)):
                return f"{damage}: the message does not name the file: {error}"
        else:
            return f"{damage}: restored"
        found = checkpoints.resume(state(0))
    if found.step != 1 or (found.state["a"]["kernel"] != state(1)["a"]["kernel"]).any():
        return f"{damage}: step {found.step} took its place"
    return None


def silent_average(folder, seed):
    """The same of the average."""
    damage = random_damage(folder / "both", seed)
    damage.do()
    name = damage.file.relative_to(folder / "both").as_posix()
    try:
        load_average(folder, "both", {"params": state(0)["a"]})
    except DamagedCheckpointError as error:
        if re.search(rf"/both(/| is damaged: ){re.escape(name)}\b", str(error)):
            return None
        return f"{damage}: the message does not name the file: {error}"
    return f"{damage}: loaded"


def sweep(run, tmp_path, part, check, seeds):
    found = []
    for seed in seeds:
        folder = tmp_path / str(seed)
        shutil.copytree(run / part, folder)
        found.append(check(folder, seed))
        shutil.rmtree(folder)
    return [wrong for wrong in found if wrong is not None]


PARTS = pytest.mark.parametrize(
    ("part", "check"), [("checkpoints", silent), ("averaged", silent_average)]
)


@PARTS
def test_no_damage_is_silent(run, tmp_path, part, check):
    assert sweep(run, tmp_path, part, check, range(NUM_QUICK)) == []


@pytest.mark.slow
@pytest.mark.sweep
@PARTS
def test_no_damage_of_the_whole_sweep_is_silent(run, tmp_path, part, check):
    seeds = range(NUM_QUICK, NUM_QUICK + NUM_SWEPT)
    assert sweep(run, tmp_path, part, check, seeds) == []


def test_the_sweep_meets_every_kind_and_every_file(run):
    met = [random_damage(run / "checkpoints/2", seed) for seed in range(NUM_SWEPT)]
    assert {damage.kind for damage in met} == {"flip", "cut", "delete", "grow", "zero"}
    files = {path for path in (run / "checkpoints/2").rglob("*") if path.is_file()}
    assert {damage.file for damage in met} == files


def test_the_sweep_would_see_a_restored_one(run, tmp_path, monkeypatch):
    """Without the manifest, some damage is restored in silence."""
    monkeypatch.setattr(
        "attnjax.storage.checkpoints.verified_for_all",
        lambda *_, **__: contextlib.nullcontext(),
    )
    wrong = sweep(run, tmp_path, "checkpoints", restored_or_not, range(NUM_QUICK))
    assert any("restored" in each for each in wrong)


def restored_or_not(folder, seed):
    try:
        return silent(folder, seed)
    except Exception as error:  # noqa: BLE001  whatever unverified bytes make of the reader
        return type(error).__name__
