"""The composition root: a config becomes data, model, optimiser, task and loop.

Nothing else in the package knows all of these. A run lives in one folder, see
`attnjax.run_folder`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
import math
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn

from attnjax.config import Experiment, OptimizerConfig
from attnjax.data.corpus import ParallelCorpus, Split, load_corpora
from attnjax.data.encoded import require_within
from attnjax.data.layout import full_batch
from attnjax.data.pipeline import TrainingBatches, shortened, training_batches
from attnjax.data.shapes import BatchShape
from attnjax.data.tokenizers import (
    TokenizerPair,
    has_tokenizers,
    load_tokenizers,
    save_tokenizers,
    train_tokenizers,
)
from attnjax.models.registry import make_model
from attnjax.processes import (
    first_process_first,
    in_all_processes,
    in_first_process,
    lines_of_first_process,
)
from attnjax.run_folder import (
    RunFolder,
    changed_fields,
    claim,
    differing_identity,
    digest_of,
    held,
    identity_of,
    read_config,
    require_same,
    write_config,
)
from attnjax.storage.checkpoint_files import go_back
from attnjax.storage.faults import written
from attnjax.tasks.translation import TranslationTask, ValidationSet
from attnjax.tasks.translator import Translator
from attnjax.terminal import is_out_of_memory
from attnjax.training.footprint import Footprint, footprint, memory_advice
from attnjax.training.history import History, differing_machine, latest_machine
from attnjax.training.hooks import Hook, Record, RunStart
from attnjax.training.loop import TrainResult
from attnjax.training.loop import train as run_loop
from attnjax.training.observers import default_hooks
from attnjax.training.optimizers import make_optimizer
from attnjax.training.schedules import learning_rate
from attnjax.training.sharding import Layout
from attnjax.training.state import abstract_state
from attnjax.training.step import make_train_step
from attnjax.types import Tokens
from attnjax.unread_options import require_read

logger = logging.getLogger(__name__)


def train(experiment: Experiment, *, from_step: int | None = None) -> TrainResult:
    """Trains, or continues the run that its folder holds.

    Args:
        experiment: the whole description; ``experiment.workdir`` is the run folder.
        from_step: of the checkpoint to go on from, later ones being set aside; None
            goes on from the latest.

    Returns:
        What the loop reports: steps done, best score, whether it was interrupted.

    Raises:
        ValueError: nobody reads an option that is set, the model cannot be made, the
            folder holds a run of another experiment or is written to by another
            process, or the data is unfit; also if so in one process of several. If the
            folder was free, it is left as it was.
    """
    in_all_processes(lambda: require_makeable(experiment))
    folder = RunFolder(experiment.workdir)
    with contextlib.ExitStack() as stack:
        in_first_process(lambda: stack.enter_context(held(folder)))
        return _train(folder, experiment, from_step)


def _train(
    folder: RunFolder, experiment: Experiment, from_step: int | None
) -> TrainResult:
    digest, *changed = lines_of_first_process(
        lambda: [digest_of(experiment), *claim(folder, experiment)]
    )
    if not changed:
        in_all_processes(lambda: require_same(folder, experiment, digest))
    corpora = first_process_first(lambda: load_corpora(experiment.data))
    tokenizers = first_process_first(
        lambda: _tokenizers(folder, corpora["train"], experiment)
    )
    task, batches = in_all_processes(
        lambda: _task_and_batches(experiment, corpora, tokenizers)
    )
    batches.belong_to(
        experiment.seed,
        identity_of(experiment),
        lambda stored: list(
            dict.fromkeys([*changed, *differing_identity(stored, experiment)])
        ),
    )
    if from_step is not None:
        step = from_step
        in_first_process(lambda: go_back(folder.checkpoints, step))
    try:
        return run_loop(
            task,
            build_optimizer(experiment),
            batches,
            experiment.training,
            seed=experiment.seed,
            workdir=folder.path,
            hooks=_hooks(folder, experiment),
        )
    except jax.errors.JaxRuntimeError as error:
        if not is_out_of_memory(error):
            raise
        training = experiment.training
        raise MemoryError(
            memory_advice(
                experiment.data.tokens_per_batch,
                training.accumulate_steps,
                training.precision,
            )
        ) from error


def plan(experiment: Experiment) -> tuple[Footprint, BatchShape]:
    """Compiles the step for its largest batch, without training or writing anything.

    Args:
        experiment: the whole description.

    Returns:
        What the step takes, and the shape of that batch.

    Raises:
        ValueError: the data is unfit.
    """
    require_makeable(experiment)
    folder = RunFolder(experiment.workdir)
    corpora = load_corpora(experiment.data)
    if has_tokenizers(folder.tokenizer):
        tokenizers = load_tokenizers(folder.tokenizer)
    else:
        tokenizers = train_tokenizers(corpora["train"], experiment.data.tokenizer)
    task, batches = _task_and_batches(experiment, corpora, tokenizers)
    training = experiment.training
    optimizer = build_optimizer(experiment)
    with_ema = training.ema_decay is not None
    state = abstract_state(task, optimizer, with_ema=with_ema)
    step = make_train_step(task, optimizer, ema_decay=training.ema_decay)
    shape = max(batches.shapes, key=lambda shape: shape.rows * shape.cost)
    rows = shape.rows // jax.process_count()
    batch = full_batch(shape._replace(rows=rows), tokenizers)
    layout = Layout.over(parallel=training.parallel)
    return footprint(step, layout, state, batch), shape


def _task_and_batches(
    experiment: Experiment,
    corpora: Mapping[Split, ParallelCorpus],
    tokenizers: TokenizerPair,
) -> tuple[TranslationTask, TrainingBatches]:
    model = build_model(experiment, tokenizers)
    decoding = experiment.decoding.searching(
        method="beam", beam_size=experiment.evaluation.beam_size, n_best=1
    )
    translator = Translator(
        *(model, tokenizers, decoding, experiment.data.target_language),
        layout=Layout.over(parallel=experiment.training.parallel),
    )
    order = experiment.training.order_seed
    task = build_task(experiment, translator, corpora["valid"])
    batches = training_batches(
        corpora["train"],
        tokenizers,
        shortened(experiment.data, experiment.model.longest),
        seed=experiment.seed if order is None else order,
        process_index=jax.process_index(),
        process_count=jax.process_count(),
        validation=corpora["valid"],
    )
    return task, batches


def require_makeable(experiment: Experiment) -> None:
    """Refuses what no data are needed to refuse, before any are read.

    Args:
        experiment: the whole description.

    Raises:
        ValueError: nobody reads an option that is set, or model or optimiser cannot be
            made.
    """
    require_read(experiment)
    build_optimizer(experiment)
    size = experiment.data.tokenizer.vocab_size
    model = make_model(experiment.model, size, size, dtype=jnp.float32)
    example = Tokens(np.ones((1, 2), np.int32), np.ones((1, 2), bool))
    init = functools.partial(model.init, train=False)
    jax.eval_shape(init, jax.random.key(0), example, example)


def build_optimizer(experiment: Experiment) -> optax.GradientTransformation:
    """The update rule that the config describes."""
    return make_optimizer(_resolved(experiment), experiment.training.num_steps)


def _resolved(experiment: Experiment) -> OptimizerConfig:
    """With the model's width for noam, unless another one is set."""
    optimizer, schedule = experiment.optimizer, experiment.optimizer.schedule
    if schedule.kind == "noam" and schedule.width is None:
        schedule = dataclasses.replace(schedule, width=experiment.model.state_width)
    return dataclasses.replace(optimizer, schedule=schedule)


def build_model(experiment: Experiment, tokenizers: TokenizerPair) -> nn.Module:
    """The linen module that the config describes, sized to the vocabularies."""
    return make_model(
        experiment.model,
        tokenizers.source.size,
        tokenizers.target.size,
        dtype=jnp.dtype(experiment.training.precision),
    )


def build_task(
    experiment: Experiment, translator: Translator, corpus: ParallelCorpus | None
) -> TranslationTask:
    """The translation task, with its validation set if it is to be trained.

    Args:
        experiment: its training and evaluation sections are read.
        translator: holds the model.
        corpus: the validation set; None if the model is only to be used.

    Returns:
        What the training loop is given.

    Raises:
        ValueError: a validation pair is longer than the model can take.
    """
    tokenizers = translator.tokenizers
    most = experiment.evaluation.max_pairs
    validation = ValidationSet()
    if corpus is not None:
        pairs = list(
            zip(
                tokenizers.source.encode_many(corpus.source),
                tokenizers.target.encode_many(corpus.target),
                strict=True,
            )
        )
        require_within(pairs, translator.model.longest, corpus)
        validation = ValidationSet(
            pairs=pairs,
            sources=corpus.source[:most],
            references=corpus.target[:most],
            target_language=experiment.data.target_language,
        )
    return TranslationTask(
        translator,
        validation,
        label_smoothing=experiment.training.label_smoothing,
        tokens_per_batch=experiment.data.tokens_per_batch,
    )


def _tokenizers(
    folder: RunFolder, corpus: ParallelCorpus, experiment: Experiment
) -> TokenizerPair:
    """The run folder's tokenizers, trained now if it has none."""
    if not has_tokenizers(folder.tokenizer):
        logger.info("training the tokenizer on %d pairs", len(corpus))
        tokenizers = train_tokenizers(corpus, experiment.data.tokenizer)
        with written("the tokenizer", folder.path):
            save_tokenizers(tokenizers, folder.tokenizer)
    return load_tokenizers(folder.tokenizer)


def _hooks(folder: RunFolder, experiment: Experiment) -> tuple[Hook, ...]:
    on_failure = experiment.training.on_save_failure
    usual = default_hooks(folder.path, on_failure)
    if jax.process_index() != 0:
        return usual
    return _Session(folder, experiment), *usual


class _Session:
    """A hook that says what a session changes, and keeps it in the run folder."""

    def __init__(self, folder: RunFolder, experiment: Experiment) -> None:
        self._folder, self._experiment = folder, experiment
        self._history: History | None = None

    def start(self, start: RunStart) -> None:
        """Tells and keeps the changes, unless there is nothing to do."""
        if self._history is None and 0 < start.num_steps <= start.step:
            logger.warning(
                "there is nothing to do: the run in %s has done %s updates, and "
                "training.num_steps is %s; raise it to train on",
                self._folder.path,
                f"{start.step:,}",
                f"{start.num_steps:,}",
            )
            return
        if self._history is None:
            self._history = self._begun(start.step)
        self._history.start(start)

    def step(self, step: int) -> None:
        """Does nothing."""

    def log(self, record: Record) -> None:
        """Does nothing."""

    def close(self) -> None:
        """Does nothing: nothing is open."""

    def _begun(self, step: int) -> History:
        path, experiment = self._folder.path, self._experiment
        stored = read_config(self._folder)
        fields = changed_fields(stored, experiment)
        changed = [line for line in fields if not line.startswith("workdir: ")]
        if step > 0:
            for line in changed:
                logger.info("from step %d on %s", step, line)
            self._tell_rates(stored, step)
            if other := differing_machine(latest_machine(path) or {}):
                logger.warning(
                    "this is another machine than that of the session before (%s): the "
                    "run goes on, but not bit for bit as it would have there",
                    "; ".join(other),
                )
        if fields:
            write_config(self._folder, experiment)
        return History(path, changed, experiment.training.on_save_failure)

    def _tell_rates(self, stored: Experiment, step: int) -> None:
        before, now = (
            learning_rate(_resolved(each).schedule, each.training.num_steps)
            for each in (stored, self._experiment)
        )
        last, expected, found = (
            float(rate(np.array(count)))
            for rate, count in ((before, step - 1), (before, step), (now, step))
        )
        if not math.isclose(expected, found, rel_tol=1e-6):
            logger.warning(
                "the learning rate of update %d is %.4g by the schedule of this "
                "session; by that of the session before it was to be %.4g, after %.4g "
                "at update %d",
                step + 1,
                found,
                expected,
                last,
                step,
            )
