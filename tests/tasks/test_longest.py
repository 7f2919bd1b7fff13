"""Tables of positions end: real lengths count, and what lies beyond is said."""

import functools

import jax
import numpy as np
import pytest

from attnjax.benchmarks.numbered_words import numbered_words
from attnjax.config import (
    CLDRSource,
    DataConfig,
    DecodingConfig,
    RNNConfig,
    TransformerConfig,
)
from attnjax.data.encoded import require_within
from attnjax.data.parallel import ParallelCorpus
from attnjax.data.pipeline import shortened, training_batches
from attnjax.models.ensemble import Ensemble
from attnjax.models.registry import make_model
from attnjax.ops.lowrank import Linformer
from attnjax.tasks.translator import Translator
from attnjax.types import Longest, Tokens

TOKENIZERS = numbered_words(20)
SMALL = functools.partial(
    TransformerConfig,
    width=8,
    num_heads=2,
    feed_forward_width=8,
    encoder_layers=1,
    decoder_layers=1,
    max_positions=21,
)
CONFIGS = {
    "learned": SMALL(positions="learned"),
    "location": SMALL(scorer="location"),
    "linformer": SMALL(encoder_attention=Linformer(rank=4)),
    "rnn": RNNConfig(
        embedding_width=8,
        hidden_width=8,
        attention="location",
        max_source_tokens=21,
        tied_embeddings="none",
    ),
}


def line(words):
    return " ".join(["w5"] * words)


@pytest.mark.parametrize("name", CONFIGS)
def test_a_source_as_long_as_the_table_is_translated_and_a_longer_one_cut(name, caplog):
    """20 words and ``</s>`` are 21 tokens, which would be padded to 32."""
    model = make_model(CONFIGS[name], 20, 20, dtype=np.float32)
    example = Tokens(np.ones((1, 2), np.int32), np.ones((1, 2), bool))
    variables = model.init(jax.random.key(0), example, example, train=False)
    config = DecodingConfig(method="beam", beam_size=1, max_extra_tokens=9)
    translator = Translator(model, TOKENIZERS, config)
    fits = translator.translate(variables, [line(20)])
    assert fits.num_cut == 0
    assert not caplog.messages
    longer = translator.translate(variables, [line(24)])
    assert longer.num_cut == 1
    assert longer.texts == fits.texts
    assert f"train with a larger {model.longest.setting}" in caplog.text
    ids = fits.n_best[0][0].ids
    [score] = translator.score(variables, [line(20)], [ids])
    assert np.isfinite(score.token_log_probabilities).all()
    if model.longest.target == 21:
        with pytest.raises(ValueError, match="translation 2 has 25 tokens .* takes 21"):
            translator.score(variables, [line(2)] * 2, [[5, 2], [5] * 24 + [2]])


def test_an_ensemble_takes_what_all_members_take():
    models = [
        make_model(config, 20, 20, dtype=np.float32) for config in CONFIGS.values()
    ]
    both = Ensemble([models[0], models[3]]).longest
    assert both == Longest(21, 21, "model.max_positions")
    assert Ensemble([models[2]]).longest == Longest(21, setting="model.max_positions")


def test_a_pair_beyond_is_named_before_training():
    corpus = ParallelCorpus([line(3), line(4)], [line(9), line(6)], "numbers")
    pairs = [([5] * 3, [5] * 9), ([5] * 4, [5] * 6)]
    require_within(pairs, Longest(5, 10, "model.max_positions"), corpus)
    with pytest.raises(
        ValueError, match=r"line 1: the target has 10 .* takes 9 .*: 1 of 2.* to 10 or"
    ):
        require_within(pairs, Longest(5, 9, "model.max_positions"), corpus)
    with pytest.raises(ValueError, match="line 2: the source has 5 .* takes 4"):
        require_within(pairs, Longest(4, 10, "model.max_positions"), corpus)


def test_training_pairs_beyond_are_left_out():
    sides = [line(n) for n in (4, 5, 6)]
    corpus = ParallelCorpus(sides, sides, "numbers")
    config = DataConfig(source=CLDRSource(), bucket_lengths=(4, 8), rows_multiple=1)
    fitting = shortened(config, Longest(6, 6, "model.max_positions"))
    batches = training_batches(corpus, TOKENIZERS, fitting, seed=0)
    batch = next(batches)
    assert batch.source.ids.shape[1] == batch.labels.shape[1] == 6
    assert sorted(batch.source.valid.sum(axis=1).tolist())[-2:] == [5, 6]
    assert batch.weights.sum() == 11
    batches.close()
