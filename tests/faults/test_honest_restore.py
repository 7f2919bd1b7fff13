"""A run goes on with what it was trained with, or one message lists all that differs.

Nothing is cast, left out or filled up: a checkpoint fits leaf for leaf, value for
value, or is refused with old and new of each.
"""

import dataclasses
import json
import shutil
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnjax import experiment
from attnjax.config import (
    DataConfig,
    TextFilesSource,
    TokenizerConfig,
    TransformerConfig,
)
from attnjax.data.parallel import ParallelCorpus
from attnjax.data.pipeline import training_batches
from attnjax.data.text_files import read_text_files
from attnjax.data.tokenizers import train_tokenizers
from attnjax.run_folder import RunFolder, read_config
from attnjax.runs.averaging import average
from attnjax.runs.opening import open_run
from attnjax.storage.checkpoints import Checkpoints

GOLDEN = Path(__file__).parents[1] / "golden/checkpoint_v0.1"
NUM_PAIRS = 97


@pytest.fixture
def corpus(tmp_path):
    """The prefix of two files; pair i says i."""
    for language, step in (("de", 7), ("en", 5)):
        lines = [f"n{i} " + "a " * (i * step % 11) + "\n" for i in range(NUM_PAIRS)]
        (tmp_path / f"train.{language}").write_text("".join(lines))
    return tmp_path / "train"


@pytest.fixture
def start(corpus):
    """Begins a session over the files as they are now, with the first tokenizers."""
    opened = []
    config = DataConfig(
        source=TextFilesSource(train=corpus, valid=corpus, test=corpus),
        bucket_lengths=(5, 8, 13),
        bucket_shapes=4,
        tokens_per_batch=104,
        rows_multiple=4,
        shuffle_buffer_batches=5,
    )
    first = train_tokenizers(
        read_text_files(corpus, "de", "en"), TokenizerConfig(kind="word", vocab_size=90)
    )

    def start(tokenizers=first, seed=0, hosts=(0, 1), validation=None, **fields):
        batches = training_batches(
            *(read_text_files(corpus, "de", "en"), tokenizers),
            dataclasses.replace(config, **fields),
            seed=seed,
            process_index=hosts[0],
            process_count=hosts[1],
            validation=validation,
        )
        opened.append(batches)
        return batches

    yield start
    for batches in opened:
        batches.close()


def edit(lines):
    lines[40] = lines[40].replace("a", "b", 1)


def swap(lines):
    lines[3], lines[4] = lines[4], lines[3]


EDITS = {
    "a letter": edit,
    "a line more": lambda lines: lines.append("new a"),
    "a line less": lambda lines: lines.pop(),
    "two lines swapped": swap,
    "a space at an end": lambda lines: lines.__setitem__(0, lines[0] + " "),
}


@pytest.mark.parametrize("side", ["de", "en"])
@pytest.mark.parametrize("name", EDITS)
def test_a_corpus_that_changed_is_refused(start, corpus, name, side):
    state = start().get_state()
    start().set_state(state)
    for language in ("de", "en") if "line " in name else (side,):
        path = corpus.with_suffix(f".{language}")
        lines = path.read_text().removesuffix("\n").split("\n")
        EDITS[name](lines)
        path.write_text("\n".join(lines) + "\n")
    changed = start()
    with pytest.raises(ValueError, match="cannot resume with other data") as caught:
        changed.set_state(state)
    old, new = (s["identity"]["corpus"] for s in (state, changed.get_state()))
    assert f"data.corpus: {old} -> {new}" in str(caught.value)
    assert "Resume with the same data" in str(caught.value)
    assert "data.vocabulary" not in str(caught.value)


def test_sides_that_were_swapped_are_another_corpus(start, corpus):
    state = start().get_state()
    source, target = (corpus.with_suffix(f".{language}") for language in ("de", "en"))
    old = source.read_bytes(), target.read_bytes()
    target.write_bytes(old[0])
    source.write_bytes(old[1])
    with pytest.raises(ValueError, match="data.corpus"):
        start().set_state(state)


def test_all_that_differs_is_in_one_message(start, corpus):
    state = start().get_state()
    path = corpus.with_suffix(".de")
    path.write_text(path.read_text().replace("n7", "m7"))
    others = train_tokenizers(
        read_text_files(corpus, "de", "en"), TokenizerConfig(kind="word", vocab_size=70)
    )
    other = start(others, seed=5, packing=True)
    with pytest.raises(ValueError, match="cannot resume") as caught:
        other.set_state(state)
    old, new = state["identity"], other.get_state()["identity"]
    assert set(old) == {"corpus", "vocabulary", "seed", "batching"}
    for part in old:
        assert f"data.{part}: {old[part]} -> {new[part]}" in str(caught.value)
    assert other.differences({"identity": {}}) == [
        f"data.{part}: None -> {value}" for part, value in new.items()
    ]


def test_scores_of_another_validation_set_are_not_compared(start):
    sets = [ParallelCorpus(["n1 n2", "n3"], [text, "a"], "here") for text in "ab"]
    state = start(validation=sets[0]).get_state()
    start(validation=sets[0]).set_state(state)
    other = start(validation=sets[1])
    new = other.get_state()["identity"]["validation"]
    with pytest.raises(ValueError, match="cannot resume") as caught:
        other.set_state(state)
    assert f"data.validation: {state['identity']['validation']} -> {new}" in str(
        caught.value
    )
    start().set_state(state)  # by one who only reads the batches
    del state["identity"]["validation"]  # as before it was kept
    other.set_state(state)


HOSTILE_POSITIONS = [
    {"start": -1},
    {"start": 1 << 60},
    {"start": "x"},
    {"start": None},
    {"carried": [NUM_PAIRS]},
    {"carried": [-1]},
    {"carried": 5},
    {"dropped": -1},
    {"emitted": -1},
    {"emitted": 1_000},
]


@pytest.mark.parametrize("changed", HOSTILE_POSITIONS, ids=str)
def test_a_position_that_does_not_exist_is_refused(start, changed):
    batches = start()
    state = batches.get_state()
    position = {**state["position"], **changed}
    with pytest.raises((ValueError, TypeError)):
        next(start_at(batches, {**state, "position": position}))


def start_at(batches, state):
    batches.set_state(json.loads(json.dumps(state)))
    return batches


def rows(batches):
    """The arrays of the next batch."""
    batch = next(batches)
    tokens = [array for side in (batch.source, batch.inputs) for array in side]
    arrays = [*tokens, batch.labels, batch.weights]
    return [array for array in arrays if array is not None]


@pytest.mark.parametrize("packing", [False, True])
@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 1), (2, 4), (4, 1)])
def test_another_number_of_processes_goes_on_in_the_same_order(
    start, packing, before, after
):
    """Each plans the global batches, and lays out its share of their rows."""
    unbroken = start(packing=packing)
    for _ in range(9):
        next(unbroken)
    stopped = start(packing=packing, hosts=(before - 1, before))
    for _ in range(9):
        next(stopped)
    state = stopped.get_state()
    assert state == unbroken.get_state()
    resumed = [
        start_at(start(packing=packing, hosts=(number, after)), state)
        for number in range(after)
    ]
    for _ in range(30):  # over windows and epochs
        whole, shares = rows(unbroken), [rows(host) for host in resumed]
        for array, *parts in zip(whole, *shares, strict=True):
            np.testing.assert_array_equal(np.concatenate(parts), array)
    assert unbroken.get_state()["position"]["start"] > NUM_PAIRS
    assert {str(host.get_state()) for host in resumed} == {str(unbroken.get_state())}


def test_a_number_of_processes_that_does_not_fit_is_refused_with_what_to_do(start):
    with pytest.raises(ValueError, match="3 hosts cannot share rows") as caught:
        start(hosts=(0, 3))
    assert "Use a number of hosts that divides it" in str(caught.value)


def layers(count, width=5, dtype=jnp.float32):
    return {f"layer_{n}": jnp.full((width, 2), n, dtype) for n in range(count)}


@pytest.mark.parametrize(
    ("expected", "count", "lines"),
    [
        (
            *(layers(16), "4 missing"),
            [f"layer_{n}: missing, expected float32[5, 2];" for n in range(12, 16)],
        ),
        (
            *(layers(8), "4 not expected"),
            [f"layer_{n}: float32[5, 2] not expected;" for n in range(8, 12)],
        ),
        (
            *(layers(12, width=7), "12 of another shape or dtype"),
            [f"layer_{n}: float32[5, 2] -> float32[7, 2];" for n in range(12)],
        ),
        (
            *(layers(12, dtype=jnp.bfloat16), "12 of another shape or dtype"),
            [f"layer_{n}: float32[5, 2] -> bfloat16[5, 2];" for n in range(12)],
        ),
        (
            *(layers(13, width=3), "1 missing, 12 of another shape or dtype"),
            ["layer_12: missing, expected", "layer_11: float32[5, 2] -> float32[3, 2]"],
        ),
    ],
)
def test_b36_another_model_restores_nothing_and_names_every_leaf(
    tmp_path, expected, count, lines
):
    with Checkpoints(tmp_path, 1) as checkpoints:
        checkpoints.save(1, layers(12), {})
        for how in (checkpoints.resume, lambda tree: checkpoints.restore(1, tree)):
            with pytest.raises(ValueError, match=f"leaves: {count}") as caught:
                how(jax.eval_shape(lambda: expected))
            for line in lines:
                assert line in str(caught.value)
        assert checkpoints.resume(layers(12)).step == 1


@pytest.fixture
def run(tmp_path):
    return shutil.copytree(GOLDEN, tmp_path / "run")


def fingerprints(run):
    """What the checkpoint was trained with, and what is there now."""
    extra = json.loads((run / "checkpoints/600/extra/metadata").read_text())
    now = experiment.load_tokenizers(run / "tokenizer").fingerprint
    return extra["batches"]["identity"]["vocabulary"], now


def exchange_two_symbols(run, side="source"):
    """The same size, the same symbols; only their numbers differ."""
    path = run / f"tokenizer/tokenizer.{side}.symbols.json"
    symbols = json.loads(path.read_text())
    symbols[0], symbols[1] = symbols[1], symbols[0]
    path.write_text(json.dumps(symbols))


@pytest.mark.parametrize("side", ["source", "target"])
@pytest.mark.parametrize("checkpoint", ["best", "latest", 600])
def test_other_tokenizers_of_the_same_size_open_no_run(run, side, checkpoint):
    trained, now = fingerprints(run)
    assert trained == now
    exchange_two_symbols(run, side)
    now = fingerprints(run)[1]
    with pytest.raises(ValueError, match="does not fit") as caught:
        open_run(run, checkpoint=checkpoint)
    assert f"data.vocabulary: {trained} -> {now};" in str(caught.value)
    assert "leaves" not in str(caught.value)


def test_other_tokenizers_of_another_size_are_named_with_the_leaves(run):
    path = run / "tokenizer/tokenizer.source.symbols.json"
    path.write_text(json.dumps([*json.loads(path.read_text()), "another"]))
    trained, now = fingerprints(run)
    with pytest.raises(ValueError, match="does not fit") as caught:
        open_run(run)
    assert f"data.vocabulary: {trained} -> {now};" in str(caught.value)
    assert "of another shape" in str(caught.value)


def test_averages_know_their_tokenizers_too(run):
    average(run, last=1, name="mine")
    open_run(run, checkpoint="averaged/mine")
    exchange_two_symbols(run)
    trained, now = fingerprints(run)
    with pytest.raises(ValueError, match=f"data.vocabulary: {trained} -> {now};"):
        open_run(run, checkpoint="averaged/mine")
    with pytest.raises(ValueError, match=f"data.vocabulary: {trained} -> {now};"):
        average(run, last=1, name="another")
    assert not (run / "averaged/another").exists()


def stored_experiment(run):
    stored = read_config(RunFolder(run))
    return dataclasses.replace(stored, workdir=run)


@pytest.fixture
def changed(run, corpus):
    """The experiment of the run, with other files and other settings."""
    stored = stored_experiment(run)
    source = TextFilesSource(train=corpus, valid=corpus, test=corpus)
    return dataclasses.replace(
        stored,
        seed=7,
        data=dataclasses.replace(stored.data, source=source, tokens_per_batch=1_024),
        model=TransformerConfig(tied_embeddings="decoder"),
        optimizer=dataclasses.replace(stored.optimizer, beta1=0.8, clip_norm=None),
        training=dataclasses.replace(stored.training, ema_decay=0.9, num_steps=9),
    )


def fields(corpus):
    return [
        "seed: 0 -> 7",
        f"data.source.train: corpus/train -> {corpus}",
        "data.tokens_per_batch: 512 -> 1024",
        "model: RNNConfig -> TransformerConfig",
        "optimizer.beta1: 0.9 -> 0.8",
        "training.ema_decay: None -> 0.9",
    ]


def test_one_message_names_config_data_and_leaves(run, changed, corpus):
    before = (run / "config.json").read_bytes()
    with pytest.raises(ValueError, match="does not fit") as caught:
        experiment.train(changed)
    message = str(caught.value)
    for line in (*fields(corpus), "data.seed: 0 -> 7"):
        assert f"\n  {line};" in message
    assert "\n  data.corpus: " in message
    assert "\n  data.batching: shapes" in message
    assert "missing, expected float32[" in message
    assert "uint32[2]" not in message  # the key of the dropout is the same
    assert "num_steps" not in message
    assert "clip_norm" not in message
    assert "or another run folder" in message
    assert (run / "config.json").read_bytes() == before


def test_a_run_without_checkpoints_names_the_fields_alone(run, changed, corpus):
    before = (run / "config.json").read_bytes()
    shutil.rmtree(run / "checkpoints/600/extra")
    (run / "checkpoints/600/manifest.json").unlink()  # half removed: it is none
    with pytest.raises(ValueError, match="holds a run with another config") as caught:
        experiment.train(changed)
    for line in fields(corpus):
        assert line in str(caught.value)
    assert "leaves" not in str(caught.value)
    assert "choose another --workdir" in str(caught.value)
    assert (run / "config.json").read_bytes() == before
