"""What a reader of a result has to know, said once."""

from __future__ import annotations

import functools
import logging

logger = logging.getLogger(__name__)


@functools.cache
def warn_once(note: str | None) -> None:
    """Logs a note as a warning, the first time in this process.

    Args:
        note: A sentence; None says nothing.
    """
    if note is not None:
        logger.warning("%s", note)
