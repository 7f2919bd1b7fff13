"""Training: how long, at what rate, with what update rule."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Literal

from attnjax.config.parallel import ParallelConfig
from attnjax.fields import (
    SET,
    Count,
    CountOrZero,
    Fraction,
    NotNegative,
    Positive,
    ReadWith,
    Section,
    Seed,
    Within,
)

_ADAM = ReadWith({"kind": ("adam", "adamw")})
_DECAYING = ReadWith({"kind": ("adamw",)})
_NOAM = ReadWith({"kind": ("noam",)})
_COSINE = ReadWith({"kind": ("cosine",)})
_GOING_ON = ReadWith({"on_bad_step": ("skip", "rollback")})
_SPIKES = ReadWith({"spike_factor": SET})


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScheduleConfig(Section):
    """The learning rate of update 1, 2, ...; the peak is at update = warmup_steps."""

    # after the warm-up: noam and rsqrt fall as 1/sqrt(update), cosine to `final`
    kind: Literal["noam", "rsqrt", "cosine", "constant"] = "rsqrt"
    peak: Positive = (
        1e-3  # learning rate at its highest; noam: the factor, 1 in the paper
    )
    warmup_steps: CountOrZero = 1_000  # updates of linear warm-up; 0 or 1 means none
    # d_model of noam; None is the width of the model
    width: Annotated[Count | None, _NOAM] = None
    # learning rate at the end of cosine
    final: Annotated[NotNegative, _COSINE] = 0.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class OptimizerConfig(Section):
    """The update rule."""

    kind: Literal["adam", "adamw", "adafactor"] = "adam"  # the algorithm
    beta1: Annotated[Fraction, _ADAM] = 0.9  # decay of the mean gradient (adam, adamw)
    # decay of the mean squared gradient (adam, adamw)
    beta2: Annotated[Fraction, _ADAM] = 0.98
    # added to the root of the mean square (adam, adamw)
    epsilon: Annotated[Positive, _ADAM] = 1e-9
    # adamw: of matrices only, not of biases and norms
    weight_decay: Annotated[NotNegative, _DECAYING] = 0.0
    clip_norm: Positive | None = 1.0  # global gradient norm above which it is scaled
    schedule: ScheduleConfig = ScheduleConfig()


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingConfig(Section):
    """The loop: how long, what precision, when to look and to save."""

    num_steps: Count = 10_000  # optimiser updates
    accumulate_steps: Count = 1  # batches per update
    label_smoothing: Fraction = 0.1  # mass spread evenly over all classes
    # of the computation; weights, softmax, norms and loss stay float32
    precision: Literal["float32", "bfloat16"] = "float32"
    log_every: Count = 50  # steps between log lines
    evaluate_every: Count = 500  # steps between validations
    checkpoint_every: Count = 500  # steps between checkpoints
    # the latest k, and the best one besides; averaging the last n takes n of them
    keep_checkpoints: Count = 3
    # a full disk, or a folder that is read-only or gone: end the run, or train on and
    # save again when the next checkpoint is due
    on_save_failure: Literal["stop", "continue"] = "stop"
    # where the latest checkpoint is damaged: go on from the one before, or refuse
    damaged_checkpoint: Literal["previous", "refuse"] = "previous"
    patience: Count | None = None  # validations without a better score before stopping
    # of an exponential moving average of the weights, which is then what is validated,
    # kept as best and used afterwards; 0.999 averages over 1,000 updates, None is none.
    # A run that has begun keeps it on or off
    ema_decay: Annotated[float, Within(above=0, below=1)] | None = None
    # of the order of batches, in place of the experiment's seed; where it changes on
    # the way, that order begins anew
    order_seed: Seed | None = None
    # what is done about an update whose loss or gradient is NaN or infinite, or spikes:
    # end the run, leave the update out, or go back to the last checkpoint and on behind
    # the bad batch. Either way it is not applied, and anomaly_<step>.json tells of it
    on_bad_step: Literal["stop", "skip", "rollback"] = "stop"
    # left out or gone back from; one more ends the run ...
    max_bad_steps: Annotated[Count, _GOING_ON] = 10
    # ... if they all lie within so many steps
    bad_steps_within: Annotated[Count, _GOING_ON] = 1_000
    # a gradient norm above so many times the mean of the last 100 or so is a spike;
    # None: no norm is
    spike_factor: Annotated[float, Within(above=1)] | None = None
    # good steps before a norm can be a spike
    spike_warmup_steps: Annotated[Count, _SPIKES] = 100
    parallel: ParallelConfig = ParallelConfig()
