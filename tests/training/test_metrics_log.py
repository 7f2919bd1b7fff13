"""The log has each step once, and every line is JSON."""

import json
import logging
import math

import pytest

from attnjax.storage.faults import StorageError
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


@pytest.mark.parametrize(
    "garbage",
    [
        *("7", "null", "[]", "{}", '{"step": 2}', '{"event": "train", "step": "2"}'),
        *('{"event": 7, "step": 2}', "[" * 99_999, "\0", "\ud800"),
    ],
)
def test_a_line_that_is_no_record_is_left_out(tmp_path, garbage):
    write(tmp_path, [record(2)])
    path = tmp_path / "metrics.jsonl"
    broken = garbage.encode("utf-8", "surrogatepass") + b"\n" + path.read_bytes()
    path.write_bytes(broken)
    assert steps(tmp_path) == [("train", 2)]
    write(tmp_path, [record(4)], step=2)
    assert steps(tmp_path) == [("train", 2), ("train", 4)]


def test_a_full_disk_ends_the_log_in_a_sentence(tmp_path, files_of_at_most):
    log = MetricsLog(tmp_path)
    log.start(RunStart(0, 10, "rows", False))
    log.log(record(1))
    message = rf"metrics\.jsonl could not be written to {tmp_path}: File too large"
    with files_of_at_most((tmp_path / "metrics.jsonl").stat().st_size + 9):
        with pytest.raises(StorageError, match=message):
            log.log(record(2))
        with pytest.raises(StorageError, match=message):
            log.close()
        log.close()
    assert steps(tmp_path) == [("train", 1)]  # and a part of step 2
    write(tmp_path, [record(2)], step=1)
    assert steps(tmp_path) == [("train", 1), ("train", 2)]


def test_lines_wait_for_room_where_training_is_to_continue(
    tmp_path, files_of_at_most, caplog
):
    log = MetricsLog(tmp_path, "continue")
    log.start(RunStart(0, 1_000, "rows", False))
    log.log(record(1))
    with (
        caplog.at_level(logging.ERROR),
        files_of_at_most((tmp_path / "metrics.jsonl").stat().st_size + 9),
    ):
        for step in range(2, 500):
            log.log(record(step))
    assert len(caplog.messages) == 498
    log.log(record(500))
    log.close()
    assert steps(tmp_path) == [("train", step) for step in range(1, 501)]


def test_a_log_that_cannot_begin_is_a_sentence(tmp_path, files_of_at_most):
    write(tmp_path, [record(2)])
    before = (tmp_path / "metrics.jsonl").read_bytes()
    with (
        files_of_at_most(9),
        pytest.raises(StorageError, match=r"metrics\.jsonl could"),
    ):
        MetricsLog(tmp_path).start(RunStart(2, 10, "rows", False))
    assert (tmp_path / "metrics.jsonl").read_bytes() == before
