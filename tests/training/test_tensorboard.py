"""Event files hold every number, and no TensorFlow is needed to write them."""

import struct
import subprocess
import sys

import pytest
from tensorboardX.proto import event_pb2
from tensorboardX.record_writer import masked_crc32c

from attnjax.storage.faults import StorageError
from attnjax.training.hooks import RunStart
from attnjax.training.tensorboard import TensorBoard

RECORD = {"event": "train", "step": 3, "loss": 2.5, "timing": {"seconds": 0.5}}


def events(folder):
    """Parses the files: length, checksum, event, checksum, and so on."""
    for path in sorted(folder.glob("events.*")):
        data = path.read_bytes()
        while data:
            (length,) = struct.unpack("<Q", data[:8])
            checksum, event = data[8:12], data[12 : 12 + length]
            assert checksum == struct.pack("<I", masked_crc32c(data[:8]))
            checksum = data[12 + length : 16 + length]
            assert checksum == struct.pack("<I", masked_crc32c(event))
            yield event_pb2.Event.FromString(event)
            data = data[16 + length :]


def run(workdir, *, step):
    board = TensorBoard(workdir)
    board.start(RunStart(step, 10, "rows", False))
    board.step(step + 1)
    board.log(RECORD)
    board.close()
    board.close()


def test_every_number_is_a_scalar(tmp_path):
    run(tmp_path, step=0)
    found = {
        (value.tag, event.step): value.simple_value
        for event in events(tmp_path / "tensorboard")
        for value in event.summary.value
    }
    assert found == {("train/loss", 3): 2.5, ("train/seconds", 3): 0.5}


@pytest.mark.parametrize("step", [0, 2])
def test_a_resumed_run_hides_what_is_beyond(tmp_path, step):
    """Step 0 too: what was killed before its first checkpoint begins anew."""
    run(tmp_path, step=step)
    starts = [
        event.step
        for event in events(tmp_path / "tensorboard")
        if event.session_log.status == event_pb2.SessionLog.START
    ]
    assert starts == [step + 1]


def test_sessions_within_one_second_overwrite_nothing(tmp_path):
    for step in (0, 3, 6):
        run(tmp_path, step=step)
    assert len(list((tmp_path / "tensorboard").glob("events.out.tfevents.*"))) == 3
    versions = [e.file_version for e in events(tmp_path / "tensorboard")]
    assert versions.count("brain.Event:2") == 3


@pytest.mark.parametrize("policy", ["stop", "continue"])
def test_a_full_disk_is_a_sentence_and_no_endless_wait(
    tmp_path, files_of_at_most, caplog, policy
):
    """The thread of tensorboardX dies of it, and its eleventh event waits for ever."""
    board = TensorBoard(tmp_path, policy)
    board.start(RunStart(0, 100, "rows", False))
    (file,) = (tmp_path / "tensorboard").iterdir()
    with files_of_at_most(file.stat().st_size + 9):
        if policy == "stop":
            with pytest.raises(StorageError, match="TensorBoard's events could not be"):
                board.log(RECORD)
        else:
            for step in range(30):
                board.log({**RECORD, "step": step})
            assert len(caplog.messages) == 30
    board.close()  # there is room again
    found = [e.step for e in events(tmp_path / "tensorboard") if e.summary.value]
    expected = [3] if policy == "stop" else [*range(30)]
    assert sorted({*found}) == expected


def test_the_trainer_imports_no_tensorflow():
    code = (
        "import sys, attnjax.training.loop, attnjax.training.observers;"
        "sys.exit('tensorflow' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
