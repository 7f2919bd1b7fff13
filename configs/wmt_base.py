"""Transformer base on WMT 2014, English to German.

Paper: Vaswani et al. 2017, "Attention is all you need", table 3, row "base": 100,000
updates of about 25,000 source and 25,000 target tokens, Noam schedule with 4,000
updates of warm-up, dropout and label smoothing 0.1, beam 4, length penalty 0.6. The
paper scores the average of the last five checkpoints; a single one about 0.7 lower.
Command: python train.py --config configs/wmt_base.py
    German to English: --data.source-language de --data.target-language en
Cost: 63 M parameters (65 M by the paper's count); 12 hours on 8 P100 in the paper.
Expected score: 27.3 tokenised BLEU with averaging (26.65 without), English to German.
"""

from pathlib import Path

from attnjax.config import (
    DataConfig,
    Experiment,
    OptimizerConfig,
    ScheduleConfig,
    TFDSSource,
    TokenizerConfig,
    TrainingConfig,
    TransformerConfig,
)

experiment = Experiment(
    workdir=Path("runs/wmt_base"),
    data=DataConfig(
        source=TFDSSource(name="wmt14_translate/de-en"),
        source_language="en",
        target_language="de",
        tokenizer=TokenizerConfig(vocab_size=37_000),
        bucket_lengths=(16, 24, 32, 40, 48, 64, 96, 128, 192, 256),
        tokens_per_batch=25_000,
    ),
    model=TransformerConfig(),
    optimizer=OptimizerConfig(
        clip_norm=None,
        schedule=ScheduleConfig(kind="noam", peak=1.0, warmup_steps=4_000, width=512),
    ),
    training=TrainingConfig(
        num_steps=100_000,
        precision="bfloat16",
        log_every=100,
        evaluate_every=5_000,
        checkpoint_every=1_000,
        keep_checkpoints=5,
    ),
)
