"""What the processes of one run tell each other about checkpoints."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import jax
import numpy as np
from jax.experimental import multihost_utils

from attnjax.training.manifest import DamagedCheckpointError, verified

_MESSAGE_BYTES = 1000


def wait_for_all(name: str) -> None:
    """Returns once every process of the run is here.

    Args:
        name: of the place, the same in every process.
    """
    if jax.process_count() > 1:
        multihost_utils.sync_global_devices(name)


@contextlib.contextmanager
def verified_for_all(folder: Path, *, name: str | None = None) -> Iterator[None]:
    """`attnjax.training.manifest.verified`; of several processes the first verifies.

    It does so before the body: if it found damage while reading, the others would wait
    for it to read on.

    Args:
        folder: of the checkpoint.
        name: that it was saved under; None accepts any.

    Yields:
        Nothing.

    Raises:
        DamagedCheckpointError: in every process, if it is damaged.
    """
    if jax.process_count() == 1:
        with verified(folder, name=name):
            yield
        return
    message = ""
    if jax.process_index() == 0:
        try:
            with verified(folder, name=name):
                pass
        except DamagedCheckpointError as damage:
            message = str(damage)
    if message := _from_the_first(message):
        raise DamagedCheckpointError(message)
    yield


def _from_the_first(message: str) -> str:
    """The first process's text, cut at `_MESSAGE_BYTES`."""
    text = np.zeros(_MESSAGE_BYTES, np.uint8)
    encoded = np.frombuffer(message.encode()[:_MESSAGE_BYTES], np.uint8)
    text[: len(encoded)] = encoded
    shared = np.asarray(multihost_utils.broadcast_one_to_all(text), np.uint8)
    return shared.tobytes().rstrip(b"\0").decode(errors="replace")
