"""A run folder, opened for use: the trained model behind a `Translator`."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import jax
from flax import linen as nn

from attnjax.config import Experiment
from attnjax.data.corpus import ParallelCorpus, load_corpora
from attnjax.data.tokenizers import TokenizerPair, load_tokenizers
from attnjax.experiment import RunFolder, build_model, build_task, read_config
from attnjax.models.ensemble import Ensemble, ensemble_variables
from attnjax.tasks.translator import Translator
from attnjax.training import state as training_state
from attnjax.training.checkpoints import Checkpoints
from attnjax.training.optimizers import make_optimizer
from attnjax.training.state import TrainState
from attnjax.training.stored_averages import load_average
from attnjax.types import Task, Variables

AVERAGED = "averaged"

Checkpoint = str | int
"""``best``, ``latest``, the number of a step, ``averaged``, or ``averaged/NAME``."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainedRun:
    """A run folder, opened for use.

    Attributes:
        folder: where it is; of an ensemble the first member's.
        experiment: its resolved config.
        translator: model and tokenizers behind functions.
        variables: of the chosen checkpoint.
        step: of the chosen checkpoint; of an average its newest.
    """

    folder: RunFolder
    experiment: Experiment
    translator: Translator
    variables: Variables
    step: int

    def corpus(self, split: Literal["train", "valid", "test"]) -> ParallelCorpus:
        """A set that the experiment names."""
        return load_corpora(self.experiment.data)[split]

    @property
    def languages(self) -> tuple[str, str]:
        """Codes of source and target."""
        data = self.experiment.data
        return data.source_language, data.target_language


def open_run(
    workdir: Path,
    *,
    checkpoint: Checkpoint = "best",
    search: Mapping[str, Any] | None = None,
) -> TrainedRun:
    """Rebuilds a trained model from its run folder alone.

    Args:
        workdir: the run folder.
        checkpoint: which weights: the best by validation score, the latest, those of a
            step, or an average that `attnjax.runs.averaging` made.
        search: fields of `DecodingConfig` that replace the experiment's own.

    Returns:
        The model, ready to translate.

    Raises:
        ValueError: the folder is missing, holds no checkpoint, is damaged, or its
            tokenizers are others than the checkpoint was trained with; or the method
            does not read a field of ``search``.
    """
    folder, experiment, translator = open_untrained(workdir, search=search)
    variables, step = _weights(folder, experiment, translator, checkpoint)
    return TrainedRun(
        folder=folder,
        experiment=experiment,
        translator=translator,
        variables=variables,
        step=step,
    )


def open_untrained(
    workdir: Path, *, search: Mapping[str, Any] | None = None
) -> tuple[RunFolder, Experiment, Translator]:
    """Rebuilds the model of a run folder without its weights.

    Args:
        workdir: the run folder.
        search: fields of `DecodingConfig` that replace the experiment's own.

    Returns:
        The folder, the resolved config, and the model with its tokenizers.

    Raises:
        ValueError: the folder is missing or damaged, or the method does not read a
            field of ``search``.
    """
    folder = RunFolder(workdir)
    if not folder.config.is_file():
        raise ValueError(
            f"{workdir} is not a run folder (it has no config.json); train first: "
            f"python train.py --config FILE --workdir {workdir}"
        )
    experiment = read_config(folder)
    tokenizers = load_tokenizers(folder.tokenizer)
    translator = Translator(
        build_model(experiment, tokenizers),
        tokenizers,
        experiment.decoding.searching(**(search or {})),
        experiment.data.target_language,
    )
    return folder, experiment, translator


def open_ensemble(
    workdirs: Sequence[Path],
    *,
    checkpoints: Sequence[Checkpoint] = ("best",),
    search: Mapping[str, Any] | None = None,
) -> TrainedRun:
    """Opens every checkpoint of every run as one model that averages probabilities.

    Args:
        workdirs: run folders with the same vocabularies; one or more.
        checkpoints: see `open_run`; one or more, of each folder.
        search: fields of `DecodingConfig` that replace those of the first experiment.

    Returns:
        The first run with all of them as its model; a single one stays as it is.

    Raises:
        ValueError: as `open_run`, or the vocabularies differ.
    """
    chosen = [(workdir, each) for workdir in workdirs for each in checkpoints]
    workdir, checkpoint = chosen[0]
    first = open_run(workdir, checkpoint=checkpoint, search=search)
    members = [first]
    for workdir, checkpoint in chosen[1:]:
        members.append(open_run(workdir, checkpoint=checkpoint))
    if len(members) == 1:
        return first
    for member in members[1:]:
        if _content(member.translator.tokenizers) != _content(
            first.translator.tokenizers
        ):
            raise ValueError(
                "the models of an ensemble need one vocabulary, but the tokenizers in "
                f"{first.folder.path} and {member.folder.path} differ; train the "
                "second run with a copy of the first one's tokenizer folder."
            )
    translator = Translator(
        Ensemble(tuple(member.translator.model for member in members)),
        first.translator.tokenizers,
        first.translator.config,
        first.experiment.data.target_language,
    )
    variables = ensemble_variables([member.variables for member in members])
    return dataclasses.replace(first, translator=translator, variables=variables)


def _weights(
    folder: RunFolder,
    experiment: Experiment,
    translator: Translator,
    checkpoint: Checkpoint,
) -> tuple[Variables, int]:
    task, tokenizers = build_task(experiment, translator, None), translator.tokenizers
    if isinstance(checkpoint, str) and checkpoint.split("/")[0] == AVERAGED:
        name = checkpoint.partition("/")[2] or None
        target = jax.eval_shape(task.init, jax.random.key(0))
        variables, average = load_average(
            *(folder.averaged, name, target), vocabulary=tokenizers.fingerprint
        )
        return variables, max(average.steps)
    if not isinstance(checkpoint, int) and checkpoint not in ("best", "latest"):
        raise ValueError(
            "a checkpoint is best, latest, the number of a step, averaged or "
            f"averaged/NAME, got {checkpoint!r}."
        )
    differing = functools.partial(differing_vocabulary, tokenizers)
    with Checkpoints(folder.checkpoints, keep=None, differing=differing) as stored:
        step = checkpoint if isinstance(checkpoint, int) else None
        if checkpoint == "best":
            step = stored.best_step()  # None, the latest, if none was scored
        state = stored.restore(step, abstract_state(experiment, task))[0]
    return state.evaluation_variables, int(state.step)


def differing_vocabulary(
    tokenizers: TokenizerPair, extra: Mapping[str, Any]
) -> list[str]:
    """Whether a run folder's tokenizers are those that a checkpoint was trained with.

    Args:
        tokenizers: of the run folder.
        extra: what was saved beside the state.

    Returns:
        A line with both fingerprints if they are not.
    """
    trained = extra["batches"]["identity"]["vocabulary"]
    if trained == tokenizers.fingerprint:
        return []
    return [f"data.vocabulary: {trained} -> {tokenizers.fingerprint}"]


def abstract_state(experiment: Experiment, task: Task) -> TrainState:
    """The shapes of what the experiment's checkpoints hold."""
    optimizer = make_optimizer(experiment.optimizer, experiment.training.num_steps)
    with_ema = experiment.training.ema_decay is not None
    return nn.meta.unbox(
        training_state.abstract_state(task, optimizer, with_ema=with_ema)
    )


def _content(tokenizers: TokenizerPair) -> tuple[bytes, bytes]:
    return tokenizers.source.to_bytes(), tokenizers.target.to_bytes()
