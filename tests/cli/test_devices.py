"""A cache that cannot be kept costs time, not the run."""

from pathlib import Path

import jax
import pytest

from attnjax.cli.devices import prepare_devices


def homeless():
    raise RuntimeError("Could not determine home directory.")


@pytest.mark.parametrize("home", ["absent", "a file", "read-only", "unknown"])
def test_without_a_folder_for_the_cache_there_is_one_warning(
    tmp_path, monkeypatch, caplog, home
):
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    (tmp_path / "file").touch()
    homes = {"absent": "/proc/absent", "a file": tmp_path / "file", "read-only": "/sys"}
    if home == "unknown":
        monkeypatch.setattr(Path, "home", homeless)
    else:
        monkeypatch.setenv("HOME", str(homes[home]))
    before = jax.config.jax_compilation_cache_dir
    prepare_devices()
    (message,) = caplog.messages
    assert message.startswith("compiled programs are not kept for the next start")
    assert jax.config.jax_compilation_cache_dir == before


def test_a_folder_that_cannot_be_written_to_is_no_cache(tmp_path, monkeypatch, caplog):
    """It exists, so that making it succeeds."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "attnjax/jax").mkdir(parents=True)
    monkeypatch.setattr("tempfile.TemporaryFile", lambda **_: homeless())
    prepare_devices()
    assert len(caplog.messages) == 1
