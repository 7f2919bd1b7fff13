"""How far a command has come, for a person who waits at a terminal."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Callable, Iterator

Advance = Callable[[int], None]
"""Says that so many more lines are done."""


@contextlib.contextmanager
def line_progress(total: int | None, *, is_typed: bool = False) -> Iterator[Advance]:
    """Shows a bar on standard error while the body works.

    Only a terminal gets a bar, and only if the results go elsewhere: on the same
    terminal they show the progress themselves.

    Args:
        total: lines; None if that is unknown.
        is_typed: whether the lines are typed at a prompt, which a bar would hide.

    Yields:
        What the body calls when lines are done.
    """
    if is_typed or not sys.stderr.isatty() or sys.stdout.isatty():
        yield lambda lines: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    bar = Progress(
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TextColumn("lines"),
        TimeElapsedColumn(),
        *([] if total is None else [TextColumn("left:"), TimeRemainingColumn()]),
        console=Console(stderr=True),
        redirect_stdout=False,
        expand=True,
    )
    with bar, _messages_above():
        task = bar.add_task("", total=total)
        yield lambda lines: bar.advance(task, lines)


@contextlib.contextmanager
def _messages_above() -> Iterator[None]:
    """Log messages go where standard error goes now: above the bar."""
    handlers = [
        handler
        for handler in logging.getLogger().handlers
        if isinstance(handler, logging.StreamHandler)
        and not isinstance(handler, logging.FileHandler)
    ]
    before = [handler.setStream(sys.stderr) for handler in handlers]
    try:
        yield
    finally:
        for handler, stream in zip(handlers, before, strict=True):
            if stream is not None:
                handler.setStream(stream)
