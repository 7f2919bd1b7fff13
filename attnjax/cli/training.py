"""``attnjax train``: a config file, with any field overridden on the command line."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

from attnjax.cli.devices import prepare_devices
from attnjax.cli.joining import joined
from attnjax.cli.launch import DESCRIPTION, Launch
from attnjax.config import Experiment
from attnjax.training.interruption import exit_code
from attnjax.training.run_lock import require_free

_DRY_RUN = (
    "\n\n--dry-run: compile the step, print parameters, memory and operations, and "
    "stop."
)
INTERRUPTED = 130  # as a shell reports a process that SIGINT ended


def train(
    config: Path | None,
    overrides: list[str],
    *,
    dry_run: bool,
    launch: Launch | None = None,
) -> int:
    """Trains, or continues the run that the config's folder holds.

    Args:
        config: the config file.
        overrides: fields and values, as on the command line.
        dry_run: only print what a step would take.
        launch: the other processes of the run; None if there are none.

    Returns:
        The exit code.
    """
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
        description=re.sub(r"\n(?=\w+( score)?: )", "\n\n", document)
        + _DRY_RUN
        + DESCRIPTION,
        default=default,
        args=overrides,
    )
    if not dry_run and launch is None:
        require_free(experiment.workdir)  # so soon because loading JAX takes seconds
    prepare_devices()
    with joined(launch):
        if dry_run:
            return _dry_run(experiment)
        from attnjax import experiment as library

        result = library.train(experiment)
        return exit_code(result.signal) if result.signal else 0


def _dry_run(experiment: Experiment) -> int:
    from attnjax import experiment as library

    found, shape = library.plan(experiment)
    print(found.describe())
    rows, source, target = shape
    tokens = rows * max(source, target) * experiment.training.accumulate_steps
    print(f"{'tokens of an update:':28}{tokens:,} (the largest batch has")
    print(f"{'':28}{rows} rows of {source} source and {target} target tokens)")
    return 0


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
