"""The benchmark measures what it says, on a small checkpoint."""

import os

import pytest

from attnjax.benchmarks.checkpoint_integrity import measure
from attnjax.training import manifest


@pytest.mark.parametrize("cold", [False, True])
def test_a_small_checkpoint_is_measured(tmp_path, monkeypatch, cold):
    read, forgotten = [], []
    advise = os.posix_fadvise
    monkeypatch.setattr(
        os, "posix_fadvise", lambda *a: forgotten.append(a) or advise(*a)
    )
    digest = manifest._digest
    monkeypatch.setattr(manifest, "_digest", lambda *a: read.append(a) or digest(*a))
    found = measure(tmp_path, megabytes=2, repeats=2, cold=cold)
    assert found["megabytes"] == pytest.approx(2, rel=0.01)
    share = found["verified_restore_seconds"] / found["restore_seconds"] - 1
    assert found["verification_share"] == pytest.approx(share)
    assert 0 < found["digests_alone_seconds"]
    num_files = len([path for path in tmp_path.rglob("*") if path.is_file()]) - 1
    assert len(forgotten) == cold * (num_files + 1) * 2 * 3
    assert len(read) == num_files * (1 + 2 * 3)  # written, and verified in two ways
