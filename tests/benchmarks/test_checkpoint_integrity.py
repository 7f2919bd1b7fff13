"""The benchmark measures what it says, on a small checkpoint."""

import pytest

from attnjax.benchmarks.checkpoint_integrity import measure
from attnjax.training import manifest


def test_a_small_checkpoint_is_measured(tmp_path, monkeypatch):
    read = []
    digest = manifest._digest
    monkeypatch.setattr(manifest, "_digest", lambda *a: read.append(a) or digest(*a))
    found = measure(tmp_path, megabytes=2, repeats=2)
    assert found["megabytes"] == pytest.approx(2, rel=0.01)
    share = found["verified_restore_seconds"] / found["restore_seconds"] - 1
    assert found["verification_share"] == pytest.approx(share)
    assert 0 < found["digests_alone_seconds"]
    num_files = len([path for path in tmp_path.rglob("*") if path.is_file()]) - 1
    assert len(read) == num_files * (1 + 2 * 3)  # written, and verified in two ways
