"""Translation through the task and the translator, with tiny untrained models."""

import functools
import logging
import types
from typing import NamedTuple

import jax
import numpy as np
import pytest

from attnjax.benchmarks.hard_attention import reversal_batch, task_of
from attnjax.config import (
    DecodingConfig,
    RNNConfig,
    TokenizerConfig,
    TransformerConfig,
)
from attnjax.data.batching import pair_batches
from attnjax.data.layout import lay_out_pairs
from attnjax.data.parallel import ParallelCorpus
from attnjax.data.tokenizers import train_tokenizers
from attnjax.models.rnn import RNNSeq2Seq
from attnjax.models.transformer import Transformer
from attnjax.ops.hard import HardChoice
from attnjax.tasks.translation import TranslationTask, ValidationSet
from attnjax.tasks.translator import Translator

CORPUS = ParallelCorpus(
    source=["ein Hund", "eine rote Katze läuft", "der Fluss ist sehr lang und tief"],
    target=["a dog", "a red cat runs", "the river is very long and deep"],
    origin="by hand",
)
TOKENIZERS = train_tokenizers(CORPUS, TokenizerConfig(kind="char", vocab_size=60))
DECODING = DecodingConfig(
    beam_size=3, max_extra_tokens=4, max_source_tokens=40, tokens_per_batch=256
)
MODELS = {
    "transformer": (
        Transformer,
        TransformerConfig(
            width=16,
            num_heads=2,
            feed_forward_width=24,
            encoder_layers=1,
            decoder_layers=1,
        ),
    ),
    "rnn": (
        RNNSeq2Seq,
        RNNConfig(embedding_width=12, hidden_width=14, attention_width=8),
    ),
}


class Parts(NamedTuple):
    task: TranslationTask
    translator: Translator
    variables: dict


@pytest.fixture(scope="module", params=MODELS)
def parts(request) -> Parts:
    family, config = MODELS[request.param]
    model = family(config, TOKENIZERS.source.size, TOKENIZERS.target.size)
    translator = Translator(model, TOKENIZERS, DECODING)
    pairs = [
        (TOKENIZERS.source.encode(source), TOKENIZERS.target.encode(target))
        for source, target in zip(CORPUS.source, CORPUS.target, strict=True)
    ]
    task = TranslationTask(
        translator,
        ValidationSet(pairs, CORPUS.source, CORPUS.target, "en"),
        label_smoothing=0.1,
        tokens_per_batch=32,  # several batches, so that their sums matter
    )
    return Parts(task, translator, task.init(jax.random.key(1)))


def arrays(pairs) -> list:
    return [[tuple(np.array(side, np.int32) for side in pair)] for pair in pairs]


@functools.cache
def compiled_loss(task: TranslationTask):
    return jax.jit(lambda *given: task.loss(*given, train=False)[0]["loss"])


def loss_of(parts: Parts, batch) -> tuple[float, float]:
    loss = compiled_loss(parts.task)(parts.variables, batch, jax.random.key(0))
    return float(loss.total), float(loss.count)


def test_padding_columns_and_rows_change_no_loss(parts):
    rows = arrays([([5, 6, 7], [8, 9]), ([5, 9, 4, 6], [7, 7, 7])])
    tight = loss_of(parts, lay_out_pairs(rows, 5, 4, TOKENIZERS))
    wide = loss_of(parts, lay_out_pairs([*rows, [], []], 11, 13, TOKENIZERS))
    assert tight[1] == wide[1] == 7
    np.testing.assert_allclose(tight[0], wide[0], rtol=1e-5)


def test_a_batch_of_padding_alone_has_loss_zero(parts):
    assert loss_of(parts, lay_out_pairs([[], []], 5, 4, TOKENIZERS)) == (0.0, 0.0)


def test_validation_loss_is_the_mean_over_all_tokens_of_all_pairs(parts):
    measured = parts.task.evaluate(parts.variables)
    alone = [
        loss_of(parts, batch)
        for pair in parts.task._validation.pairs
        for _, batch in pair_batches(
            [pair], TOKENIZERS, tokens_per_batch=8, rows_multiple=1
        )
    ]
    total, count = np.sum(alone, axis=0)
    assert count == sum(len(text) + 1 for text in CORPUS.target)
    np.testing.assert_allclose(measured["nll"], total / count, rtol=1e-5)
    np.testing.assert_allclose(measured["perplexity"], np.exp(total / count), rtol=1e-4)
    assert {"bleu", "chrf", "accuracy"} <= set(measured)


def test_validation_cuts_words_as_the_target_language_does(parts, monkeypatch):
    """BLEU of sacreBLEU 2.6: 76.12 in characters, 0 where a line is one word."""
    wrong, right = "我们今天去学校学习旧的知识", "我们今天去学校学习新的知识"
    lines = {"sources": ["today"], "references": [right], "target_language": "zh"}
    validation = parts.task._validation._replace(**lines)
    monkeypatch.setattr(parts.task, "_validation", validation)
    found = types.SimpleNamespace(texts=[wrong])
    monkeypatch.setattr(Translator, "translate", lambda *_, **__: found)
    bleu = parts.task.evaluate(parts.variables)["bleu"]
    np.testing.assert_allclose(bleu, 76.12, atol=0.01)


def test_translations_do_not_depend_on_the_batch_or_the_order(parts):
    lines = [*CORPUS.source, "", "Hund", "lang"]
    together = parts.translator.translate(parts.variables, lines)
    backwards = parts.translator.translate(parts.variables, lines[::-1])
    assert together.ids == backwards.ids[::-1]
    assert together.texts[3] == ""
    assert together.best[3].score == 0.0
    for number, line in enumerate(lines):
        alone = parts.translator.translate(parts.variables, [line])
        assert alone.ids == [together.ids[number]]
        score = together.best[number].score
        np.testing.assert_allclose(alone.best[0].score, score, rtol=1e-4)


def test_output_is_limited_relative_to_each_source(parts):
    found = parts.translator.translate(parts.variables, CORPUS.source)
    for line, ids in zip(CORPUS.source, found.ids, strict=True):
        assert len(ids) <= len(line) + 1 + DECODING.max_extra_tokens
    assert found.num_tokens == sum(map(len, found.ids))


def test_an_over_long_line_is_cut_and_counted(parts, caplog):
    with caplog.at_level(logging.WARNING):
        found = parts.translator.translate(parts.variables, ["Hund" * 20, "Hund"])
    cut = parts.translator.translate(parts.variables, [("Hund" * 20)[:39]])
    assert found.num_cut == 1
    assert found.ids[0] == cut.ids[0]
    assert "the first is" in caplog.text


def test_no_lines_give_no_translations(parts):
    found = parts.translator.translate(parts.variables, [])
    assert found.texts == []


def test_attention_covers_the_own_tokens_of_each_line(parts):
    found = parts.translator.translate(parts.variables, CORPUS.source)
    attention = parts.translator.attention(parts.variables, CORPUS.source, found.ids)
    for line, ids, named in zip(CORPUS.source, found.ids, attention, strict=True):
        (weights,) = named.values()
        heads, queries, keys = weights.shape
        generated = [token for token in ids if token != TOKENIZERS.target.eos_id]
        assert (queries, keys) == (len(generated) + 1, len(line) + 1)
        np.testing.assert_allclose(weights.sum(-1), 1.0, rtol=1e-5)
        assert heads in (1, 2)


def test_choices_add_their_entropy_and_move_the_baseline_in_training():
    options = {"soft_rate": 0.0, "entropy_weight": 0.5, "baseline_decay": 0.75}
    unsmoothed = task_of(HardChoice(**options))
    task = TranslationTask(
        unsmoothed.translator, ValidationSet(), label_smoothing=0.2, tokens_per_batch=1
    )
    batch = reversal_batch(jax.random.key(0), 5)
    variables = task.init(jax.random.key(1))
    assert variables["baseline"]["cost"].tokens == 0.0
    rng = jax.random.key(2)

    def run(params, others, rng):
        metrics, updated = task.loss(
            {"params": params, **others}, batch, rng, train=True
        )
        return metrics["loss"].total, (metrics, updated)

    train = jax.jit(jax.grad(run, has_aux=True))
    others = {"baseline": variables["baseline"]}
    _, (first, moved) = train(variables["params"], others, rng)
    loss, nll, entropy = (first[name] for name in ("loss", "nll", "choice_entropy"))
    assert loss.count == entropy.count == batch.weights.sum()
    costs = loss.total + 0.5 * entropy.total  # smoothed as the objective is
    assert abs(costs - nll.total) > 0.001 * nll.total
    assert 0.5 < entropy.total / entropy.count < np.log(7)
    usual = moved["baseline"]["cost"]
    np.testing.assert_allclose(usual.tokens, 0.25 * nll.count, rtol=1e-6)
    np.testing.assert_allclose(usual.cost, 0.25 * costs, rtol=1e-5)

    gradient, (_, again) = train(variables["params"], moved, rng)
    twice = again["baseline"]["cost"]
    np.testing.assert_allclose(twice.tokens, (0.75 + 1) * 0.25 * nll.count, rtol=1e-6)
    other, _ = train(variables["params"], others, rng)
    for name in ("query_kernel", "key_kernel", "vector"):
        with_baseline, without = (
            each["decoder"]["attention"]["scorer"][name] for each in (gradient, other)
        )
        assert np.abs(with_baseline - without).max() > 1e-4, name

    metrics, kept = jax.eval_shape(
        functools.partial(task.loss, train=False), variables, batch, rng
    )
    assert set(metrics) == {"loss", "nll", "accuracy"}
    assert kept == {}
