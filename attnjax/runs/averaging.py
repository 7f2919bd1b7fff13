"""Averages the weights of a run's checkpoints, as a new set of weights."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from attnjax.experiment import build_task
from attnjax.run_folder import identity_of
from attnjax.runs.opening import abstract_state, differing_from, open_untrained
from attnjax.storage.averages import require_new_name, save_average
from attnjax.storage.checkpoints import Checkpoints
from attnjax.training.averaging import average_variables, steps_to_average
from attnjax.types import Variables


def average(
    workdir: Path,
    *,
    last: int | None = None,
    best: int | None = None,
    name: str | None = None,
) -> tuple[Path, list[int]]:
    """Stores the mean of several checkpoints of a run.

    The sums are taken in float64 and rounded once, leaf by leaf; training never takes
    the mean for a state to go on from. Open it as the checkpoint ``averaged`` or
    ``averaged/NAME``.

    Args:
        workdir: the run folder.
        last: how many of the latest checkpoints.
        best: how many of those with the best validation scores; give this or ``last``.
        name: of the average, ``last-5`` or ``best-3`` by default.

    Returns:
        Its folder, and the steps it is the mean of.

    Raises:
        ValueError: there are not so many checkpoints, the name is taken, the folder
            holds no run, or its tokenizers are others than the checkpoints'.
    """
    folder, experiment, translator = open_untrained(workdir)
    label = name or (f"last-{last}" if last is not None else f"best-{best}")
    require_new_name(folder.averaged, label)  # before the work and not after it
    target = abstract_state(experiment, build_task(experiment, translator, None))
    keep = experiment.training.keep_checkpoints
    tokenizers = translator.tokenizers
    differing = differing_from(experiment, tokenizers)
    with Checkpoints(folder.checkpoints, keep=None, differing=differing) as stored:
        steps = steps_to_average(stored, last=last, best=best, keep=keep)

        def weights() -> Iterator[Variables]:
            for step in steps:
                yield stored.restore(step, target)[0].evaluation_variables

        variables = average_variables(weights())
        scores = stored.scores()
    path = save_average(
        *(folder.averaged, label, variables),
        steps=steps,
        scores=scores,
        vocabulary=tokenizers.fingerprint,
        config=identity_of(experiment),
    )
    return path, steps
