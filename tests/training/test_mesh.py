"""Real models on meshes of eight devices: the run is that of one device."""

import functools
from typing import NamedTuple

import chex
import jax
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from attnjax.config import (
    DecodingConfig,
    OptimizerConfig,
    ParallelConfig,
    RNNConfig,
    ScheduleConfig,
    TokenizerConfig,
    TransformerConfig,
)
from attnjax.data.layout import lay_out_pairs
from attnjax.data.parallel import ParallelCorpus
from attnjax.data.tokenizers import train_tokenizers
from attnjax.models.rnn import RNNSeq2Seq
from attnjax.models.transformer import Transformer
from attnjax.storage.checkpoints import Checkpoints
from attnjax.tasks.translation import TranslationTask, ValidationSet
from attnjax.tasks.translator import Translator
from attnjax.training.metrics import to_floats
from attnjax.training.optimizers import make_optimizer
from attnjax.training.sharding import Layout, jit_train_step
from attnjax.training.state import TrainState, abstract_state, init_state
from attnjax.training.step import make_train_step

ROWS, LENGTH, UPDATES = 16, 7, 20
CORPUS = ParallelCorpus(
    ["ein Hund", "eine rote Katze", "lang", "der Fluss ist sehr lang", ""] * 3,
    ["a dog", "a red cat!", "long", "the river is very long", ""] * 3,
    "here",
)
# Of 4 devices along an axis some widths divide and some do not, as in real models.
TOKENIZERS = train_tokenizers(CORPUS, TokenizerConfig(kind="char", vocab_size=40))
MODELS = {
    "transformer": (
        Transformer,
        TransformerConfig(
            width=12,
            num_heads=2,
            feed_forward_width=20,
            encoder_layers=1,
            decoder_layers=1,
            dropout=0.3,
            norm_position="pre",
            max_positions=64,
        ),
    ),
    "rnn": (
        RNNSeq2Seq,
        RNNConfig(embedding_width=8, hidden_width=12, attention_width=10, dropout=0.3),
    ),
}
MESHES = {
    "data": ParallelConfig(data=8),
    "fsdp": ParallelConfig(data=2, fsdp=4),
    "all": ParallelConfig(data=2, fsdp=2, tensor=2),
}


class Run(NamedTuple):
    """Twenty updates on a mesh."""

    task: TranslationTask
    layout: Layout
    state: TrainState
    losses: np.ndarray


def random_batch(seed):
    rng = np.random.default_rng(seed)
    sizes = TOKENIZERS.source.size, TOKENIZERS.target.size
    pairs = [
        [
            tuple(
                rng.integers(4, size, rng.integers(1, LENGTH), np.int32)
                for size in sizes
            )
        ]
        for _ in range(ROWS)
    ]
    return lay_out_pairs(pairs, LENGTH, LENGTH, TOKENIZERS)


def make_task(name, layout, corpus=CORPUS):
    family, config = MODELS[name]
    model = family(config, TOKENIZERS.source.size, TOKENIZERS.target.size)
    decoding = DecodingConfig(
        beam_size=2, max_extra_tokens=4, min_tokens=3, tokens_per_batch=64
    )
    pairs = [
        (TOKENIZERS.source.encode(source), TOKENIZERS.target.encode(target))
        for source, target in zip(corpus.source, corpus.target, strict=True)
    ]
    return TranslationTask(
        Translator(model, TOKENIZERS, decoding, layout=layout),
        ValidationSet(pairs, corpus.source, corpus.target, "en"),
        label_smoothing=0.1,
        tokens_per_batch=64,
    )


def adam():
    schedule = ScheduleConfig(kind="constant", peak=3e-3, warmup_steps=4)
    return make_optimizer(OptimizerConfig(schedule=schedule), UPDATES)


def train(name, layout):
    task, optimizer = make_task(name, layout), adam()
    places = layout.of_state(abstract_state(task, optimizer, with_ema=True))

    def init(seed):
        return init_state(task, optimizer, seed, with_ema=True)

    state = jax.jit(init, out_shardings=places)(0)
    step = make_train_step(task, optimizer, ema_decay=0.99)
    compiled, losses = jit_train_step(step, layout), []
    for number in range(UPDATES):
        state, metrics = compiled(state, random_batch(number % 3))
        losses.append(to_floats(jax.device_get(metrics))["loss"])
    return Run(task, layout, state, np.array(losses))


CASES = [("transformer", mesh) for mesh in MESHES] + [("rnn", "all")]


@pytest.fixture(scope="module")
def runs():
    """Each run of a model on a mesh, trained when it is first asked for."""

    @functools.cache
    def get(name, mesh):
        if mesh is None:
            return train(name, Layout.over(jax.devices()[:1]))
        return train(name, Layout.over(parallel=MESHES[mesh]))

    return get


@pytest.fixture(params=CASES, ids="-".join)
def pair(request, runs):
    name, mesh = request.param
    return runs(name, None), runs(name, mesh)


def test_every_mesh_trains_as_one_device(pair):
    single, meshed = pair
    assert single.losses[-3:].mean() < 0.97 * single.losses[:3].mean()
    np.testing.assert_allclose(meshed.losses, single.losses, rtol=2e-6)


def test_a_state_on_one_mesh_is_restored_bit_for_bit_on_another(pair, tmp_path):
    single, meshed = pair
    optimizer = adam()
    with Checkpoints(tmp_path, 1) as checkpoints:
        checkpoints.save(UPDATES, meshed.state, {})
        abstract = abstract_state(single.task, optimizer, with_ema=True)
        for layout in (single.layout, meshed.layout):
            restored, _ = checkpoints.restore(UPDATES, layout.placed(abstract))
            places = jax.tree.map(lambda leaf: leaf.sharding, restored)
            assert places == layout.of_state(abstract)
            raw_found, raw_saved = map(raw, (restored, meshed.state))
            chex.assert_trees_all_equal(raw_found, raw_saved)


def raw(state):
    bare = state.replace(rng=jax.random.key_data(state.rng))
    return jax.device_get(bare)


@pytest.mark.parametrize("pair", [("transformer", "all")], indirect=True)
def test_every_named_axis_is_split(pair):
    """Tables by vocabulary, projections by heads, the feed-forward layer by units."""
    params = pair[1].state.params
    layer = params["encoder"]["layer_0"]
    places = {
        "vocabulary": params["target_embedding"]["table"],
        "heads": layer["attention"]["output"]["kernel"],
        "feed_forward": layer["feed_forward"]["output"]["kernel"],
    }
    for name, array in places.items():
        assert array.sharding.spec == PartitionSpec("tensor", "fsdp"), name


@pytest.mark.parametrize("pair", [("transformer", "all")], indirect=True)
def test_validation_counts_each_example_once(pair):
    """Of 12 filled lines and 3 empty ones, on 8 devices and on 1."""
    single, meshed = pair
    variables = single.state.variables
    expected = single.task.evaluate(variables)
    found = meshed.task.evaluate(meshed.layout.place_state(jax.device_get(variables)))
    assert found == pytest.approx(expected, rel=2e-6)
    translate = meshed.task.translator.translate
    lines = CORPUS.source[1:]
    on_mesh = translate(meshed.state.variables, lines)
    alone = single.task.translator.translate(
        jax.device_get(meshed.state.variables), lines
    )
    assert on_mesh.texts == alone.texts
    assert any(on_mesh.texts)
