"""The benchmark measures what it says, on a model of a few hundred parameters."""

import time

import pytest

from attnjax.benchmarks import save_blocking
from attnjax.benchmarks.train_step import Sizes
from attnjax.storage import commit

SIZES = Sizes(
    width=6,
    feed_forward_width=7,
    num_heads=3,
    num_layers=1,
    vocabulary=13,
    batch=2,
    tokens=5,
)
COMMIT_SECONDS = 1.0


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """Measured with a commit that takes a second more."""
    write = commit.write_manifest

    def write_slowly(*arguments):
        time.sleep(COMMIT_SECONDS)
        write(*arguments)

    commit.write_manifest = write_slowly
    arguments = save_blocking.Arguments(rounds=1, timed_steps=3, steps_per_save=10)
    folder = tmp_path_factory.mktemp("saves")
    try:
        return save_blocking.measure(save_blocking.begin(SIZES), folder, arguments)
    finally:
        commit.write_manifest = write


def test_the_background_work_is_not_counted_as_blocked(found):
    assert found["complete_seconds"] > COMMIT_SECONDS
    assert found["blocked_seconds"] < found["complete_seconds"] - COMMIT_SECONDS / 2
    assert found["steps"] > 1


def test_shares_are_of_the_steps_between_two_saves(found):
    between = 10 * found["step_seconds"]
    assert found["blocked_share"] == pytest.approx(found["blocked_seconds"] / between)
    lost = found["blocked_seconds"] + found["slower_seconds"]
    assert found["lost_share"] == pytest.approx(lost / between)


def test_the_checkpoint_holds_weights_moments_and_average(found):
    assert found["bytes"] > 4 * 4 * found["parameters"]


def test_a_row_has_a_cell_for_each_column(found, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["save_blocking", "--models", "1"])
    monkeypatch.setattr(save_blocking, "measure", lambda *_: found)
    monkeypatch.setattr(save_blocking, "begin", lambda _: None)
    save_blocking.main()
    head, rule, row = [
        line for line in capsys.readouterr().out.split("\n") if line.startswith("|")
    ]
    assert head.count("|") == rule.count("|") == row.count("|")
