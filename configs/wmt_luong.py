"""Luong's global attention on WMT 2014, English to German: a stacked LSTM.

Paper: Luong, Pham and Manning 2015, "Effective approaches to attention-based neural
machine translation": 4 layers of 1,000 LSTM units, general scorer, input feeding,
dropout 0.2, gradient norm clipped at 5, an encoder that reads in one direction. Where
we differ: subwords in place of 50,000 words, and Adam in place of SGD.
Command: python train.py --config configs/wmt_luong.py
    the paper's other scorers: --model.attention dot, --model.attention location
    its local attention: --model.selection.kind local_p, --model.selection.kind local_m
Cost: 167 M parameters; 7 to 10 days on a Tesla K40 in the paper.
Expected score: 20.9 tokenised BLEU (the single model with local attention); global
    attention with the dot scorer 20.5, general 19.1, location 19.3 in the ablation.
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
    workdir=Path("runs/wmt_luong"),
    data=DataConfig(
        source=TFDSSource(name="wmt14_translate/de-en"),
        source_language="en",
        target_language="de",
        tokenizer=TokenizerConfig(vocab_size=32_000, joint=False),
        bucket_lengths=(8, 16, 24, 32, 40, 51),
        tokens_per_batch=4_096,
    ),
    model=RNNConfig(
        cell="lstm",
        embedding_width=1_000,
        hidden_width=1_000,
        encoder_layers=4,
        decoder_layers=4,
        bidirectional=False,
        attention="general",
        query="current",
        input_feeding=True,
        dropout=0.2,
    ),
    optimizer=OptimizerConfig(
        beta2=0.999,
        epsilon=1e-8,
        clip_norm=5.0,
        schedule=ScheduleConfig(kind="rsqrt", peak=5e-4, warmup_steps=4_000),
    ),
    training=TrainingConfig(
        num_steps=300_000,
        label_smoothing=0.0,
        log_every=100,
        evaluate_every=5_000,
        checkpoint_every=1_000,
    ),
    decoding=DecodingConfig(beam_size=10, length_penalty=1.0),
)
