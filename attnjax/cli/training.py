"""``attnjax train``: a config file, with any field overridden on the command line."""

from __future__ import annotations

import logging
import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from attnjax.cli.configs import (
    describe_configs,
    document_of,
    find_config,
    read_experiment,
)
from attnjax.cli.devices import prepare_devices
from attnjax.cli.joining import joined
from attnjax.cli.kinds import choose_kinds, describe_kinds
from attnjax.cli.launch import DESCRIPTION, Launch
from attnjax.config import Experiment
from attnjax.storage.run_lock import require_free
from attnjax.terminal import printable
from attnjax.training.interruption import exit_code

if TYPE_CHECKING:
    from attnjax.experiment import TrainResult

logger = logging.getLogger(__name__)

_DRY_RUN = (
    "\n\n--dry-run: compile the step, print parameters, memory and operations, and "
    "stop.\n\n--from-step N: go on from the checkpoint of step N; later ones are set "
    "aside."
)


def train(
    config: str | None,
    overrides: list[str],
    *,
    dry_run: bool,
    launch: Launch | None = None,
    from_step: int | None = None,
) -> int:
    """Trains, or continues the run that the config's folder holds.

    Args:
        config: the config file, or the name of one that comes with attnjax.
        overrides: fields and values, as on the command line.
        dry_run: only print what a step would take.
        launch: the other processes of the run; None if there are none.
        from_step: of the checkpoint to go on from; None means the latest.

    Returns:
        The exit code.
    """
    import tyro

    if config is None:
        return _without_config(asks_for_help=bool({"-h", "--help"} & {*overrides}))
    file = find_config(config)
    default, document = read_experiment(file), printable(document_of(file))
    chosen = choose_kinds(default, overrides)
    experiment = tyro.cli(
        tyro.conf.AvoidSubcommands[Experiment],
        prog=printable(f"attnjax train --config {config}"),
        description=re.sub(r"\n(?=\w+( score)?: )", "\n\n", document)
        + describe_kinds(default)
        + _DRY_RUN
        + DESCRIPTION,
        default=chosen.experiment,
        args=chosen.arguments,
    )
    if not dry_run and launch is None:
        require_free(
            experiment.workdir
        )  # so soon because loading the trainer takes seconds
    prepare_devices()
    experiment = _settled(experiment, default, config, chosen.told)
    with joined(launch):
        if dry_run:
            return _dry_run(experiment)
        from attnjax import experiment as library

        result = library.train(experiment, from_step=from_step)
        tell_the_end(experiment, result)
        return exit_code(result.signal) if result.signal else 0


def tell_the_end(experiment: Experiment, result: TrainResult) -> None:
    """Says how a run stands, where its weights are, and what to do with them.

    Args:
        experiment: of the run.
        result: how its training ended.
    """
    import jax

    from attnjax.run_folder import RunFolder
    from attnjax.tasks.translation import TranslationTask

    if jax.process_index() != 0:
        return
    folder = RunFolder(experiment.workdir)
    saved = {
        step: place
        for step in (result.step, result.best_step)
        if step is not None and (place := folder.checkpoints / str(step)).is_dir()
    }
    steps = f"step {result.step:,} of {experiment.training.num_steps:,}"
    if result.signal is not None:
        logger.info(
            "stopped by %s at %s; the same command goes on", result.signal, steps
        )
    elif result.stopped_early:
        logger.info("stopped at %s: the score did not rise any more", steps)
    if result.best_step is None or result.best_score is None:
        logger.info("no validation yet, so no checkpoint is the best one")
    else:
        logger.info(
            "best validation %s: %.2f at step %s, %s",
            TranslationTask.score,
            result.best_score,
            f"{result.best_step:,}",
            f"saved in {saved[result.best_step]}"
            if result.best_step in saved
            else "whose checkpoint is not there",
        )
    if result.step in saved and result.step != result.best_step:
        logger.info("latest checkpoint: %s", saved[result.step])
    if saved:
        script = "python eval.py" if Path(sys.argv[0]).name == "train.py" else None
        logger.info(
            "next: %s --workdir %s",
            script or "attnjax evaluate",
            shlex.quote(str(folder.path)),
        )


def _settled(
    experiment: Experiment, default: Experiment, config: str, told: list[str]
) -> Experiment:
    """Leaves out what the config sets for a kind that the command line replaces."""
    from attnjax.unread_options import require_read, settled

    try:
        require_read(default)
    except ValueError as error:
        raise ValueError(f"{config}: {error}") from error
    experiment, more = settled(experiment, default)
    for line in [*told, *more]:
        logger.info("%s: %s", config, line)
    return experiment


def _without_config(*, asks_for_help: bool) -> int:
    print(
        "usage: attnjax train --config CONFIG [--FIELD VALUE ...]\n\n"
        "CONFIG is a file, or the name of a config that comes with attnjax:\n\n"
        f"{describe_configs()}\n\n"
        "attnjax train --config quickstart --help explains every field.",
        file=sys.stdout if asks_for_help else sys.stderr,
    )
    return 0 if asks_for_help else 2


def _dry_run(experiment: Experiment) -> int:
    from attnjax import experiment as library

    found, shape = library.plan(experiment)
    print(found.describe())
    rows, source, target = shape
    tokens = rows * max(source, target) * experiment.training.accumulate_steps
    print(f"{'tokens of an update:':28}{tokens:,} (the largest batch has")
    print(f"{'':28}{rows} rows of {source} source and {target} target tokens)")
    return 0
