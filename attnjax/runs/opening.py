"""A run folder, opened for use: the trained model behind a `Translator`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import jax
from flax import linen as nn

from attnjax.config import Experiment
from attnjax.data.corpus import ParallelCorpus, load_corpora
from attnjax.data.tokenizers import TokenizerPair, load_tokenizers
from attnjax.experiment import build_model, build_optimizer, build_task
from attnjax.models.ensemble import Ensemble, ensemble_variables
from attnjax.run_folder import (
    RunFolder,
    differing_identity,
    read_config,
    require_run,
)
from attnjax.storage.averages import load_average
from attnjax.storage.checkpoints import Checkpoints
from attnjax.tasks.outputs import ForcedScore, Translations
from attnjax.tasks.translator import Translator
from attnjax.training import state as training_state
from attnjax.training.state import TrainState
from attnjax.types import Task, Variables

if TYPE_CHECKING:
    from attnjax.diagnostics.attention_map import Head
    from attnjax.evaluation.attention_readings import Reading
    from attnjax.runs.alignment import AlignedPair
    from attnjax.runs.drawing import AttendedSentence

AVERAGED = "averaged"

Checkpoint = str | int
"""``best``, ``latest``, the number of a step, ``averaged``, or ``averaged/NAME``."""


class Member(NamedTuple):
    """Weights of a run folder that are used, alone or in an ensemble.

    Attributes:
        folder: the run folder.
        steps: of the checkpoint; of an average those of all that it is the mean of.
        average: name of the average; None if it is a checkpoint.
    """

    folder: Path
    steps: tuple[int, ...]
    average: str | None = None

    def describe(self) -> str:
        """Folder and weights in words."""
        step = f"step {max(self.steps):,}"
        if self.average is not None:
            step = f"average {self.average} of {len(self.steps)} steps up to {step}"
        return f"{self.folder}, {step}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainedRun:
    """A run folder, opened for use.

    Attributes:
        folder: where it is; of an ensemble the first member's.
        experiment: its resolved config.
        translator: model and tokenizers behind functions.
        variables: of the chosen checkpoint.
        members: which weights these are; several of an ensemble.
    """

    folder: RunFolder
    experiment: Experiment
    translator: Translator
    variables: Variables
    members: tuple[Member, ...]

    @property
    def step(self) -> int:
        """Of the first member's checkpoint; of an average its newest."""
        return max(self.members[0].steps)

    def translate(
        self, lines: Sequence[str], *, prefixes: Sequence[str] | None = None
    ) -> Translations:
        """Translates lines; what opened the run says how, see `open_run`.

        Args:
            lines: source sentences.
            prefixes: what each translation begins with; None forces nothing.

        Returns:
            As many translations as lines: ``texts``, and ``n_best`` with scores.

        Raises:
            ValueError: if lines and prefixes are not equally many.
        """
        return self.translator.translate(self.variables, lines, prefixes=prefixes)

    def score(self, lines: Sequence[str], targets: Sequence[str]) -> list[ForcedScore]:
        """Finds how probable given translations are.

        Args:
            lines: source sentences.
            targets: as many translations.

        Returns:
            For each, log-probabilities and the score that search would rank it by.

        Raises:
            ValueError: if lines and translations are not equally many.
        """
        ids = self._encoded(lines, targets)
        return self.translator.score(self.variables, lines, ids)

    def align(
        self,
        lines: Sequence[str],
        targets: Sequence[str],
        reading: Reading | None = None,
    ) -> list[AlignedPair]:
        """Links the words of given translations.

        Args:
            lines: source sentences.
            targets: as many translations.
            reading: which attention to read; None takes the one that
                `attnjax.runs.alignment.choose_reading` finds on the validation set.

        Returns:
            For each, links (source word, target word) from 0, and their weights.

        Raises:
            ValueError: if lines and translations are not equally many, or the model
                forms no attention weights over its source.
        """
        from attnjax.runs.alignment import align, choose_reading  # they open runs too

        ids = self._encoded(lines, targets)
        return align(self, lines, ids, reading or choose_reading(self)[0])

    def draw(
        self,
        line: str,
        path: Path | str,
        *,
        target: str | None = None,
        layer: str | None = None,
        head: Head | None = None,
        whole_words: bool = False,
    ) -> AttendedSentence:
        """Draws where the model looks in one sentence.

        Args:
            line: the source sentence.
            path: the file to write, ``.png`` or ``.svg``.
            target: its translation; None means the model's own.
            layer: name of the weights, such as ``encoder/layer_0/self``; None means the
                last layer's over the source.
            head: its number, from 0, or "mean"; None draws all heads.
            whole_words: whether subwords are merged to words.

        Returns:
            What was drawn, with the attention of all other layers.

        Raises:
            ValueError: as `attnjax.runs.drawing.draw`.
        """
        from attnjax.runs.drawing import draw  # matplotlib takes a moment to load

        return draw(
            self,
            line,
            Path(path),
            target=target,
            layer=layer,
            head=head,
            whole_words=whole_words,
        )

    def _encoded(self, lines: Sequence[str], targets: Sequence[str]) -> list[list[int]]:
        if len(lines) != len(targets):
            raise ValueError(
                f"each line needs one translation, got {len(targets)} translations for "
                f"{len(lines)} lines."
            )
        return self.translator.encode_targets(targets)

    def corpus(self, split: Literal["train", "valid", "test"]) -> ParallelCorpus:
        """A set that the experiment names."""
        return load_corpora(self.experiment.data)[split]

    @property
    def languages(self) -> tuple[str, str]:
        """Codes of source and target."""
        data = self.experiment.data
        return data.source_language, data.target_language


def open_run(
    workdir: Path | str,
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
    folder, experiment, translator = open_untrained(Path(workdir), search=search)
    variables, member = _weights(folder, experiment, translator, checkpoint)
    return TrainedRun(
        folder=folder,
        experiment=experiment,
        translator=translator,
        variables=variables,
        members=(member,),
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
    require_run(folder)
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
    return dataclasses.replace(
        first,
        translator=translator,
        variables=variables,
        members=tuple(member.members[0] for member in members),
    )


def _weights(
    folder: RunFolder,
    experiment: Experiment,
    translator: Translator,
    checkpoint: Checkpoint,
) -> tuple[Variables, Member]:
    task, tokenizers = build_task(experiment, translator, None), translator.tokenizers
    if isinstance(checkpoint, str) and checkpoint.split("/")[0] == AVERAGED:
        name = checkpoint.partition("/")[2] or None
        target = jax.eval_shape(task.init, jax.random.key(0))
        variables, average = load_average(
            folder.averaged,
            name,
            target,
            vocabulary=tokenizers.fingerprint,
            differing=lambda stored: differing_identity(stored, experiment),
        )
        return variables, Member(folder.path, tuple(average.steps), average.name)
    if not isinstance(checkpoint, int) and checkpoint not in ("best", "latest"):
        raise ValueError(
            "a checkpoint is best, latest, the number of a step, averaged or "
            f"averaged/NAME, got {checkpoint!r}."
        )
    differing = differing_from(experiment, tokenizers)
    with Checkpoints(folder.checkpoints, keep=None, differing=differing) as stored:
        step = checkpoint if isinstance(checkpoint, int) else None
        if checkpoint == "best":
            step = stored.best_step()  # None, the latest, if none was scored
        state = stored.restore(step, abstract_state(experiment, task))[0]
    return state.evaluation_variables, Member(folder.path, (int(state.step),))


def differing_from(
    experiment: Experiment, tokenizers: TokenizerPair
) -> Callable[[Mapping[str, Any]], list[str]]:
    """Whether a run folder's config and tokenizers are those that weights belong to.

    Args:
        experiment: of the run folder.
        tokenizers: of the run folder.

    Returns:
        From what was saved beside a state to a line, old and new, for each difference.
    """

    def differing(extra: Mapping[str, Any]) -> list[str]:
        identity = extra["batches"]["identity"]
        lines = differing_identity(identity.get("config"), experiment)
        trained = identity["vocabulary"]
        if trained != tokenizers.fingerprint:
            lines.append(f"data.vocabulary: {trained} -> {tokenizers.fingerprint}")
        return lines

    return differing


def abstract_state(experiment: Experiment, task: Task) -> TrainState:
    """The shapes of what the experiment's checkpoints hold."""
    optimizer = build_optimizer(experiment)
    with_ema = experiment.training.ema_decay is not None
    return nn.meta.unbox(
        training_state.abstract_state(task, optimizer, with_ema=with_ema)
    )


def _content(tokenizers: TokenizerPair) -> tuple[bytes, bytes]:
    return tokenizers.source.to_bytes(), tokenizers.target.to_bytes()
