"""One bit of one byte, and the checkpoint is refused by the name of the file."""

import hashlib
import json
import os
import re
from pathlib import Path

import numpy as np
import pytest

from attnjax.storage import manifest
from attnjax.storage.manifest import (
    ANNOUNCEMENT,
    DamagedCheckpointError,
    sealed,
    unsealed,
    verified,
    write_manifest,
)

CONTENTS = {"a": b"alpha", "sub/b": b"beta" * 9, "sub/deep/empty": b""}


@pytest.fixture
def folder(tmp_path):
    """A checkpoint named 7, of three small files."""
    folder = tmp_path / "7"
    for name, content in CONTENTS.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    write_manifest(folder, "7")
    return folder


@pytest.fixture
def large(tmp_path, monkeypatch):
    """A checkpoint of one large file of three and a half blocks, and a small one."""
    monkeypatch.setattr(manifest, "_BLOCK_BYTES", 64)
    monkeypatch.setattr(manifest, "_SMALL_BYTES", 100)
    folder = tmp_path / "8"
    folder.mkdir()
    content = np.random.default_rng(0).integers(0, 256, 224, np.uint8)
    (folder / "large").write_bytes(content.tobytes())
    (folder / "small").write_bytes(b"small")
    write_manifest(folder, "8")
    return folder


def damage(folder, name=None):
    """What is wrong with it, None if nothing is."""
    try:
        with verified(folder, name=name):
            pass
    except DamagedCheckpointError as error:
        return str(error)
    return None


def test_what_was_written_verifies_under_its_name(folder):
    assert damage(folder) is None
    assert damage(folder, "7") is None
    assert "manifest.json belongs to '7'" in damage(folder, "8")


def test_the_manifest_lists_every_file_with_its_digest(folder):
    stored = json.loads((folder / "manifest.json").read_text())
    assert stored["files"] == {
        name: {
            "bytes": len(content),
            "sha256": [hashlib.sha256(content).hexdigest()],
        }
        for name, content in CONTENTS.items()
    }


@pytest.mark.parametrize("name", ["a", "sub/b", "manifest.json"])
def test_any_flipped_bit_is_found(folder, name):
    """Of the manifest itself, each byte in turn; of the others, each bit."""
    path = folder / name
    good = path.read_bytes()
    rng = np.random.default_rng(0)
    for place in range(len(good)):
        bits = rng.choice(8, 1) if name == "manifest.json" else range(8)
        for bit in bits:
            bad = bytearray(good)
            bad[place] ^= 1 << bit
            path.write_bytes(bad)
            assert name in (damage(folder) or ""), (place, bit)


@pytest.mark.parametrize("name", ["a", "sub/b", "manifest.json"])
def test_a_file_cut_or_grown_by_any_length_is_found(folder, name):
    path = folder / name
    good = path.read_bytes()
    for length in range(len(good)):
        path.write_bytes(good[:length])
        assert name in (damage(folder) or ""), length
    path.write_bytes(good + b"\n")
    assert name in damage(folder)


@pytest.mark.parametrize("name", CONTENTS)
def test_a_lost_file_is_found(folder, name):
    (folder / name).unlink()
    assert f"7 is damaged: {name} is missing" in damage(folder)


@pytest.mark.parametrize(
    "name", ["_sharding", "sub/metadata", "sub/process_1 (copy)", "sub/manifest.ocdbt"]
)
def test_a_file_that_was_not_there_and_would_be_read_is_found(folder, name):
    (folder / name).write_bytes(b"")
    assert f"{name} was not saved with it" in damage(folder)


@pytest.mark.parametrize("name", [".DS_Store", "sub/deep/notes (1).txt"])
def test_a_file_that_nobody_reads_is_passed_over_and_told(folder, caplog, name):
    (folder / name).write_bytes(b"junk")
    assert damage(folder) is None
    (message,) = caplog.messages
    assert f"7 holds what was not saved with it, such as {name};" in message


@pytest.mark.parametrize("name", ["a", "manifest.json", "sub", "more", "."])
def test_a_link_is_found_even_to_the_same_content(folder, tmp_path, name):
    path, elsewhere = folder / name, tmp_path / "elsewhere"
    if path.exists():
        path.rename(elsewhere)
    else:
        elsewhere.mkdir()
    path.symlink_to(elsewhere)
    assert "is a symbolic link" in damage(folder)


def test_a_pipe_is_found_and_not_waited_for(folder):
    (folder / "a").unlink()
    os.mkfifo(folder / "a")
    assert "a is a special file" in damage(folder)
    (folder / "a").unlink()
    (folder / "manifest.json").unlink()
    os.mkfifo(folder / "manifest.json")
    assert "manifest.json must be a regular file" in damage(folder)


@pytest.mark.parametrize("block", range(4))
def test_each_block_of_a_large_file_is_verified(large, block):
    path = large / "large"
    bad = bytearray(path.read_bytes())
    bad[64 * block + 3] ^= 1
    path.write_bytes(bad)
    assert "large does not have the digest" in damage(large)


def test_a_file_of_whole_blocks_that_grew_by_one_is_found(large):
    path = large / "large"
    path.write_bytes(path.read_bytes()[:128])
    write_manifest(large, "8")
    assert damage(large) is None
    path.write_bytes(path.read_bytes() + bytes(64))
    assert "large has 192 bytes, but was saved with 128" in damage(large)


def test_blocks_that_changed_places_are_found(large):
    path = large / "large"
    good = path.read_bytes()
    assert damage(large) is None
    path.write_bytes(good[64:128] + good[:64] + good[128:])
    assert "large does not have the digest" in damage(large)


def test_nothing_is_read_before_names_sizes_and_small_files_are_verified(large):
    (large / "small").write_bytes(b"smalL")
    with pytest.raises(DamagedCheckpointError, match="small"), verified(large):
        pytest.fail("the body began")


def test_damage_is_the_reason_of_what_fails_while_reading(large):
    (large / "large").write_bytes(bytes(224))
    with (
        pytest.raises(DamagedCheckpointError, match="large") as caught,
        verified(large),
    ):
        raise ZeroDivisionError
    assert isinstance(caught.value.__context__, ZeroDivisionError)


def test_what_fails_over_an_undamaged_checkpoint_is_raised_as_it_is(large):
    with pytest.raises(ZeroDivisionError), verified(large):
        raise ZeroDivisionError


def test_a_file_that_the_disk_does_not_give_is_damage(large, monkeypatch):
    def fail(*arguments):
        raise OSError("input/output error")

    monkeypatch.setattr(manifest, "_digest", fail)
    assert re.search(r"small cannot be read \(input/output error\)", damage(large))


def test_without_a_manifest_only_one_that_never_had_one_passes(folder, caplog):
    (folder / "manifest.json").unlink()
    assert damage(folder) is None
    assert "7 was saved before attnjax kept digests" in caplog.text
    metadata = folder / "_CHECKPOINT_METADATA"
    metadata.write_text(json.dumps({"custom_metadata": ANNOUNCEMENT}))
    assert "manifest.json is missing" in damage(folder)
    for other in ("[]", "{}", "{", '{"custom_metadata": null}'):
        metadata.write_text(other)
        assert damage(folder) is None


FILE = {"bytes": 5, "sha256": [hashlib.sha256(b"alpha").hexdigest()]}


@pytest.mark.parametrize(
    "files",
    [
        {"../a": FILE},
        {"/etc/hostname": FILE},
        {"a": FILE, "sub/../a": FILE},
        {"a": 5},
        {"a": {"bytes": "many", "sha256": []}},
        {"a": {"bytes": 1e999, "sha256": []}},
        {"a": {"bytes": 5, "sha256": 7}},
        {"a": {"bytes": 10**4000, "sha256": []}},
        {"a": {"bytes": -1, "sha256": []}},
        {"a": {"bytes": 5, "sha256": [None] * 10}},
        {"a" * 5000: FILE},
        ["a"],
        "a",
        None,
    ],
)
def test_a_manifest_by_an_enemy_is_refused_in_a_sentence(folder, files):
    """It has a good seal; no name in it is ever opened."""
    content = {"version": 1, "name": "7", "files": files}
    (folder / "manifest.json").write_text(sealed(content))
    message = damage(folder)
    assert message is not None
    assert str(folder) in message


@pytest.mark.parametrize(
    "text",
    [b"", b"null", b"[1]", b"{}", b"\xff", b"[" * 99_999, b'{"a":' * 60, b"9" * 5000],
    ids=["empty", "null", "list", "object", "bytes", "deep", "nested", "digits"],
)
def test_a_manifest_that_is_none_is_refused_in_a_sentence(folder, text):
    (folder / "manifest.json").write_bytes(text)
    message = damage(folder)
    assert "manifest.json" in message
    assert len(message) < 500


def test_a_manifest_of_another_version_is_refused(folder):
    (folder / "manifest.json").write_text(sealed({"version": 2, "name": "7"}))
    assert "manifest.json is of version 2, not 1" in damage(folder)


def test_a_manifest_of_a_hundred_megabytes_is_refused_unread(folder):
    with (folder / "manifest.json").open("wb") as file:
        file.truncate(100_000_000)
    assert "has 100,000,000 bytes, but at most 16,777,216" in damage(folder)


def test_a_seal_gives_back_what_it_closed():
    content = {"b": [1, 2.5, None, "ä\u2028"], "a": {"nan": 0.1}}
    text = sealed(content).encode()
    assert unsealed(text, origin="f.json") == content
    with pytest.raises(DamagedCheckpointError, match=r"f\.json is damaged"):
        unsealed(text.replace(b"2.5", b"2.4"), origin="f.json")
    with pytest.raises(DamagedCheckpointError, match=r"f\.json is damaged"):
        unsealed(text.replace(b", ", b",  ", 1), origin="f.json")


def test_writing_needs_no_more_than_the_folder(tmp_path):
    folder = Path(tmp_path / "empty")
    folder.mkdir()
    write_manifest(folder, "empty")
    assert damage(folder) is None
