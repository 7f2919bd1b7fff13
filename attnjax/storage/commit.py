"""How a checkpoint becomes complete: its manifest, then its final name."""

from __future__ import annotations

import asyncio
from pathlib import Path

import orbax.checkpoint as ocp

from attnjax.storage.manifest import write_manifest

TEMPORARY = ocp.path.atomicity.TMP_DIR_SUFFIX
"""In the name of a checkpoint's folder until it is complete."""


class ManifestedPath(ocp.path.atomicity.AtomicRenameTemporaryPath):
    """Orbax's temporary folder of a checkpoint, and of the items in it.

    Orbax calls `finalize` in the first process, after all processes have written their
    files, in the background thread that saves. What ends before the rename has saved
    nothing.
    """

    async def finalize(self) -> None:
        """Writes the manifest and gives the folder its final name."""
        temporary, final = Path(self.get()), Path(self.get_final())
        if TEMPORARY in temporary.parent.name:  # an item; the whole one comes later
            await super().finalize()
            return
        # Orbax writes its metadata in a thread of its own. Its time of the commit is
        # left to the folder's; written here, it would come after the digests.
        if self._checkpoint_metadata_store is not None:
            await asyncio.to_thread(self._checkpoint_metadata_store.wait_until_finished)
        # What Orbax looks for where a copy lies in a store that cannot rename.
        (temporary / ocp.path.atomicity.COMMIT_SUCCESS_FILE).write_text(final.name)
        write_manifest(temporary, final.name)
        temporary.rename(final)
