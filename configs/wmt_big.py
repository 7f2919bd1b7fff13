"""Transformer big on WMT 2014, English to German.

Paper: Vaswani et al. 2017, "Attention is all you need", table 3, row "big": width
1,024, 16 heads, feed-forward width 4,096, dropout 0.3 and 300,000 updates of about
25,000 source and 25,000 target tokens; otherwise as configs/wmt_base.py. The paper
scores the average of the last twenty checkpoints.
Command: python train.py --config configs/wmt_big.py
    German to English: --data.source-language de --data.target-language en
    memory to spare a smaller device: --model.remat True
Cost: 214 M parameters with the joint vocabulary of 37,000; 3.5 days on 8 P100 in the
    paper.
Expected score: 28.4 tokenised BLEU with averaging, English to German.
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
    workdir=Path("runs/wmt_big"),
    data=DataConfig(
        source=TFDSSource(name="wmt14_translate/de-en"),
        source_language="en",
        target_language="de",
        tokenizer=TokenizerConfig(vocab_size=37_000),
        bucket_lengths=(16, 24, 32, 40, 48, 64, 96, 128, 192, 256),
        tokens_per_batch=25_000,
    ),
    model=TransformerConfig(
        width=1_024, num_heads=16, feed_forward_width=4_096, dropout=0.3
    ),
    optimizer=OptimizerConfig(
        clip_norm=None,
        schedule=ScheduleConfig(kind="noam", peak=1.0, warmup_steps=4_000, width=1_024),
    ),
    training=TrainingConfig(
        num_steps=300_000,
        precision="bfloat16",
        log_every=100,
        evaluate_every=5_000,
        checkpoint_every=1_000,
        keep_checkpoints=20,
    ),
)
