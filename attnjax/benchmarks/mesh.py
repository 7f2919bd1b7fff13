"""What a mesh costs, told by the compiler: memory per device, and collectives.

    python -m attnjax.benchmarks.mesh --config configs/wmt_big.py \
        --meshes 8,1,1 2,4,1 2,2,2

The gradient of the largest batch is compiled for so many virtual CPU devices, without
data and without running it. Each mesh is ``data,fsdp,tensor``; the tokens of a batch
are those of the config, of all devices together.
"""

from __future__ import annotations

import collections
import dataclasses
import math
import re
import runpy
import sys
from collections.abc import Mapping
from pathlib import Path

import jax
import tyro

from attnjax.benchmarks.numbered_words import numbered_words
from attnjax.config import Experiment, ParallelConfig
from attnjax.data.layout import full_batch
from attnjax.data.shapes import BatchShape, rows_of
from attnjax.data.vocabulary import TokenizerPair
from attnjax.experiment import build_model, build_optimizer, build_task
from attnjax.tasks.translator import Translator
from attnjax.terminal import run_command
from attnjax.training.footprint import Footprint, footprint
from attnjax.training.sharding import Layout, jit_train_step
from attnjax.training.state import abstract_state
from attnjax.training.step import TrainStep, make_train_step

COLLECTIVES = (
    *("all-reduce", "all-gather", "reduce-scatter", "all-to-all"),
    "collective-permute",
)
_ITEM_BYTES = {"pred": 1, "bf16": 2, "f16": 2, "f32": 4, "s32": 4, "u32": 4, "u8": 1}
_RESULT = re.compile(rf"({'|'.join(_ITEM_BYTES)})\[([\d,]*)\]")
_CALL = re.compile(rf"= (.*?) ({'|'.join(COLLECTIVES)})(?:-start)?\(")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Arguments:
    """What to compile, for which meshes."""

    config: Path = Path("configs/wmt_big.py")
    meshes: tuple[str, ...] = ("8,1,1", "2,4,1", "2,2,2")  # data,fsdp,tensor


@dataclasses.dataclass(frozen=True)
class Traffic:
    """The calls of one collective in a compiled program.

    Attributes:
        calls: how many there are.
        num_bytes: of their results on each device, together.
    """

    calls: int
    num_bytes: int


@dataclasses.dataclass(frozen=True)
class MeshReport:
    """What loss and gradient take on a mesh.

    Attributes:
        sizes: of the mesh, ``data``, ``fsdp`` and ``tensor``.
        memory: per device.
        traffic: by the name of the collective.
    """

    sizes: tuple[int, int, int]
    memory: Footprint
    traffic: Mapping[str, Traffic]


def main() -> None:
    """Compiles for each mesh, and prints a table."""
    arguments = tyro.cli(Arguments, description=__doc__)
    meshes = [tuple(map(int, mesh.split(","))) for mesh in arguments.meshes]
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", max(map(math.prod, meshes)))
    experiment: Experiment = runpy.run_path(str(arguments.config))["experiment"]
    print(_row("data, fsdp, tensor", *_COLUMNS))
    print(_row("---", *("---:" for _ in _COLUMNS)))
    for data, fsdp, tensor in meshes:
        parallel = ParallelConfig(data=data, fsdp=fsdp, tensor=tensor)
        print(describe(measure(experiment, parallel)), flush=True)


def measure(experiment: Experiment, parallel: ParallelConfig) -> MeshReport:
    """Compiles the gradient of the largest batch for a mesh.

    Args:
        experiment: its data are not read; the vocabularies have the sizes asked for.
        parallel: the mesh, over the first devices there are.

    Returns:
        Memory and collectives.
    """
    sizes = dataclasses.astuple(parallel)
    layout = Layout.over(jax.devices()[: math.prod(sizes)], parallel)
    tokenizers = numbered_words(experiment.data.tokenizer.vocab_size)
    step = _step(experiment, tokenizers)
    data = experiment.data
    length = data.bucket_lengths[-1]
    multiple = math.lcm(data.rows_multiple, layout.num_row_shards)
    rows = rows_of(length, data.tokens_per_batch, multiple)
    batch = full_batch(BatchShape(rows, length, length), tokenizers)
    state = abstract_state(step.task, step.optimizer)
    program = jit_train_step(step, layout).gradient_program(layout.placed(state), batch)
    memory = footprint(step, layout, state, batch, program)
    return MeshReport(sizes, memory, traffic(program.as_text() or ""))


def _step(experiment: Experiment, tokenizers: TokenizerPair) -> TrainStep:
    model = build_model(experiment, tokenizers)
    translator = Translator(model, tokenizers, experiment.decoding)
    task = build_task(experiment, translator, None)
    optimizer = build_optimizer(experiment)
    return make_train_step(task, optimizer)


def traffic(text: str) -> dict[str, Traffic]:
    """Counts the collectives of a compiled program.

    Args:
        text: as the compiler prints it; a call within a loop counts once.

    Returns:
        Calls and bytes of each kind that occurs.
    """
    calls: collections.Counter[str] = collections.Counter()
    num_bytes: collections.Counter[str] = collections.Counter()
    for result, name in _CALL.findall(text):
        calls[name] += 1
        for dtype, shape in _RESULT.findall(result):
            items = math.prod(int(size) for size in shape.split(",") if size)
            num_bytes[name] += items * _ITEM_BYTES[dtype]
    return {name: Traffic(calls[name], num_bytes[name]) for name in calls}


_COLUMNS = (
    *("weights (MB)", "optimiser (MB)", "gradient (MB)", "activations (MB)"),
    *("peak (MB)", *COLLECTIVES),
)


def describe(report: MeshReport) -> str:
    """A row of the table.

    Args:
        report: of a mesh.

    Returns:
        Markdown: megabytes per device, and calls and megabytes of each collective.
    """
    memory = report.memory
    parts = (
        *(memory.parameter_bytes, memory.optimizer_bytes, memory.gradient_bytes),
        *(memory.temporary_bytes, memory.peak_bytes),
    )
    found = [report.traffic.get(name) for name in COLLECTIVES]
    return _row(
        ", ".join(map(str, report.sizes)),
        *("?" if part is None else f"{part / 1e6:,.0f}" for part in parts),
        *(f"{one.calls}: {one.num_bytes / 1e6:,.0f}" if one else "" for one in found),
    )


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    sys.exit(run_command(main))
