"""Faults of the storage, made for real; prints what came of each as JSON.

    python storage_scenarios.py FOLDER NAME...

Those that mount need a mount namespace: unshare --map-root-user --mount python ...
"""

import contextlib
import json
import logging
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np

from attnjax.cli.noise import silence_libraries
from attnjax.storage import commit
from attnjax.storage.averages import load_average, save_average
from attnjax.storage.checkpoints import Checkpoints
from attnjax.storage.faults import StorageError

SMALL, LARGE = 1_000, 300_000  # float32 values
DISK_BYTES = 512 * 1024

logged = []


class Listener(logging.Handler):
    def emit(self, record):
        logged.append(record.getMessage())


def state(size, value=0):
    return {"kernel": np.random.default_rng(value).normal(size=size).astype(np.float32)}


def mount(folder, options=f"size={DISK_BYTES}"):
    folder.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], check=True)


def remount(folder, options):
    subprocess.run(["mount", "-o", f"remount,{options}", folder], check=True)


@contextlib.contextmanager
def caught(into):
    into.append(None)
    try:
        yield
    except StorageError as error:
        into[-1] = str(error)


def begun(folder, policy):
    checkpoints = Checkpoints(folder / "checkpoints", 9, on_save_failure=policy)
    checkpoints.save(1, state(SMALL, 1), {}, score=1.0)
    checkpoints.wait()
    return checkpoints


def outcome(folder, errors):
    """What is there afterwards, to whoever comes next."""
    checkpoints = folder / "checkpoints"
    entries = sorted(path.name for path in checkpoints.glob("*"))
    restored = None
    if checkpoints.exists():
        with Checkpoints(checkpoints, None) as reader:
            found = reader.resume(state(SMALL))
            same = (
                np.asarray(found.state["kernel"]) == state(SMALL, 1)["kernel"]
            ).all()
            restored = [found.step, bool(same)]
    return {"errors": errors, "entries": entries, "restored": restored}


def full(folder, policy):
    """The second save does not fit, the third does."""
    mount(folder)
    errors = []
    checkpoints = begun(folder, policy)
    checkpoints.save(2, state(LARGE), {})
    with caught(errors):
        checkpoints.save(3, state(SMALL, 1), {})
    with caught(errors):
        checkpoints.close()
    return outcome(folder, errors)


def full_at_the_end(folder, policy):
    """The last save does not fit."""
    mount(folder)
    errors = []
    checkpoints = begun(folder, policy)
    checkpoints.save(2, state(LARGE), {})
    with caught(errors):
        checkpoints.wait()
    with caught(errors):
        checkpoints.close()
    return outcome(folder, errors)


def full_for_many_arrays(folder, policy):
    """Those under way when the first one fails would print a traceback each."""
    mount(folder)
    errors = []
    checkpoints = begun(folder, policy)
    many = {f"kernel_{n}": np.arange(20_000, dtype=np.float32) + n for n in range(40)}
    checkpoints.save(2, many, {})
    with caught(errors):
        checkpoints.close()
    return outcome(folder, errors)


def full_for_a_score(folder, policy):
    """Not even a line fits; later there is room again."""
    mount(folder)
    errors = []
    checkpoints = begun(folder, policy)
    filler = folder / "filler"
    with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    with caught(errors):
        checkpoints.set_score(1, 2.0)
    stored = json.loads((folder / "checkpoints/scores.json").read_text())["scores"]
    filler.unlink()
    checkpoints.save(2, state(SMALL, 1), {})
    with caught(errors):
        checkpoints.close()
    later = json.loads((folder / "checkpoints/scores.json").read_text())["scores"]
    return {**outcome(folder, errors), "scores": [stored, later]}


def full_for_an_average(folder, policy):
    mount(folder)
    errors = []
    save_average(folder, "good", state(SMALL, 1), steps=[1], scores={})
    with caught(errors):
        save_average(folder, "large", state(LARGE), steps=[1], scores={})
    found, _ = load_average(folder, None, state(SMALL))
    same = (np.asarray(found["kernel"]) == state(SMALL, 1)["kernel"]).all()
    entries = sorted(path.name for path in folder.glob("*"))
    return {"errors": errors, "entries": entries, "restored": [1, bool(same)]}


def read_only(folder, policy):
    """For one save, and then no more."""
    mount(folder)
    errors = []
    checkpoints = begun(folder, policy)
    remount(folder, "ro")
    with caught(errors):
        checkpoints.save(2, state(SMALL, 1), {})
    remount(folder, "rw")
    with caught(errors):
        checkpoints.save(3, state(SMALL, 1), {})
    with caught(errors):
        checkpoints.close()
    return outcome(folder, errors)


def read_only_from_the_start(folder, policy):
    mount(folder)
    remount(folder, "ro")
    errors = []
    with caught(errors):
        Checkpoints(folder / "checkpoints", 9, on_save_failure=policy)
    return outcome(folder, errors)


def deleted(folder, policy):
    """Under the run; it is not made anew, as it may be a mount point."""
    folder.mkdir()
    errors = []
    checkpoints = begun(folder, policy)
    shutil.rmtree(folder)
    for step in (2, 3):
        with caught(errors):
            checkpoints.save(step, state(SMALL), {})
    with caught(errors):
        checkpoints.close()
    return outcome(folder, errors)


def deleted_while_saving(folder, policy):
    folder.mkdir()
    errors = []
    checkpoints = begun(folder, policy)
    write = commit.write_manifest

    def lose_and_write(*arguments):
        shutil.rmtree(folder)
        write(*arguments)

    commit.write_manifest = lose_and_write
    checkpoints.save(2, state(SMALL), {})
    with caught(errors):
        checkpoints.close()
    commit.write_manifest = write
    return outcome(folder, errors)


def too_large_a_file(folder, policy):
    folder.mkdir()
    errors = []
    checkpoints = begun(folder, policy)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    checkpoints.save(2, state(LARGE), {})
    with caught(errors):
        checkpoints.save(3, state(SMALL, 1), {})
    with caught(errors):
        checkpoints.close()
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    return outcome(folder, errors)


def main():
    base = Path(sys.argv[1])
    logging.getLogger("attnjax").addHandler(Listener())
    silence_libraries()
    for name in sys.argv[2:]:
        for policy in ("stop", "continue"):
            logged.clear()
            result = globals()[name](base / f"{name}_{policy}", policy)
            print(json.dumps({"name": name, "policy": policy, **result, "log": logged}))


if __name__ == "__main__":
    main()
