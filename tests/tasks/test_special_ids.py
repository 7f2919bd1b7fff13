"""A model does the same whichever ids its vocabulary gives to which token."""

import functools
import itertools

import jax
import numpy as np
import pytest

from attnjax.config import CLDRSource, DataConfig, DecodingConfig, TransformerConfig
from attnjax.data.parallel import ParallelCorpus
from attnjax.data.pipeline import training_batches
from attnjax.data.symbol_tokenizers import SymbolTokenizer
from attnjax.data.vocabulary import TokenizerPair
from attnjax.models.transformer import Transformer
from attnjax.tasks.translation import TranslationTask, ValidationSet
from attnjax.tasks.translator import Translator
from attnjax.types import Tokens

LINES = ["abcde", "hg", "", "ifeh?ab", "c"]
TARGETS = ["edcba", "gh", "a", "ba?hefi", "cc"]
OURS = TokenizerPair(*[SymbolTokenizer("char", "abcdefghi")] * 2)
SIZE = OURS.target.size
MODEL = Transformer(
    TransformerConfig(
        width=8,
        num_heads=2,
        feed_forward_width=12,
        encoder_layers=1,
        decoder_layers=1,
        tied_embeddings="decoder",
    ),
    *(SIZE, SIZE),
    has_logits_bias=True,
)
LIMITS = {"max_extra_tokens": 3, "no_repeat_ngram": 4}


@pytest.fixture(scope="module")
def theirs(with_other_ids):
    return with_other_ids(OURS)


@pytest.fixture(scope="module")
def variables(theirs):
    """Of the same model, for our ids and for theirs; both start from one vector."""
    example = Tokens(np.ones((1, 2), np.int32), np.ones((1, 2), bool))
    shapes = jax.eval_shape(
        lambda: MODEL.init(jax.random.key(0), example, example, train=False)
    )
    random = np.random.default_rng(3)
    ours = jax.tree.map(
        lambda leaf: random.normal(size=leaf.shape, scale=0.7).astype(np.float32),
        shapes,
    )
    params = ours["params"]
    table, bias = params["target_embedding"]["table"], params["logits_bias"]
    table[1], bias[:2] = table[0], -1e4  # <pad> and <s>, which are never written
    moved = {
        name: {"table": params[name]["table"][theirs.source.ours_of]}
        for name in ("source_embedding", "target_embedding")
    }
    moved["logits_bias"] = bias[theirs.target.ours_of]
    return ours, {"params": {**params, **moved}}


@pytest.mark.parametrize(
    "fields",
    [
        {"beam_size": 3, "n_best": 2},
        {"beam_size": 1},
        {"method": "sampling", "top_k": 1},
    ],
    ids=["beam", "greedy", "sampling"],
)
def test_outputs_scores_and_attention(theirs, variables, fields):
    config = DecodingConfig(**LIMITS | fields)
    found = []
    for tokenizers, values in zip((OURS, theirs), variables, strict=True):
        translator = Translator(MODEL, tokenizers, config)
        translations = translator.translate(
            values, LINES, prefixes=["", "b", "", "", "ab"], with_attention=True
        )
        found.append((translations, *forced(translator, values)))
    (expected, *ours), (translations, *others) = found
    assert translations.texts == expected.texts
    assert any(text for text in expected.texts)
    for one, other in zip(
        itertools.chain(*expected.n_best),
        itertools.chain(*translations.n_best),
        strict=True,
    ):
        assert other.ids == [theirs.target.theirs_of[token] for token in one.ids]
        assert other.finished == one.finished
        assert other.score == pytest.approx(one.score, rel=1e-5)
        if one.ids:
            np.testing.assert_allclose(other.attention, one.attention, atol=1e-6)
    for one, other in zip(jax.tree.leaves(ours), jax.tree.leaves(others), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


def forced(translator, variables):
    """What the model thinks of given texts, and where it looks."""
    ids = translator.encode_targets(TARGETS)
    scores = translator.score(variables, LINES, ids)
    attention = translator.attention(variables, LINES, ids)
    return [score.token_log_probabilities for score in scores], attention


def test_training_batches_and_losses(theirs, variables):
    corpus = ParallelCorpus(LINES[:2] * 9, TARGETS[:2] * 9, "here")
    config = DataConfig(
        source=CLDRSource(),
        bucket_lengths=(4, 8),
        tokens_per_batch=64,
        rows_multiple=8,
    )
    losses, batches = [], []
    for tokenizers, values in zip((OURS, theirs), variables, strict=True):
        reader = training_batches(corpus, tokenizers, config, seed=1)
        batches.append(next(reader))
        reader.close()
        task = make_task(tokenizers)
        loss = functools.partial(task.loss, train=False)
        metrics, _ = jax.jit(loss)(values, batches[-1], jax.random.key(0))
        losses.append([metrics["nll"], task.evaluate(values)["nll"]])
    ours_of = np.array(theirs.source.ours_of)
    for ours, other in zip(*map(token_arrays, batches), strict=True):
        # Theirs has one id for <pad> and <s>, which is our <pad>.
        assert (ours_of[other] == np.where(ours == 1, 0, ours)).all()
    assert (batches[0].weights == batches[1].weights).all()
    np.testing.assert_allclose(*map(np.hstack, losses), rtol=1e-5)


def token_arrays(batch):
    return batch.source.ids, batch.inputs.ids, batch.labels


def make_task(tokenizers):
    pairs = [
        (tokenizers.source.encode(source), tokenizers.target.encode(target))
        for source, target in zip(LINES, TARGETS, strict=True)
    ]
    return TranslationTask(
        Translator(MODEL, tokenizers, DecodingConfig(**LIMITS)),
        ValidationSet(pairs, LINES[:1], TARGETS[:1], "en"),
        label_smoothing=0.1,
        tokens_per_batch=64,
    )
