"""The ``attnjax`` command: each subcommand is one call into the library.

Exit codes: 0 done, 1 refused with one sentence on stderr, 2 unusable arguments, 130
interrupted (training has saved its state).
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import re
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from attnjax.config import Experiment

INTERRUPTED = 130  # as a shell reports a process that SIGINT ended


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one subcommand.

    Args:
        arguments: without the program's name; None means those of the process.

    Returns:
        The exit code; see the module's docstring.
    """
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    for noisy in ("absl", "jax", "orbax", "grain"):
        logging.getLogger(noisy).setLevel(logging.ERROR)
    try:
        return _run(arguments)
    except BrokenPipeError:
        # The reader of stdout is gone (`| head`): what it wanted is delivered.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print("attnjax: interrupted", file=sys.stderr)
        return INTERRUPTED
    except (ValueError, OSError, ArithmeticError) as error:
        print(f"attnjax: {_one_line(error)}", file=sys.stderr)
        return 1


def read_experiment(config: Path) -> Experiment:
    """Runs a config file and returns its ``experiment``.

    Args:
        config: a Python file that binds ``experiment``.

    Returns:
        The experiment, checked.

    Raises:
        ValueError: the file is missing or does not make an experiment.
    """
    if not config.is_file():
        raise ValueError(
            f"there is no config file {config}; `ls configs` lists those that come "
            "with attnjax."
        )
    try:
        made = runpy.run_path(str(config)).get("experiment")
    except Exception as error:
        raise ValueError(f"{config} fails to run: {error!r}.") from error
    if not isinstance(made, Experiment):
        raise ValueError(
            f"{config} must bind `experiment` to an attnjax.config.Experiment, got "
            f"{type(made).__name__}; see configs/quickstart.py."
        )
    return made


def _run(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="attnjax", description="Attention in sequence models, in JAX and Flax."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    train = commands.add_parser("train", add_help=False, help="train from a config")
    train.add_argument("--config", type=Path)
    evaluate = commands.add_parser("evaluate", help="score a run folder's test set")
    evaluate.add_argument("--split", choices=["test", "valid"], default="test")
    evaluate.add_argument(
        "--pictures", type=int, default=3, help="sentences whose attention is drawn"
    )
    translate = commands.add_parser("translate", help="translate lines of text")
    translate.add_argument(
        "file", nargs="?", type=Path, help="text to translate; standard input if none"
    )
    mechanisms = commands.add_parser("mechanisms", help="list the attention mechanisms")
    mechanisms.add_argument(
        "--markdown", action="store_true", help="as the page docs/mechanisms.md"
    )
    bench = commands.add_parser("bench", add_help=False, help="measure time and memory")
    bench.add_argument("what", choices=["attention"])
    for reader in (evaluate, translate):
        _add_run_options(reader)
    options, overrides = parser.parse_known_args(arguments)
    if options.command == "train":
        return _train(options.config, overrides)
    if options.command == "bench":
        return _bench(overrides)
    if overrides:
        parser.error(f"unrecognized arguments: {' '.join(overrides)}")
    run = {"evaluate": _evaluate, "translate": _translate, "mechanisms": _mechanisms}
    return run[options.command](options)


def _add_run_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--workdir", type=Path, required=True, help="the run folder")
    parser.add_argument(
        "--checkpoint",
        type=lambda text: text if text in ("best", "latest") else int(text),
        default="best",
        metavar="{best,latest,STEP}",
        help="which checkpoint to load (default: best)",
    )
    parser.add_argument("--beam-size", type=int, help="default: as in the config")
    parser.add_argument(
        "--length-penalty", type=float, help="default: as in the config"
    )


def _train(config: Path | None, overrides: list[str]) -> int:
    import tyro

    if config is None:
        print(
            "attnjax: name a config: python train.py --config configs/quickstart.py "
            "(add --help to see every field).",
            file=sys.stderr,
        )
        return 2
    default = read_experiment(config)
    document = runpy.run_path(str(config)).get("__doc__") or ""
    experiment = tyro.cli(
        tyro.conf.AvoidSubcommands[Experiment],
        prog=f"train.py --config {config}",
        description=re.sub(r"\n(?=\w+( score)?: )", "\n\n", document),
        default=default,
        args=overrides,
    )
    return _train_experiment(experiment)


def _train_experiment(experiment: Experiment) -> int:
    _prepare_devices()
    from attnjax import experiment as library

    result = library.train(experiment)
    return INTERRUPTED if result.interrupted else 0


def _evaluate(options: argparse.Namespace) -> int:
    from attnjax import report as library

    run = _open_run(options)
    report, files = library.evaluate(run, options.split, num_pictures=options.pictures)
    print(json.dumps(report, ensure_ascii=False), flush=True)
    for file in files:
        print(f"wrote {file}", file=sys.stderr)
    return 0


def _translate(options: argparse.Namespace) -> int:
    from attnjax.data.text_files import read_lines

    lines = read_lines(options.file or sys.stdin.buffer)
    run = _open_run(options)
    for text in run.translator.translate(run.variables, lines).texts:
        sys.stdout.write(text.replace("\n", " ") + "\n")
    sys.stdout.flush()
    return 0


def _mechanisms(options: argparse.Namespace) -> int:
    from attnjax.diagnostics.mechanisms import mechanism_page, mechanism_table

    print(mechanism_page() if options.markdown else mechanism_table() + "\n", end="")
    return 0


def _bench(arguments: list[str]) -> int:
    from attnjax.benchmarks import attention

    attention.main(arguments)
    return 0


def _open_run(options: argparse.Namespace) -> Any:
    """Opens the run folder with the search settings of the command line."""
    _prepare_devices()
    from attnjax import experiment as library

    return library.open_run(
        options.workdir,
        checkpoint=options.checkpoint,
        search={
            name: value
            for name in ("beam_size", "length_penalty")
            if (value := getattr(options, name)) is not None
        },
    )


def _prepare_devices() -> None:
    """Turns on the persistent compilation cache, shared by all runs of the user."""
    from attnjax.training.compilation import enable_compilation_cache

    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    enable_compilation_cache(Path(cache) / "attnjax" / "jax")


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
