"""The log has each step once, and every line is JSON."""

import json
import math

import pytest

from attnjax.training.hooks import RunStart, scalars
from attnjax.training.metrics_log import MetricsLog, read_metrics

TIMING = {"seconds": 1.5}


def record(step, event="train", **values):
    return {"event": event, "step": step, **values, "timing": TIMING}


def write(workdir, records, *, step=0, evaluated=False):
    log = MetricsLog(workdir)
    log.start(RunStart(step, 10, "rows", evaluated))
    for each in records:
        log.step(each["step"])
        log.log(each)
    log.close()


def steps(workdir):
    return [(each["event"], each["step"]) for each in read_metrics(workdir)]


def test_records_come_back(tmp_path):
    records = [record(2, loss=1 / 3), record(4, "validation", bleu=31.5)]
    write(tmp_path / "new", records)
    assert read_metrics(tmp_path / "new") == records
    assert read_metrics(tmp_path) == []


def test_lines_are_on_disk_before_the_log_is_closed(tmp_path):
    log = MetricsLog(tmp_path)
    log.start(RunStart(0, 10, "rows", False))
    log.log(record(1, loss=1.0))
    assert steps(tmp_path) == [("train", 1)]
    log.close()


@pytest.mark.parametrize(
    ("evaluated", "kept"),
    [
        (True, [("train", 2), ("train", 4), ("validation", 4)]),
        (False, [("train", 2), ("train", 4)]),
    ],
)
def test_lines_beyond_the_restored_step_are_cut_off(tmp_path, evaluated, kept):
    old = [record(2), record(4), record(4, "validation"), record(6), record(8)]
    write(tmp_path, old)
    write(tmp_path, [record(6), record(7)], step=4, evaluated=evaluated)
    assert steps(tmp_path) == [*kept, ("train", 6), ("train", 7)]


@pytest.mark.parametrize(("lost", "kept"), [(0, 2), (1, 2), (2, 1), (9, 1)])
def test_a_half_written_line_is_dropped_or_completed(tmp_path, lost, kept):
    write(tmp_path, [record(2), record(4)])
    path = tmp_path / "metrics.jsonl"
    text = path.read_text()
    path.write_text(text[: len(text) - lost])
    expected = [("train", 2), ("train", 4)][:kept]
    assert steps(tmp_path) == expected
    write(tmp_path, [record(6)], step=4)
    assert steps(tmp_path) == [*expected, ("train", 6)]


def test_what_is_not_finite_is_null(tmp_path):
    write(tmp_path, [record(2, bleu=math.nan, loss=math.inf)])
    text = (tmp_path / "metrics.jsonl").read_text()
    found = json.loads(text, parse_constant=lambda name: pytest.fail(name))
    assert found == record(2, bleu=None, loss=None)


def test_scalars_leave_out_what_every_record_has():
    assert scalars(record(2, loss=1.0, bleu=2.0)) == {"loss": 1.0, "bleu": 2.0}
