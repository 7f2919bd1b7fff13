"""The `attnjax` command in a process that kills itself at a chosen file operation.

    python dying.py WHICH NUMBER SECONDS WORKDIR ARGUMENTS...

WHICH are the operations that count: ``start`` counts all that change the run folder,
``save`` those on the folder of checkpoints from the first save on, the reading back for
the manifest and the removal of old checkpoints included. SIGKILL comes so many seconds
after operation NUMBER was about to begin; with 0, before it is done.
"""

import itertools
import os
import signal
import sys
import threading
from pathlib import Path

from attnjax.cli import main

TEMPORARY = ".orbax-checkpoint-tmp"
CHANGES = {"os.mkdir", "os.rename", "os.remove", "os.rmdir", "shutil.rmtree"}


def path_of(event, arguments):
    """Absolute, also of what is removed relative to an open folder."""
    path = arguments[0]
    if isinstance(path, int):
        return ""
    folder = arguments[1] if event in ("os.remove", "os.rmdir") else -1
    above = os.readlink(f"/proc/self/fd/{folder}") if folder >= 0 else ""
    return os.path.join(above, os.fsdecode(path))


def is_change(event, arguments):
    """Whether an audited event makes, removes, renames or opens to write."""
    if event != "open":
        return event in CHANGES
    flags = arguments[2]
    return bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))


class Death:
    """An audit hook: told of every file operation before it is done."""

    def __init__(self, which, number, seconds, workdir):
        self.folder = f"{workdir}/checkpoints/" if which == "save" else f"{workdir}"
        self.reads_count = which == "save"
        self.begun = which == "start"
        self.number, self.seconds = number, seconds
        self.counter = itertools.count(1)  # of all threads

    def __call__(self, event, arguments):
        if event not in CHANGES and event != "open":
            return
        path = path_of(event, arguments)
        if not path.startswith(self.folder):
            return
        self.begun = self.begun or (event == "os.mkdir" and TEMPORARY in path)
        counts = is_change(event, arguments) or (self.reads_count and TEMPORARY in path)
        if self.begun and counts and next(self.counter) == self.number:
            if not self.seconds:
                die()
            threading.Timer(self.seconds, die).start()


def die():
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    which, number, seconds, workdir, *arguments = sys.argv[1:]
    death = Death(which, int(number), float(seconds), Path(workdir).absolute())
    sys.addaudithook(death)
    code = main(arguments)
    print(next(death.counter) - 1, "operations", file=sys.stderr)
    sys.exit(code)
