"""Training: how long, at what rate, with what update rule."""

from __future__ import annotations

import dataclasses
from typing import Literal

from attnjax.config.checks import require, require_positive, require_rate
from attnjax.config.parallel import ParallelConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScheduleConfig:
    """The learning rate of update 1, 2, ...; the peak is at update = warmup_steps."""

    # after the warm-up: noam and rsqrt fall as 1/sqrt(update), cosine to `final`
    kind: Literal["noam", "rsqrt", "cosine", "constant"] = "rsqrt"
    peak: float = 1e-3  # learning rate at its highest; noam: the factor, 1 in the paper
    warmup_steps: int = 1_000  # updates of linear warm-up; 0 or 1 means none
    width: int = 512  # d_model of noam
    final: float = 0.0  # learning rate at the end of cosine

    def __post_init__(self) -> None:
        require_positive(self, "peak", "width")
        require(
            self.warmup_steps >= 0,
            f"warmup_steps must be 0 or more, got {self.warmup_steps}.",
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class OptimizerConfig:
    """The update rule."""

    kind: Literal["adam", "adamw", "adafactor"] = "adam"  # the algorithm
    beta1: float = 0.9  # decay of the mean gradient (adam, adamw)
    beta2: float = 0.98  # decay of the mean squared gradient (adam, adamw)
    epsilon: float = 1e-9  # added to the root of the mean square (adam, adamw)
    weight_decay: float = 0.0  # adamw: of matrices only, not of biases and norms
    clip_norm: float | None = 1.0  # global gradient norm above which it is scaled
    schedule: ScheduleConfig = ScheduleConfig()

    def __post_init__(self) -> None:
        require_rate(self, "beta1", "beta2")
        require_positive(self, "epsilon")
        require(
            self.clip_norm is None or self.clip_norm > 0,
            f"clip_norm must be greater than 0 or None, got {self.clip_norm}.",
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """The loop: how long, what precision, when to look and to save."""

    num_steps: int = 10_000  # optimiser updates
    accumulate_steps: int = 1  # batches per update
    label_smoothing: float = 0.1  # mass spread evenly over all classes
    # of the computation; weights, softmax, norms and loss stay float32
    precision: Literal["float32", "bfloat16"] = "float32"
    log_every: int = 50  # steps between log lines
    evaluate_every: int = 500  # steps between validations
    checkpoint_every: int = 500  # steps between checkpoints
    # the latest k, and the best one besides; averaging the last n takes n of them
    keep_checkpoints: int = 3
    # a full disk, or a folder that is read-only or gone: end the run, or train on and
    # save again when the next checkpoint is due
    on_save_failure: Literal["stop", "continue"] = "stop"
    # where the latest checkpoint is damaged: go on from the one before, or refuse
    damaged_checkpoint: Literal["previous", "refuse"] = "previous"
    patience: int | None = None  # validations without a better score before stopping
    # of an exponential moving average of the weights, which is then what is validated,
    # kept as best and used afterwards; 0.999 averages over 1,000 updates, None is none.
    # A run that has begun keeps it on or off
    ema_decay: float | None = None
    # what is done about an update whose loss or gradient is NaN or infinite, or spikes:
    # end the run, leave the update out, or go back to the last checkpoint and on behind
    # the bad batch. Either way it is not applied, and anomaly_<step>.json tells of it
    on_bad_step: Literal["stop", "skip", "rollback"] = "stop"
    max_bad_steps: int = 10  # left out or gone back from; one more ends the run ...
    bad_steps_within: int = 1_000  # ... if they all lie within so many steps
    # a gradient norm above so many times the mean of the last 100 or so is a spike;
    # None: no norm is
    spike_factor: float | None = None
    spike_warmup_steps: int = 100  # good steps before a norm can be a spike
    parallel: ParallelConfig = ParallelConfig()

    def __post_init__(self) -> None:
        require_positive(
            self,
            *("num_steps", "accumulate_steps", "log_every", "evaluate_every"),
            *("checkpoint_every", "keep_checkpoints", "max_bad_steps"),
            *("bad_steps_within", "spike_warmup_steps"),
        )
        require_rate(self, "label_smoothing")
        require(
            self.patience is None or self.patience > 0,
            f"patience must be greater than 0 or None, got {self.patience}.",
        )
        require(
            self.ema_decay is None or 0.0 < self.ema_decay < 1.0,
            f"ema_decay must be greater than 0 and less than 1, or None, got "
            f"{self.ema_decay}; 0.999 is usual.",
        )
        require(
            self.spike_factor is None or self.spike_factor > 1.0,
            f"spike_factor must be greater than 1 or None, got {self.spike_factor}.",
        )
