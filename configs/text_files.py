"""Transformer on your own parallel text, one sentence a line.

Paper: Vaswani et al. 2017, "Attention is all you need", between small and base.
Command: python train.py --config configs/text_files.py \
    --data.source.train corpus/train --data.source.valid corpus/valid \
    --data.source.test corpus/test --data.source-language de --data.target-language en
    reads corpus/train.de and corpus/train.en (also .de.gz, .de.xz), and so on. The same
    with a recurrent model: configs/text_files_rnn.py.
Cost: 7.6 M parameters; about 0.4 seconds a step on two CPU cores.
Expected score: depends on the corpus; docs/results/first_light.md has an example.
"""

from pathlib import Path

from attnjax.config import (
    DataConfig,
    Experiment,
    OptimizerConfig,
    ScheduleConfig,
    TextFilesSource,
    TokenizerConfig,
    TrainingConfig,
    TransformerConfig,
)

experiment = Experiment(
    workdir=Path("runs/text_files"),
    data=DataConfig(
        source=TextFilesSource(
            train=Path("corpus/train"),
            valid=Path("corpus/valid"),
            test=Path("corpus/test"),
        ),
        tokenizer=TokenizerConfig(vocab_size=8_000),
        tokens_per_batch=2_048,
    ),
    model=TransformerConfig(
        width=256,
        num_heads=4,
        feed_forward_width=1_024,
        encoder_layers=3,
        decoder_layers=3,
        norm_position="pre",
    ),
    optimizer=OptimizerConfig(
        schedule=ScheduleConfig(kind="rsqrt", peak=1e-3, warmup_steps=1_000)
    ),
    training=TrainingConfig(
        num_steps=20_000, evaluate_every=1_000, checkpoint_every=1_000, patience=10
    ),
)
