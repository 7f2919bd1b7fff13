"""Time and memory of attention mechanisms by length of the sequence.

    python -m attnjax.benchmarks.attention --output results/attention

Every mechanism of the catalog (or those named) runs forward, and forward with backward,
on sequences of growing length. Memory is what the compiler reserves beyond inputs and
outputs, time the median of repeated calls. Where the compiler asks for more memory than
the machine has free, the row says so and is not run. Written are a table (Markdown), a
JSON file and a picture with logarithmic axes. `attnjax bench attention` is the same.

Times mean something only on a machine that does nothing else.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import tyro

from attnjax.benchmarks.attention_report import Row, plot, table
from attnjax.fields import annotated
from attnjax.ops.catalog import CATALOG, MECHANISMS, entry
from attnjax.ops.entry import Sizes
from attnjax.terminal import run_command
from attnjax.types import Mask

logger = logging.getLogger(__name__)

_SLOW_SECONDS = 5.0  # a call that takes longer is made once

Direction = Literal["forward", "backward"]


AllOptions = dataclasses.make_dataclass(
    "AllOptions",
    [
        (name, annotation | None, None)
        for name, annotation in {
            name: annotation
            for line in CATALOG.values()
            for name, annotation in annotated(line.options).items()
        }.items()
    ],
    frozen=True,
    kw_only=True,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Arguments:
    """What to measure."""

    mechanisms: tuple[str, ...] = ()  # names of the catalog; none means all
    lengths: tuple[int, ...] = (256, 512, 1_024, 2_048, 4_096, 8_192, 16_384)
    batch: int = 1
    heads: int = 8
    head_width: int = 64
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    causal: bool = False  # leaves out the mechanisms that cannot be
    # options, for all mechanisms that have them; None is the default of each
    options: AllOptions = AllOptions()  # type: ignore[valid-type]
    seconds: float = 2.0  # of repeated calls for each row, 3 to 50 (1 if one takes 5 s)
    max_gigabytes: float | None = None  # temporary memory to allow; None: 80 % of free
    output: Path | None = None  # prefix of the .md, .json and .png to write


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures, prints the table and writes the files.

    Args:
        arguments: of the command line; None means those of the process.
    """
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    chosen = tyro.cli(
        Arguments,
        prog="attnjax bench attention",
        args=arguments,
        description=__doc__,
    )
    rows = measure(chosen)
    text = table(rows)
    print(text)
    if chosen.output is not None:
        chosen.output.parent.mkdir(parents=True, exist_ok=True)
        report = {
            "arguments": json.loads(
                json.dumps(dataclasses.asdict(chosen), default=str)
            ),
            "device": jax.devices()[0].device_kind,
            "jax": jax.__version__,
            "rows": [dataclasses.asdict(row) for row in rows],
        }
        chosen.output.with_suffix(".md").write_text(text + "\n", encoding="utf-8")
        chosen.output.with_suffix(".json").write_text(json.dumps(report, indent=1))
        plot(rows, chosen.output.with_suffix(".png"))


def measure(arguments: Arguments) -> list[Row]:
    """Measures every mechanism at every length, both directions.

    Args:
        arguments: what to measure.

    Returns:
        A row each; the time of one that does not fit into memory is None.

    Raises:
        ValueError: if a mechanism is not in the catalog or cannot be causal, or if none
            of them reads an option that is set.
    """
    names = arguments.mechanisms or tuple(
        name
        for name, line in CATALOG.items()
        if not arguments.causal or "causal" in line.facts
    )
    _require_read(arguments.options, names)
    limit = _memory_limit(arguments)
    rows = []
    for name in names:
        for length in arguments.lengths:
            for direction in ("forward", "backward"):
                row = _measured(arguments, name, length, direction, limit)
                rows.append(row)
                spent = "not run" if row.milliseconds is None else row.milliseconds
                logger.info("%s %d %s: %s ms", name, length, direction, spent)
    return rows


def _require_read(options: Any, names: Sequence[str]) -> None:
    read = dict.fromkeys(n for name in names for n in entry(name).options.names())
    unread = [f"--options.{name}" for name in _given(options) if name not in read]
    if unread:
        raise ValueError(
            f"nobody reads {', '.join(unread)}: {', '.join(names)} read "
            f"{', '.join(read) or 'no option'}; leave it out, or name what reads it in "
            "--mechanisms."
        )


def _given(options: Any) -> dict[str, Any]:
    return {name: value for name, value in vars(options).items() if value is not None}


def temporary_bytes(name: str, length: int, direction: Direction = "backward") -> int:
    """Compiled temporary memory at the default options (B 1, H 8, K 64).

    Args:
        name: of the mechanism.
        length: n.
        direction: forward only, or forward and backward.

    Returns:
        Bytes beyond inputs and outputs, from the compiler.
    """
    return _compiled(Arguments(), name, length, direction)[1]


def _measured(
    arguments: Arguments, name: str, length: int, direction: Direction, limit: float
) -> Row:
    run, needed = _compiled(arguments, name, length, direction)
    row = Row(name, length, direction, needed, None)
    if needed > limit:
        return row
    shape = (arguments.batch, arguments.heads, length, arguments.head_width)
    inputs = [
        jax.random.normal(rng, shape, jnp.dtype(arguments.dtype))
        for rng in jax.random.split(jax.random.key(0), 3)
    ]
    times = [_seconds(run, inputs)]
    if times[0] < _SLOW_SECONDS:  # the first call of a quick function counts for naught
        times = [_seconds(run, inputs) for _ in range(3)]
        while sum(times) < arguments.seconds and len(times) < 50:
            times.append(_seconds(run, inputs))
    return dataclasses.replace(row, milliseconds=1e3 * statistics.median(times))


def _seconds(run: Callable[..., Any], inputs: Sequence[jax.Array]) -> float:
    start = time.perf_counter()
    jax.block_until_ready(run(*inputs))
    return time.perf_counter() - start


def _compiled(
    arguments: Arguments, name: str, length: int, direction: Direction
) -> tuple[Callable[..., Any], int]:
    """The compiled function, and the temporary bytes it needs."""
    line = entry(name)
    options = MECHANISMS.fill(name, _given(arguments.options))
    width = arguments.head_width
    sizes = Sizes(arguments.heads, width, width, max_keys=length)
    extras = line.draw(jax.random.key(0), sizes, options)
    attend = line.bind(options, sizes)
    mask = Mask(causal=arguments.causal)

    def forward(query: jax.Array, key: jax.Array, value: jax.Array) -> jax.Array:
        return jnp.asarray(attend(query, key, value, mask, **extras).context)

    def total(query: jax.Array, key: jax.Array, value: jax.Array) -> jax.Array:
        return forward(query, key, value).astype(jnp.float32).sum()

    both = jax.value_and_grad(total, argnums=(0, 1, 2))
    shape = jax.ShapeDtypeStruct(
        (arguments.batch, arguments.heads, length, width), jnp.dtype(arguments.dtype)
    )
    run = jax.jit(forward if direction == "forward" else both)
    compiled = run.lower(shape, shape, shape).compile()
    analysis = compiled.memory_analysis()
    if analysis is None:
        raise ValueError("this device's compiler does not tell how much memory is used")
    return compiled, int(analysis.temp_size_in_bytes)


def _memory_limit(arguments: Arguments) -> float:
    if arguments.max_gigabytes is not None:
        return arguments.max_gigabytes * 1e9
    statistics_ = jax.devices()[0].memory_stats()
    if statistics_ and "bytes_limit" in statistics_:
        free = statistics_["bytes_limit"] - statistics_.get("bytes_in_use", 0)
    else:
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return 0.8 * free


if __name__ == "__main__":
    sys.exit(run_command(main))
