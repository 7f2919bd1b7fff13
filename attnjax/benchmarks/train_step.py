"""Time of one training step beside PyTorch, on the same machine in one run.

    python -m attnjax.benchmarks.train_step --peer-python PATH/TO/python

The two take turns, round by round, so that both meet the same disturbances; neither
works while the other is timed. The peer (`torch_train_step`) is a process of its own,
under a Python that has torch, so that torch is never needed here; without one, only
our own time is measured. The last line of the output is a JSON object.

Use a machine that is doing nothing else: the threads of the peer wait for each other,
so that other work slows it down out of proportion.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import optax
import tyro
from flax import linen as nn

from attnjax.config import RNNConfig, TransformerConfig
from attnjax.models.rnn import RNNSeq2Seq
from attnjax.models.transformer import Transformer
from attnjax.terminal import run_command
from attnjax.training.losses import cross_entropy
from attnjax.types import Tokens

ModelName = Literal["transformer", "bahdanau"]
Timer = Callable[[int], list[float]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sizes:
    """What both models have in common."""

    width: int = 256
    feed_forward_width: int = 1_024
    num_heads: int = 8
    num_layers: int = 3  # of encoder and decoder each; the RNN has one
    vocabulary: int = 8_000
    batch: int = 32  # sentence pairs
    tokens: int = 32  # of each sentence
    dropout: float = 0.1  # everywhere that torch.nn.Transformer drops


@dataclasses.dataclass(frozen=True, kw_only=True)
class Arguments:
    """What to time, and for how long."""

    model: ModelName = "transformer"
    peer_python: Path | None = None  # a Python that has torch; None: no peer
    rounds: int = 5  # turns of each side
    steps: int = 4  # timed steps in a turn
    sizes: Sizes = Sizes()


def main() -> None:
    """Times both sides, and prints medians and their ratio."""
    arguments = tyro.cli(Arguments, description=__doc__)
    report = measure(arguments)
    for name in ("attnjax", "torch"):
        if name in report:
            times = report[name]
            print(f"{name:8} {times['median_ms']:8.1f} ms (min {times['min_ms']:.1f})")
    if "ratio" in report:
        print(f"{'ratio':8} {report['ratio']:8.2f}")
    print(json.dumps(report))


def measure(arguments: Arguments) -> dict[str, Any]:
    """Times our step, and the peer's if there is one, in turn.

    Args:
        arguments: what to time.

    Returns:
        JSON-able medians and minima in milliseconds, and what they were measured on.
    """
    timers: dict[str, Timer] = {"attnjax": our_timer(arguments.model, arguments.sizes)}
    report: dict[str, Any] = {
        "model": arguments.model,
        "sizes": dataclasses.asdict(arguments.sizes),
        "machine": _machine(),
        "versions": {"jax": jax.__version__, "python": platform.python_version()},
    }
    with _peer(arguments) as peer:
        if peer is not None:
            timers["torch"], report["versions"]["torch"] = peer
        for timer in timers.values():
            timer(2)  # warm-up
        seconds: dict[str, list[float]] = {name: [] for name in timers}
        for _ in range(arguments.rounds):
            for name, timer in timers.items():
                seconds[name] += timer(arguments.steps)
    for name, values in seconds.items():
        report[name] = {
            "median_ms": 1e3 * statistics.median(values),
            "min_ms": 1e3 * min(values),
            "steps": len(values),
        }
    if "torch" in report:
        report["ratio"] = report["attnjax"]["median_ms"] / report["torch"]["median_ms"]
    return report


def our_timer(model: ModelName, sizes: Sizes) -> Timer:
    """Compiles a training step: forward, backward, Adam.

    Args:
        model: which family.
        sizes: of the model and the batch.

    Returns:
        A function that takes so many steps and returns the seconds of each.
    """
    module = make_model(model, sizes)
    rng = jax.random.key(0)
    shape = (3, sizes.batch, sizes.tokens)
    source_ids, input_ids, labels = jax.random.randint(rng, shape, 4, sizes.vocabulary)
    valid = jnp.ones(shape[1:], bool)
    batch = Tokens(source_ids, valid), Tokens(input_ids, valid), labels
    optimizer = optax.adam(1e-3, b2=0.98, eps=1e-9)
    step = jax.jit(functools.partial(_train_step, module, optimizer), donate_argnums=0)
    variables = jax.jit(functools.partial(module.init, train=False))(rng, *batch[:2])
    state = variables, optimizer.init(variables)

    def timer(steps: int) -> list[float]:
        nonlocal state, rng
        seconds = []
        for _ in range(steps):
            rng = jax.random.fold_in(rng, 1)
            start = time.perf_counter()
            state, loss = step(state, batch, rng)
            jax.block_until_ready((state, loss))
            seconds.append(time.perf_counter() - start)
        return seconds

    return timer


def make_model(model: ModelName, sizes: Sizes) -> nn.Module:
    """Our model of the given sizes."""
    if model == "bahdanau":
        recurrent = RNNConfig(
            embedding_width=sizes.width,
            hidden_width=sizes.width,
            attention_width=sizes.width,
            dropout=sizes.dropout,
        )
        return RNNSeq2Seq(recurrent, sizes.vocabulary, sizes.vocabulary)
    config = TransformerConfig(
        width=sizes.width,
        num_heads=sizes.num_heads,
        feed_forward_width=sizes.feed_forward_width,
        encoder_layers=sizes.num_layers,
        decoder_layers=sizes.num_layers,
        dropout=sizes.dropout,
        attention_dropout=sizes.dropout,
        feed_forward_dropout=sizes.dropout,
    )
    return Transformer(config, sizes.vocabulary, sizes.vocabulary)


def _train_step(module, optimizer, state, batch, rng):
    variables, moments = state
    source, inputs, labels = batch

    def mean_loss(variables):
        decoded = module.apply(
            variables, source, inputs, train=True, rngs={"dropout": rng}
        )
        weights = jnp.ones(labels.shape, jnp.float32)
        sums = cross_entropy(decoded.logits, labels, weights, smoothing=0.1)
        return sums.loss / sums.weight

    loss, gradient = jax.value_and_grad(mean_loss)(variables)
    updates, moments = optimizer.update(gradient, moments, variables)
    return (optax.apply_updates(variables, updates), moments), loss


@contextmanager
def _peer(arguments: Arguments) -> Iterator[tuple[Timer, str] | None]:
    """The peer's timer and version, from a process that ends with the context."""
    if arguments.peer_python is None:
        yield None
        return
    script = Path(__file__).with_name("torch_train_step.py")
    request = {"model": arguments.model, **dataclasses.asdict(arguments.sizes)}
    process = subprocess.Popen(
        [arguments.peer_python, script, json.dumps(request)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:

        def answer() -> Any:
            line = process.stdout.readline() if process.stdout else ""
            if not line:
                sys.exit(f"{script.name} ended early under {arguments.peer_python}.")
            return json.loads(line)

        def timer(steps: int) -> list[float]:
            if process.stdin is not None:
                print(steps, file=process.stdin, flush=True)
            return answer()

        yield timer, answer()["version"]


def _machine() -> str:
    cores = len(os.sched_getaffinity(0))
    return f"{platform.system()} {platform.machine()}, {cores} cores"


if __name__ == "__main__":
    sys.exit(run_command(main))
