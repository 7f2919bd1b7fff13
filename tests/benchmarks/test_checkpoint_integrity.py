"""The benchmark measures what it says, on a small checkpoint."""

import os
import sys

import pytest

from attnjax.benchmarks import checkpoint_integrity
from attnjax.benchmarks.checkpoint_integrity import measure
from attnjax.storage import manifest

_TWO_CPUS = hasattr(os, "sched_getaffinity") and len(os.sched_getaffinity(0)) > 1


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


@pytest.mark.skipif(not _TWO_CPUS, reason="no core to spare")
def test_digests_have_the_spare_core_alone(tmp_path, monkeypatch):
    everywhere = frozenset(os.sched_getaffinity(0))
    spare = frozenset([max(everywhere)])
    places = {"_digest": set(), "load": set()}

    def note_cpus(module, name):
        function = getattr(module, name)

        def noted(*arguments):
            places[name].add(frozenset(os.sched_getaffinity(0)))
            return function(*arguments)

        monkeypatch.setattr(module, name, noted)

    note_cpus(manifest, "_digest")
    note_cpus(checkpoint_integrity, "load")
    measure(tmp_path, megabytes=2, repeats=1, spare_core=True)
    # Saving and what is done once before are not bound.
    assert places == {
        "_digest": {everywhere, spare},
        "load": {everywhere, everywhere - spare},
    }
    assert os.sched_getaffinity(0) == everywhere


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ["--spare-core"],
            "--spare-core: .*(two CPUs, but this process has one|Linux)",
        ),
        (["--repeats", "0"], "--megabytes and --repeats must be at least 1, got 0"),
    ],
)
def test_what_cannot_be_measured_is_a_sentence(
    tmp_path, monkeypatch, arguments, sentence
):
    command = ["checkpoint_integrity", "--folder", str(tmp_path), *arguments]
    monkeypatch.setattr(sys, "argv", command)
    monkeypatch.setattr(os, "sched_getaffinity", lambda thread: {3}, raising=False)
    with pytest.raises(SystemExit, match=sentence):
        checkpoint_integrity.main()
    assert not [*tmp_path.iterdir()]
