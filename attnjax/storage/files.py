"""Files that are replaced as a whole, or stay as they were."""

from __future__ import annotations

import contextlib
from pathlib import Path


def replace_file(path: Path, content: bytes, *, fresh: str = "new") -> None:
    """Replaces a file so that it is never half of anything, whatever fails or ends.

    Args:
        path: of the file, which need not exist.
        content: the new bytes.
        fresh: ending of the name under which they are written first.

    Raises:
        OSError: if the storage fails; the file is then as it was.
    """
    beside = path.with_name(f"{path.name}.{fresh}")
    try:
        beside.write_bytes(content)
        beside.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
        raise


def replace_text(path: Path, text: str) -> None:
    """Replaces a text file, as `replace_file` does.

    Args:
        path: of the file, which need not exist.
        text: the new content, stored as UTF-8 with its line ends as they are.

    Raises:
        OSError: if the storage fails; the file is then as it was.
    """
    replace_file(path, text.encode())
