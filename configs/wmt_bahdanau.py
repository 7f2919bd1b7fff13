"""RNNsearch on WMT 2014, English to German: a GRU with additive attention.

Paper: Bahdanau, Cho and Bengio 2015, "Neural machine translation by jointly learning to
align and translate": embeddings of 620, 1,000 hidden units per direction, sentences of
up to 50 tokens. Where we differ: subwords in place of the 30,000 most frequent words,
so that no word is unknown (--data.tokenizer.kind word gives the paper's), and Adam in
place of Adadelta.
Command: python train.py --config configs/wmt_bahdanau.py
    English to French, as in the paper: --data.source.name wmt14_translate/fr-en
    --data.target-language fr
    RNNenc, the baseline without attention: --model.attention none
Cost: 86 M parameters; about 5 days on one GPU of 2014 in the paper.
Expected score: English to French 26.75 BLEU on all sentences (17.82 without attention).
"""

from pathlib import Path

from attnjax.config import (
    DataConfig,
    DecodingConfig,
    Experiment,
    OptimizerConfig,
    RNNConfig,
    ScheduleConfig,
    TFDSSource,
    TokenizerConfig,
    TrainingConfig,
)

experiment = Experiment(
    workdir=Path("runs/wmt_bahdanau"),
    data=DataConfig(
        source=TFDSSource(name="wmt14_translate/de-en"),
        source_language="en",
        target_language="de",
        tokenizer=TokenizerConfig(vocab_size=30_000, joint=False),
        bucket_lengths=(8, 16, 24, 32, 40, 51),
        tokens_per_batch=4_096,
    ),
    model=RNNConfig(
        cell="gru",
        embedding_width=620,
        hidden_width=1_000,
        attention="additive",
        attention_width=1_000,
        query="previous",
        dropout=0.2,
    ),
    optimizer=OptimizerConfig(
        beta2=0.999,
        epsilon=1e-8,
        schedule=ScheduleConfig(kind="rsqrt", peak=5e-4, warmup_steps=4_000),
    ),
    training=TrainingConfig(
        num_steps=300_000,
        label_smoothing=0.0,
        log_every=100,
        evaluate_every=5_000,
        checkpoint_every=1_000,
    ),
    decoding=DecodingConfig(beam_size=12, length_penalty=1.0),
)
