"""An experiment as frozen dataclasses, checked at birth.

Every field carries its unit and meaning beside it, which is also the text of
``python train.py --config FILE --help``. `attnjax.config_json` stores and reads them.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

from attnjax.config.data import (
    CLDRSource,
    DataConfig,
    TextFilesSource,
    TFDSSource,
    TokenizerConfig,
)
from attnjax.config.decoding import DecodingConfig, EvaluationConfig
from attnjax.config.model import (
    AnyModelConfig,
    AttentionName,
    ModelConfig,
    PositionsName,
    RNNConfig,
    ScorerName,
    TransformerConfig,
)
from attnjax.config.parallel import ParallelConfig
from attnjax.config.training import OptimizerConfig, ScheduleConfig, TrainingConfig
from attnjax.fields import Section, Seed, require

__all__ = [
    "AnyModelConfig",
    "AttentionName",
    "CLDRSource",
    "DataConfig",
    "DecodingConfig",
    "EvaluationConfig",
    "Experiment",
    "ModelConfig",
    "OptimizerConfig",
    "ParallelConfig",
    "PositionsName",
    "RNNConfig",
    "ScheduleConfig",
    "ScorerName",
    "TFDSSource",
    "TextFilesSource",
    "TokenizerConfig",
    "TrainingConfig",
    "TransformerConfig",
]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Experiment(Section):
    """One experiment: data, model, training and search."""

    data: DataConfig
    model: AnyModelConfig
    optimizer: OptimizerConfig = OptimizerConfig()
    training: TrainingConfig = TrainingConfig()
    decoding: DecodingConfig = DecodingConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    seed: Seed = 0  # of initial weights, dropout and the order of batches
    workdir: Path = Path("runs/experiment")  # run folder: config, tokens, checkpoints

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            not self.data.packing or self.model.reads_packed_rows,
            "packing puts several sentences in one row, which a model of "
            f"{type(self.model).__name__} would read as one; set data.packing=False.",
        )
        require(
            self.data.tokenizer.joint or not self.model.needs_joint_vocabulary,
            "tied_embeddings='all' needs one vocabulary for both languages; set "
            "data.tokenizer.joint=True or model.tied_embeddings='decoder'.",
        )
