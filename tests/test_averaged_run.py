"""A run that averages its weights is opened with the averaged ones."""

import jax
import numpy as np

from attnjax.config import (
    CLDRSource,
    DataConfig,
    DecodingConfig,
    EvaluationConfig,
    Experiment,
    RNNConfig,
    TokenizerConfig,
    TrainingConfig,
)
from attnjax.experiment import train
from attnjax.runs.opening import open_run


def test_the_averaged_weights_are_what_is_opened(tmp_path):
    result = train(
        Experiment(
            data=DataConfig(
                source=CLDRSource(train_pairs=300, valid_pairs=8, test_pairs=8),
                tokenizer=TokenizerConfig(vocab_size=400),
                tokens_per_batch=256,
                bucket_lengths=(32,),
            ),
            model=RNNConfig(embedding_width=12, hidden_width=16, attention_width=8),
            training=TrainingConfig(num_steps=2, evaluate_every=9, ema_decay=0.5),
            decoding=DecodingConfig(max_extra_tokens=4, max_source_tokens=48),
            evaluation=EvaluationConfig(beam_size=2),
            workdir=tmp_path,
        )
    )
    run = open_run(tmp_path, checkpoint="latest")
    assert run.step == 2
    found, averaged, raw = map(
        jax.tree.leaves,
        (run.variables["params"], result.state.ema, result.state.params),
    )
    assert all(map(np.array_equal, found, averaged))
    assert not any(map(np.array_equal, averaged, raw))
