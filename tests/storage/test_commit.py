"""A checkpoint gets its name last, once its manifest covers all of it."""

import asyncio

import pytest

from attnjax.storage import commit
from attnjax.storage.commit import TEMPORARY, ManifestedPath
from attnjax.storage.manifest import verified


class LateStore:
    """Writes its metadata when it is waited for, at the latest."""

    def __init__(self, folder):
        self.folder = folder

    def wait_until_finished(self):
        (self.folder / "_CHECKPOINT_METADATA").write_text("{}")


@pytest.fixture
def temporary(tmp_path):
    folder = tmp_path / f"7{TEMPORARY}"
    folder.mkdir()
    (folder / "data").write_bytes(b"data")
    return folder


def test_the_manifest_covers_what_is_written_late(temporary, tmp_path):
    store = LateStore(temporary)
    path = ManifestedPath(temporary, tmp_path / "7", checkpoint_metadata_store=store)
    asyncio.run(path.finalize())
    assert not temporary.exists()
    with verified(tmp_path / "7", name="7"):
        names = {path.name for path in (tmp_path / "7").iterdir()}
    assert names == {
        "data",
        "_CHECKPOINT_METADATA",
        "commit_success.txt",
        "manifest.json",
    }


def test_without_a_manifest_it_gets_no_name(temporary, tmp_path, monkeypatch):
    def fail(*arguments):
        raise OSError("no space")

    monkeypatch.setattr(commit, "write_manifest", fail)
    path = ManifestedPath(temporary, tmp_path / "7")
    with pytest.raises(OSError, match="no space"):
        asyncio.run(path.finalize())
    assert not (tmp_path / "7").exists()
