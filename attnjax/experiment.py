"""The composition root: a config becomes data, model, optimiser, task and loop.

Nothing else in the package knows all of these. A run lives in one folder:

====================  =======================================================
``config.json``       the resolved experiment
``tokenizer/``        the trained tokenizers
``checkpoints/``      the latest and the best states
``averaged/``         averages of checkpoints, from ``attnjax average``
``readings.json``     which attention is read as word alignment, chosen once
``metrics.jsonl``     one line per log point and validation
``anomaly_7.json``    what was wrong with step 7, if something was
``lock.json``         who writes to the folder, while somebody does
``tensorboard/``      the same numbers for TensorBoard
``evaluation/``       translations and scores, from ``eval.py``
``pictures/``         attention heatmaps and the learning curve
``report.html``       all of it as one page, with the attention to explore
====================  =======================================================
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from attnjax import config_json
from attnjax.config import Experiment
from attnjax.data.corpus import ParallelCorpus, Split, load_corpora
from attnjax.data.layout import full_batch
from attnjax.data.pipeline import TrainingBatches, training_batches
from attnjax.data.shapes import BatchShape
from attnjax.data.tokenizers import (
    TokenizerPair,
    has_tokenizers,
    load_tokenizers,
    save_tokenizers,
    train_tokenizers,
)
from attnjax.json_files import read_bounded
from attnjax.models.registry import make_model
from attnjax.tasks.translation import TranslationTask, ValidationSet
from attnjax.tasks.translator import Translator
from attnjax.terminal import is_out_of_memory
from attnjax.training.checkpoint_files import has_checkpoint
from attnjax.training.footprint import Footprint, footprint, memory_advice
from attnjax.training.loop import TrainResult
from attnjax.training.loop import train as run_loop
from attnjax.training.observers import default_hooks
from attnjax.training.optimizers import make_optimizer
from attnjax.training.processes import (
    first_process_first,
    in_all_processes,
    in_first_process,
    lines_of_first_process,
)
from attnjax.training.run_lock import hold_run_folder
from attnjax.training.sharding import Layout
from attnjax.training.state import abstract_state
from attnjax.training.step import make_train_step
from attnjax.training.storage import replace_text, written

logger = logging.getLogger(__name__)

# What may differ when a run is continued: it changes neither the weights' shapes nor
# the meaning of what was already trained.
_FREE_SECTIONS = ("training", "decoding", "evaluation", "workdir")
_NEVER_ON_OR_OFF = "training.ema_decay: "  # the state has averages, or has not


@dataclasses.dataclass(frozen=True)
class RunFolder:
    """Names of the files in a run folder."""

    path: Path

    @property
    def config(self) -> Path:
        """The resolved experiment as JSON."""
        return self.path / "config.json"

    @property
    def tokenizer(self) -> Path:
        """The folder of the tokenizers."""
        return self.path / "tokenizer"

    @property
    def checkpoints(self) -> Path:
        """The folder of the checkpoints."""
        return self.path / "checkpoints"

    @property
    def averaged(self) -> Path:
        """The folder of averaged weights."""
        return self.path / "averaged"

    @property
    def metrics(self) -> Path:
        """The log, one JSON object a line."""
        return self.path / "metrics.jsonl"

    @property
    def evaluation(self) -> Path:
        """The folder of translations and scores."""
        return self.path / "evaluation"

    @property
    def pictures(self) -> Path:
        """The folder of heatmaps and curves."""
        return self.path / "pictures"

    @property
    def page(self) -> Path:
        """The page that shows the run in a browser."""
        return self.path / "report.html"


def train(experiment: Experiment) -> TrainResult:
    """Trains, or continues the run that its folder holds.

    Args:
        experiment: the whole description; ``experiment.workdir`` is the run folder.

    Returns:
        What the loop reports: steps done, best score, whether it was interrupted.

    Raises:
        ValueError: the folder holds a run of another experiment or is written to by
            another process, or the data is unfit; also if so in one process of several.
    """
    folder = RunFolder(experiment.workdir)
    with contextlib.ExitStack() as stack:
        in_first_process(lambda: stack.enter_context(hold_run_folder(folder.path)))
        return _train(folder, experiment)


def _train(folder: RunFolder, experiment: Experiment) -> TrainResult:
    changed = lines_of_first_process(lambda: _claim(folder, experiment))
    if not changed:
        in_all_processes(lambda: _require_claimed(folder, experiment))
    corpora = first_process_first(lambda: load_corpora(experiment.data))
    tokenizers = first_process_first(
        lambda: _tokenizers(folder, corpora["train"], experiment)
    )
    task, batches = in_all_processes(
        lambda: _task_and_batches(experiment, corpora, tokenizers)
    )
    batches.refuse_for(changed)
    try:
        return run_loop(
            task,
            make_optimizer(experiment.optimizer, experiment.training.num_steps),
            batches,
            experiment.training,
            seed=experiment.seed,
            workdir=folder.path,
            hooks=default_hooks(folder.path, experiment.training.on_save_failure),
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
    folder = RunFolder(experiment.workdir)
    corpora = load_corpora(experiment.data)
    if has_tokenizers(folder.tokenizer):
        tokenizers = load_tokenizers(folder.tokenizer)
    else:
        tokenizers = train_tokenizers(corpora["train"], experiment.data.tokenizer)
    task, batches = _task_and_batches(experiment, corpora, tokenizers)
    training = experiment.training
    optimizer = make_optimizer(experiment.optimizer, training.num_steps)
    with_ema = training.ema_decay is not None
    state = abstract_state(task, optimizer, with_ema=with_ema)
    step = make_train_step(task, optimizer, ema_decay=training.ema_decay)
    shape = max(batches.shapes, key=lambda shape: shape.rows * shape.cost)
    rows = shape.rows // jax.process_count()
    batch = full_batch(shape._replace(rows=rows))
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
    batches = training_batches(
        corpora["train"],
        tokenizers,
        experiment.data,
        seed=experiment.seed,
        process_index=jax.process_index(),
        process_count=jax.process_count(),
        validation=corpora["valid"],
    )
    return build_task(experiment, translator, corpora["valid"]), batches


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
    """
    tokenizers = translator.tokenizers
    most = experiment.evaluation.max_pairs
    validation = ValidationSet()
    if corpus is not None:
        validation = ValidationSet(
            pairs=list(
                zip(
                    tokenizers.source.encode_many(corpus.source),
                    tokenizers.target.encode_many(corpus.target),
                    strict=True,
                )
            ),
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


def read_config(folder: RunFolder) -> Experiment:
    """The resolved experiment of a run folder."""
    text = read_bounded(folder.config)
    return config_json.from_json(text, origin=str(folder.config))


def differing_fields(old: Any, new: Any, name: str = "") -> Iterator[str]:
    """Lists ``section.field: old -> new`` where two configs differ."""
    if dataclasses.is_dataclass(old) and type(old) is type(new):
        for field in dataclasses.fields(old):
            yield from differing_fields(
                getattr(old, field.name),
                getattr(new, field.name),
                f"{name}.{field.name}".lstrip("."),
            )
    elif old != new:
        yield f"{name}: {_briefly(old)} -> {_briefly(new)}"


def _briefly(value: Any) -> Any:
    """Of a section only the name: those of two kinds have other fields anyway."""
    return type(value).__name__ if dataclasses.is_dataclass(value) else value


def _claim(folder: RunFolder, experiment: Experiment) -> list[str]:
    """Makes the run folder this experiment's, or refuses another one's.

    If it holds checkpoints, the refusal is put off: the lines returned are to be joined
    by what else does not fit them, the data and the weights.
    """
    if folder.config.exists():
        changed = [
            difference
            for difference in differing_fields(read_config(folder), experiment)
            if not difference.startswith(_FREE_SECTIONS)
            or difference.startswith(_NEVER_ON_OR_OFF)
            and "None" in difference
        ]
        if changed and has_checkpoint(folder.checkpoints):
            return changed
        if changed:
            raise ValueError(
                f"{folder.path} holds a run with another config "
                f"({'; '.join(changed)}); choose another --workdir, or delete it."
            )
    with written(folder.config.name, folder.path):
        folder.path.mkdir(parents=True, exist_ok=True)
        replace_text(folder.config, config_json.to_json(experiment))
    return []


def _require_claimed(folder: RunFolder, experiment: Experiment) -> None:
    """Refuses, in one process of several, what the first one has not begun."""
    if not folder.config.exists():
        raise ValueError(
            f"{folder.path} is not the run folder of the first process; all processes "
            "of a run need one folder that they share, such as a network drive."
        )
    changed = list(differing_fields(read_config(folder), experiment))
    if changed:
        raise ValueError(
            "the processes of a run need one config, but this one's is another than "
            f"the first one's ({'; '.join(changed)}); give all the same command."
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
