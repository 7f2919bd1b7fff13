"""A fault of the storage is one sentence with what, where, and how many bytes."""

import errno
import logging

import jax
import jax.numpy as jnp
import pytest

from attnjax.storage.faults import (
    StorageError,
    free_bytes,
    require_folder,
    size_bytes,
    storage_error,
    written,
)
from attnjax.storage.files import replace_text

TENSORSTORE = (
    'RESOURCE_EXHAUSTED: Error writing "a/0" in OCDBT database at local file "/x/2": '
    "Failed to write 169244 bytes to file 4: No space left on device "
    "[os_error_code='28'] [source locations='tensorstore/kvstore']"
)


def chained(cause):
    try:
        raise RuntimeError("the save failed") from cause
    except RuntimeError as error:
        return error


@pytest.mark.parametrize(
    ("error", "reason", "advice"),
    [
        (OSError(errno.ENOSPC, "full"), "No space left on device", "free some space"),
        (ValueError(TENSORSTORE), "No space left on device", "free some space"),
        (ValueError("x [OS error 28: ENOSPC]"), "No space left", "free some space"),
        (chained(OSError(errno.ENOSPC, "full")), "No space left", "free some space"),
        (OSError(errno.EDQUOT, "quota"), "Disk quota exceeded", "of your quota"),
        (OSError(errno.EROFS, "x"), "Read-only file system", "folder writable"),
        (PermissionError(errno.EACCES, "x"), "Permission denied", "folder writable"),
        (ValueError("os_error_code='27'"), "File too large", "ulimit -f"),
        (FileNotFoundError(errno.ENOENT, "x"), "No such file", "must stay where it is"),
        (OSError(errno.EIO, "x"), "Input/output error", "the disk or its connection"),
    ],
)
def test_a_fault_is_a_sentence(tmp_path, error, reason, advice):
    found = storage_error(error, "the checkpoint of step 7", tmp_path, 12_345)
    assert isinstance(found, StorageError)
    message = str(found)
    assert message.startswith(
        f"the checkpoint of step 7 could not be written to {tmp_path}: {reason}"
    )
    assert "(about 12,345 bytes needed, " in message
    assert " free); " in message
    assert advice in message
    assert message.endswith(".")
    assert "\n" not in message


def test_a_folder_that_has_gone_is_the_reason_whatever_the_error(tmp_path):
    gone = tmp_path / "gone"
    found = storage_error(OSError(errno.EACCES, "x"), "the score", gone)
    assert f"to {gone}: the folder does not exist any more (a few bytes" in str(found)


@pytest.mark.parametrize(
    "error",
    [
        *(ValueError("step 3 exists"), TypeError("no array"), OSError("?")),
        *(KeyError(28), FileExistsError(errno.EEXIST, "x"), ValueError("OS error 28")),
    ],
)
def test_what_is_no_fault_of_the_storage_is_not_called_one(tmp_path, error):
    assert storage_error(error, "the checkpoint", tmp_path) is None


def test_free_bytes_are_those_of_the_nearest_folder(tmp_path):
    assert free_bytes(tmp_path / "not/yet/made") > 0


def test_a_folder_that_has_gone_is_not_made_anew(tmp_path):
    require_folder(tmp_path)
    with pytest.raises(FileNotFoundError, match="gone"):
        require_folder(tmp_path / "gone")
    assert not (tmp_path / "gone").exists()


def test_the_size_of_a_state_is_that_of_its_leaves():
    tree = {"a": jnp.zeros((3, 5)), "b": jnp.zeros(7, jnp.bfloat16), "c": None}
    assert size_bytes(tree) == 60 + 14
    assert size_bytes({"rng": jax.random.key(0)}) == 8
    assert size_bytes(jax.eval_shape(lambda: tree)) == 60 + 14


def test_what_is_written_fails_in_a_sentence(tmp_path):
    with (
        pytest.raises(
            StorageError, match=rf"^a log could not be written to {tmp_path}: "
        ),
        written("a log", tmp_path),
    ):
        raise OSError(errno.ENOSPC, "full")
    with pytest.raises(ZeroDivisionError), written("a log", tmp_path):
        raise ZeroDivisionError
    with pytest.raises(OSError, match="no fault") as other, written("a log", tmp_path):
        raise OSError("no fault of the storage")
    assert not isinstance(other.value, StorageError)


def test_what_is_written_may_be_let_go(tmp_path, caplog):
    with caplog.at_level(logging.ERROR):
        for error in (OSError(errno.ENOSPC, "full"), OSError(errno.EROFS, "x")):
            with written("a log", tmp_path, on_failure="continue"):
                raise error
    assert [m.endswith("Training continues without it.") for m in caplog.messages] == [
        True,
        True,
    ]


def test_a_file_is_replaced_as_a_whole_or_not_at_all(tmp_path, files_of_at_most):
    path = tmp_path / "config.json"
    replace_text(path, "old ä\r\n")
    with files_of_at_most(5):
        replace_text(path, "newer")
        with pytest.raises(OSError, match="File too large"):
            replace_text(path, "newest")
    assert path.read_bytes() == b"newer"
    assert [each.name for each in tmp_path.iterdir()] == ["config.json"]
