"""Transformer on CLDR phrases, German to English.

Paper: Vaswani et al. 2017, "Attention is all you need", made small, with the rotary
    positions of Su et al. 2021: sinusoids lose their place in long lists here.
Command: python train.py --config configs/quickstart.py && \
    python eval.py --workdir runs/quickstart
Cost: 1.3 M parameters; about 5 minutes on two CPU cores.
Expected score: sacreBLEU 90 on the CLDR test set; docs/results/first_light.md.
"""

from pathlib import Path

from attnjax.config import (
    CLDRSource,
    DataConfig,
    DecodingConfig,
    Experiment,
    OptimizerConfig,
    ScheduleConfig,
    TokenizerConfig,
    TrainingConfig,
    TransformerConfig,
)

experiment = Experiment(
    workdir=Path("runs/quickstart"),
    data=DataConfig(
        source=CLDRSource(),
        tokenizer=TokenizerConfig(vocab_size=3_000),
        bucket_shapes=6,
        tokens_per_batch=1_024,
    ),
    model=TransformerConfig(
        width=128,
        num_heads=4,
        feed_forward_width=512,
        encoder_layers=2,
        decoder_layers=2,
        dropout=0.0,  # two passes over the phrases: nothing to overfit
        norm_position="pre",
        positions="rotary",
    ),
    optimizer=OptimizerConfig(
        schedule=ScheduleConfig(kind="cosine", peak=2e-3, warmup_steps=150)
    ),
    training=TrainingConfig(num_steps=2_400, evaluate_every=600, checkpoint_every=600),
    decoding=DecodingConfig(),
)
