"""GRU with additive attention on your own parallel text, one sentence a line.

Paper: Bahdanau, Cho and Bengio 2015, "Neural machine translation by jointly learning to
align and translate", made small.
Command: python train.py --config configs/text_files_rnn.py \
    --data.source.train corpus/train --data.source.valid corpus/valid \
    --data.source.test corpus/test --data.source-language de --data.target-language en
    reads corpus/train.de and corpus/train.en (also .de.gz, .de.xz), and so on.
Cost: 8.6 M parameters; about 0.4 seconds a step on two CPU cores.
Expected score: depends on the corpus; docs/results/first_light.md has an example.
"""

from pathlib import Path

from attnjax.config import (
    DataConfig,
    Experiment,
    OptimizerConfig,
    RNNConfig,
    ScheduleConfig,
    TextFilesSource,
    TokenizerConfig,
    TrainingConfig,
)

experiment = Experiment(
    workdir=Path("runs/text_files_rnn"),
    data=DataConfig(
        source=TextFilesSource(
            train=Path("corpus/train"),
            valid=Path("corpus/valid"),
            test=Path("corpus/test"),
        ),
        tokenizer=TokenizerConfig(vocab_size=8_000),
        tokens_per_batch=2_048,
    ),
    model=RNNConfig(attention="additive", tied_embeddings="none"),
    optimizer=OptimizerConfig(
        schedule=ScheduleConfig(kind="rsqrt", peak=1e-3, warmup_steps=1_000)
    ),
    training=TrainingConfig(
        num_steps=20_000, evaluate_every=1_000, checkpoint_every=1_000, patience=10
    ),
)
