"""Two processes write and read a checkpoint together; one manifest covers both."""

import json
import os
import socket
import subprocess
import sys

import pytest

SCRIPT = """
import json, logging, sys
from pathlib import Path
import jax, numpy as np
number, port, folder, job = int(sys.argv[1]), *sys.argv[2:]
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(f"127.0.0.1:{port}", 2, number)
from jax.sharding import NamedSharding, PartitionSpec
from attnjax.storage.checkpoints import Checkpoints
from attnjax.storage.manifest import DamagedCheckpointError
logging.getLogger("absl").setLevel(logging.CRITICAL)
mesh = jax.make_mesh((2,), ("all",), axis_types=(jax.sharding.AxisType.Auto,))
split = NamedSharding(mesh, PartitionSpec("all"))

def state(value):
    local = np.full((3, 5), value + number, np.float32)
    return {"kernel": jax.make_array_from_process_local_data(split, local)}

found = None
with Checkpoints(Path(folder), 9) as checkpoints:
    if job == "save":
        for step in (1, 2):
            checkpoints.save(step, state(10.0 * step), {"step": step})
    else:
        refused = ""
        try:
            checkpoints.restore(2, state(0.0))
        except DamagedCheckpointError as error:
            refused = str(error)
        step, restored, extra = checkpoints.resume(state(0.0))
        shard = np.asarray(restored["kernel"].addressable_data(0))
        found = [refused, step, np.unique(shard).tolist(), extra["step"]]
        found.append(checkpoints.steps())
print(json.dumps(found))
"""


def together(folder, job):
    """What each process printed last."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": ""}
    pair = [
        subprocess.Popen(
            [sys.executable, "-c", SCRIPT, str(number), str(port), str(folder), job],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for number in (0, 1)
    ]
    try:
        outputs = [process.communicate(timeout=200) for process in pair]
    finally:
        for process in pair:
            process.kill()
    for process, (_, errors) in zip(pair, outputs, strict=True):
        assert process.returncode == 0, errors
    return [json.loads(out.splitlines()[-1]) for out, _ in outputs]


@pytest.mark.slow
def test_both_refuse_what_one_of_them_finds_damaged(tmp_path):
    folder = tmp_path / "checkpoints"
    together(folder, "save")
    files = json.loads((folder / "2/manifest.json").read_text())["files"]
    assert {name.split("/")[1] for name in files if "ocdbt.process" in name} == {
        "ocdbt.process_0",
        "ocdbt.process_1",
    }
    lost = next(name for name in files if name.startswith("state/ocdbt.process_1/d/"))
    (folder / "2" / lost).unlink()
    for number, found in enumerate(together(folder, "resume")):
        refused, *rest = found
        assert f"2 is damaged: {lost} is missing" in refused
        assert rest == [1, [10.0 + number], 1, [1]]
    assert (folder / "2.damaged").is_dir()
