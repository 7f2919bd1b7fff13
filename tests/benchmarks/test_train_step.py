import json
import sys

import pytest

from attnjax.benchmarks import train_step

SIZES = train_step.Sizes(
    width=6,
    feed_forward_width=7,
    num_heads=3,
    num_layers=1,
    vocabulary=13,
    batch=2,
    tokens=5,
)
FAKE_TORCH = """
import json, sys
sizes = json.loads(sys.argv[1])
print(json.dumps({"version": f"fake for {sizes['model']}"}), flush=True)
for line in sys.stdin:
    print(json.dumps([0.5] * int(line)), flush=True)
"""


@pytest.fixture
def peer_python(tmp_path):
    """A Python that runs a fake peer in place of the script it is given."""
    script = tmp_path / "peer.py"
    script.write_text(FAKE_TORCH)
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nshift\nexec {sys.executable} {script} "$@"\n')
    python.chmod(0o755)
    return python


def arguments(**settings):
    return train_step.Arguments(rounds=2, steps=3, sizes=SIZES, **settings)


@pytest.mark.parametrize("model", ["transformer", "bahdanau"])
def test_reports_both_sides_and_their_ratio(model, peer_python):
    report = train_step.measure(arguments(model=model, peer_python=peer_python))
    assert report["versions"]["torch"] == f"fake for {model}"
    assert report["torch"] == {"median_ms": 500.0, "min_ms": 500.0, "steps": 6}
    ours = report["attnjax"]
    assert 0.0 < ours["min_ms"] <= ours["median_ms"]
    assert ours["steps"] == 6
    assert report["ratio"] == ours["median_ms"] / 500.0


def test_prints_json_last_and_needs_no_peer(monkeypatch, capsys):
    sizes = [
        f"--sizes.{name.replace('_', '-')}={value}"
        for name, value in (
            ("width", 6),
            ("feed_forward_width", 7),
            ("num_heads", 3),
            ("num_layers", 1),
            ("vocabulary", 13),
            ("batch", 2),
            ("tokens", 5),
        )
    ]
    monkeypatch.setattr(sys, "argv", ["train_step", "--rounds=1", "--steps=1", *sizes])
    train_step.main()
    report = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert report["sizes"]["width"] == 6
    assert "torch" not in report
    assert "ratio" not in report


def test_peer_that_fails_is_named(tmp_path):
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexit 3\n")
    python.chmod(0o755)
    with pytest.raises(SystemExit, match="torch_train_step.py ended early"):
        train_step.measure(arguments(peer_python=python))
