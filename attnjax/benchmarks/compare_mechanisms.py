"""One recipe, many mechanisms: trains a model with each and prints one table.

    python -m attnjax.benchmarks.compare_mechanisms --output results/mechanisms

Each run is a process of its own, ``attnjax train`` and ``attnjax evaluate``, with
nothing changed but the mechanism of one slot; so a row can be had again by its command.
A run that is already complete is not run again.
"""

from __future__ import annotations

import dataclasses
import json
import statistics
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import tyro

from attnjax.config import PositionsName
from attnjax.experiment import RunFolder
from attnjax.ops.catalog import CATALOG
from attnjax.runs.opening import TrainedRun, open_run
from attnjax.terminal import run_command
from attnjax.training.losses import cross_entropy
from attnjax.types import Array, PyTree, Tokens

_OPTIONS = {  # small, since most sentences have fewer than 60 tokens
    "window": 8,
    "block": 8,
    "stride": 4,
    "rank": 32,
    "chunk": 32,
    "top_k": 8,
    "num_global": 1,
}
_MEASURED_TOKENS = (16, 64)  # rows and length of the batch whose memory is told


@dataclasses.dataclass(frozen=True, kw_only=True)
class Arguments:
    """What to compare."""

    config: Path = Path("configs/quickstart.py")
    slot: Literal["encoder", "decoder", "cross"] = "encoder"
    mechanisms: tuple[str, ...] = ()  # names of the catalog; none means all that fit
    positions: PositionsName = "interleaved"  # of a kind that all mechanisms accept
    num_steps: int = 600
    workdir: Path = Path("runs/mechanisms")  # one run folder each goes below it
    output: Path | None = None  # prefix of the .md and .json to write


def main() -> None:
    """Trains, evaluates and prints the table."""
    arguments = tyro.cli(Arguments, description=__doc__)
    names = arguments.mechanisms or tuple(
        name for name, line in CATALOG.items() if arguments.slot in line.slots
    )
    rows = [row_of(arguments, name) for name in names]
    text = table(rows)
    print(text)
    if arguments.output is not None:
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        arguments.output.with_suffix(".md").write_text(text + "\n", encoding="utf-8")
        arguments.output.with_suffix(".json").write_text(json.dumps(rows, indent=1))


def row_of(arguments: Arguments, name: str) -> dict[str, Any]:
    """Trains and scores the model with one mechanism.

    Args:
        arguments: the recipe.
        name: of the mechanism.

    Returns:
        The row of the table; ``bleu`` is None if the run failed.
    """
    workdir = arguments.workdir / f"{arguments.slot}_{name}"
    command = train_command(arguments, name, workdir)
    row: dict[str, Any] = {
        "mechanism": name,
        "command": " ".join(command),
        "bleu": None,
    }
    evaluate = ["evaluate", "--workdir", str(workdir), "--pictures", "0"]
    for step in (command, evaluate):
        done = subprocess.run(
            [sys.executable, "-m", "attnjax", *step], stdout=subprocess.PIPE
        )
        if done.returncode:
            return row
    report = json.loads(done.stdout.splitlines()[-1])
    run = open_run(workdir)
    return row | {
        "bleu": report["bleu"],
        "bleu_over_20_words": _bleu_of_long(report),
        "parameters": sum(x.size for x in jax.tree.leaves(run.variables["params"])),
        "tokens_per_second": _training_speed(RunFolder(workdir).metrics),
        "temporary_megabytes": _step_bytes(run) / 1e6,
    }


def train_command(arguments: Arguments, name: str, workdir: Path) -> list[str]:
    """The command line of one training run, without the program's name."""
    prefix = f"--model.{arguments.slot}-attention."
    line = CATALOG[name]
    chosen = _OPTIONS | ({"clusters": 8} if arguments.slot == "decoder" else {})
    options = {
        key: value for key, value in chosen.items() if key in line.options.names()
    }
    command = ["train", "--config", str(arguments.config), "--workdir", str(workdir)]
    command += ["--training.num-steps", str(arguments.num_steps)]
    command += ["--model.positions", arguments.positions, f"{prefix}kind", name]
    for option, value in options.items():
        command += [f"{prefix}{option.replace('_', '-')}", str(value)]
    return command


def table(rows: list[dict[str, Any]]) -> str:
    """The rows as Markdown, in the order of the catalog."""
    lines = [
        "| mechanism | BLEU | over 20 words | parameters | target tokens/s | step MB |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for row in rows:
        if row["bleu"] is None:
            lines.append(f"| {row['mechanism']} | failed | | | | |")
            continue
        lines.append(
            f"| {row['mechanism']} | {row['bleu']:.1f} | {row['bleu_over_20_words']} | "
            f"{row['parameters']:,} | {row['tokens_per_second']:,.0f} | "
            f"{row['temporary_megabytes']:,.0f} |"
        )
    return "\n".join(lines)


def _bleu_of_long(report: Mapping[str, Any]) -> str:
    buckets = report["bleu_by_source_words"]
    long = [bucket for bucket in buckets if bucket["label"] in ("21-30", "31-50")]
    return " / ".join(f"{bucket['bleu']:.1f}" for bucket in long)


def _training_speed(metrics: Path) -> float:
    """The median over the log lines of a run, so that compilation does not count."""
    events = [json.loads(line) for line in metrics.read_text().splitlines()]
    return statistics.median(
        event["timing"]["target_tokens_per_second"]
        for event in events
        if event["event"] == "train"
    )


def _step_bytes(run: TrainedRun) -> int:
    """Temporary memory of loss and gradient of one batch, from the compiler."""
    model = run.translator.model
    tokens = Tokens(
        np.ones(_MEASURED_TOKENS, np.int32), np.ones(_MEASURED_TOKENS, bool)
    )
    collections = [name for name in run.variables if name != "params"]

    def loss(params: PyTree, source: Tokens, inputs: Tokens) -> Array:
        decoded, _ = model.apply(
            {**run.variables, "params": params},
            source,
            inputs,
            train=True,
            rngs={"dropout": jax.random.key(0)},
            mutable=collections,
        )
        weights = inputs.valid.astype(jnp.float32)
        return cross_entropy(decoded.logits, inputs.ids, weights, smoothing=0.1).loss

    lowered = jax.jit(jax.grad(loss)).lower(run.variables["params"], tokens, tokens)
    analysis = lowered.compile().memory_analysis()
    return 0 if analysis is None else int(analysis.temp_size_in_bytes)


if __name__ == "__main__":
    sys.exit(run_command(main))
