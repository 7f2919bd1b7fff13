"""How long a save holds up training, and what its background work costs besides.

    python -m attnjax.benchmarks.save_blocking

`Checkpoints.save` copies the state and returns; writing, digests, the commit and the
removal of old checkpoints go on in threads while training steps. Two things are lost:
the seconds until `save` returns (*blocked*), and what the steps up to the commit take
longer than others, because they share the processor (*slower*). On an accelerator the
second one is small; on two cores it is most of the whole.

Each figure is the median over the rounds. The last line of the output is JSON.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
import optax
import tyro

from attnjax.benchmarks.numbered_words import numbered_words
from attnjax.benchmarks.train_step import Sizes, make_model
from attnjax.config import DecodingConfig
from attnjax.data.layout import lay_out_pairs
from attnjax.storage.checkpoints import Checkpoints
from attnjax.tasks.translation import TranslationTask, ValidationSet
from attnjax.tasks.translator import Translator
from attnjax.terminal import run_command
from attnjax.training.state import TrainState, init_state
from attnjax.training.step import make_train_step
from attnjax.types import PairBatch

SIZES = (
    Sizes(width=128, feed_forward_width=512, num_heads=4, num_layers=2),
    Sizes(),
    Sizes(width=512, feed_forward_width=2_048, num_layers=6, batch=16),
)
_HEADER = (
    "parameters",
    *("checkpoint", "step", "blocked per save", "of the steps between", "complete"),
    *("steps meanwhile", "slower by", "lost in all"),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Arguments:
    """What to measure."""

    rounds: int = 5  # saves of each model, after one to warm up
    steps_per_save: int = 100  # of the run that the shares are of
    timed_steps: int = 8  # before each save
    models: int = len(SIZES)  # so many of them, the smallest first
    folder: Path = Path(tempfile.gettempdir())  # on the disk in question


class Training(NamedTuple):
    """A run in the middle.

    Attributes:
        state: with optimiser and moving average, as large as a checkpoint.
        update: one step, which donates the state.
    """

    state: TrainState
    update: Callable[[TrainState], TrainState]


def main() -> None:
    """Prints a table, and the same as JSON."""
    arguments = tyro.cli(Arguments, description=__doc__)
    print(f"{jax.default_backend()}, {os.cpu_count()} cores\n")
    print("| " + " | ".join(_HEADER) + " |")
    print("| " + " | ".join(["---:"] * len(_HEADER)) + " |")
    found = []
    for sizes in SIZES[: arguments.models]:
        with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
            found.append(measure(begin(sizes), Path(folder), arguments))
        print("| " + " | ".join(_cells(found[-1])) + " |", flush=True)
    print(json.dumps(found))


def begin(sizes: Sizes) -> Training:
    """Compiles the train step of a Transformer, and takes one.

    Args:
        sizes: of the model and its batch, which is random.

    Returns:
        The state after it, and the step.
    """
    model = make_model("transformer", sizes)
    tokenizers = numbered_words(sizes.vocabulary)
    translator = Translator(model, tokenizers, DecodingConfig())
    task = TranslationTask(
        translator, ValidationSet(), label_smoothing=0.1, tokens_per_batch=1
    )
    batch = _random_batch(sizes)
    optimizer = optax.adam(1e-3)
    init = functools.partial(init_state, task, optimizer, with_ema=True)
    step = make_train_step(task, optimizer, ema_decay=0.999)
    update = jax.jit(lambda state: step(state, batch)[0], donate_argnums=0)
    return Training(jax.block_until_ready(update(jax.jit(init)(0))), update)


def measure(training: Training, folder: Path, arguments: Arguments) -> dict[str, float]:
    """Trains and saves in turn.

    Args:
        training: to go on with.
        folder: an empty one.
        arguments: how often.

    Returns:
        Medians: seconds of a step, until a save returns, until it is complete; and as
        shares of the time of the steps between two saves what is blocked, and what is
        lost with the slower steps.
    """
    state, update = training
    plain: list[float] = []
    rounds: list[dict[str, float]] = []

    def step() -> float:
        nonlocal state
        start = time.perf_counter()
        state = jax.block_until_ready(update(state))
        return time.perf_counter() - start

    with Checkpoints(folder, 1) as checkpoints:
        for number in range(arguments.rounds + 1):
            plain += [step() for _ in range(arguments.timed_steps)]
            start = time.perf_counter()
            checkpoints.save(number, state, {})
            blocked = time.perf_counter() - start
            meanwhile: list[float] = []
            while not (folder / str(number)).exists():
                meanwhile.append(step())
            complete = time.perf_counter() - start
            checkpoints.wait()
            usual = statistics.median(plain[-arguments.timed_steps :])
            slower = sum(meanwhile) - usual * len(meanwhile)
            measured = (blocked, complete, len(meanwhile), slower)
            names = ("blocked_seconds", "complete_seconds", "steps", "slower_seconds")
            rounds.append(dict(zip(names, measured, strict=True)))
    found = {
        name: statistics.median(each[name] for each in rounds[1:]) for name in rounds[0]
    }
    found["step_seconds"] = statistics.median(plain)
    found["parameters"] = sum(leaf.size for leaf in jax.tree.leaves(state.params))
    found["bytes"] = _size(folder / str(arguments.rounds))
    between = arguments.steps_per_save * found["step_seconds"]
    found["blocked_share"] = found["blocked_seconds"] / between
    lost = found["blocked_seconds"] + found["slower_seconds"]
    found["lost_share"] = lost / between
    return found


def _random_batch(sizes: Sizes) -> PairBatch:
    shape = (sizes.batch, 2, sizes.tokens - 1)  # and a </s>, or <s>
    ids = np.random.default_rng(0).integers(4, sizes.vocabulary, shape, np.int32)
    rows = [[(source, target)] for source, target in ids]
    return lay_out_pairs(
        rows, sizes.tokens, sizes.tokens, numbered_words(sizes.vocabulary)
    )


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _cells(found: dict[str, float]) -> list[str]:
    return [
        f"{found['parameters'] / 1e6:.1f} M",
        f"{found['bytes'] / 1e6:.0f} MB",
        f"{1e3 * found['step_seconds']:.0f} ms",
        f"{1e3 * found['blocked_seconds']:.0f} ms",
        f"{found['blocked_share']:.2%}",
        f"{found['complete_seconds']:.1f} s",
        f"{found['steps']:.0f}",
        f"{1e3 * found['slower_seconds']:.0f} ms",
        f"{found['lost_share']:.2%}",
    ]


if __name__ == "__main__":
    sys.exit(run_command(main))
