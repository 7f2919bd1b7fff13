"""Event files hold every number, and no TensorFlow is needed to write them."""

import struct
import subprocess
import sys

from tensorboardX.proto import event_pb2

from attnjax.training.hooks import RunStart
from attnjax.training.tensorboard import TensorBoard

RECORD = {"event": "train", "step": 3, "loss": 2.5, "timing": {"seconds": 0.5}}


def events(folder):
    """Parses the files: length, checksum, event, checksum, and so on."""
    for path in sorted(folder.glob("events.*")):
        data = path.read_bytes()
        while data:
            (length,) = struct.unpack("<Q", data[:8])
            yield event_pb2.Event.FromString(data[12 : 12 + length])
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


def test_a_resumed_run_hides_what_is_beyond(tmp_path):
    run(tmp_path, step=2)
    starts = [
        event.step
        for event in events(tmp_path / "tensorboard")
        if event.session_log.status == event_pb2.SessionLog.START
    ]
    assert starts == [3]


def test_the_trainer_imports_no_tensorflow():
    code = (
        "import sys, attnjax.training.loop, attnjax.training.observers;"
        "sys.exit('tensorflow' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
