"""Training batches: each pair once an epoch, exact resume, the same on all hosts."""

import itertools
import json
import logging

import numpy as np
import pytest

from attnjax.config import CLDRSource, DataConfig, TokenizerConfig
from attnjax.data import encoded
from attnjax.data.parallel import ParallelCorpus
from attnjax.data.pipeline import training_batches
from attnjax.data.tokenizers import train_tokenizers


@pytest.fixture
def start(corpus, tokenizers, make_config):
    """Starts iterators that are closed after the test."""
    opened = []

    def start(fields=None, *, seed=0, data=corpus, pair=tokenizers, **hosts):
        batches = training_batches(
            data, pair, make_config(**fields or {}), seed=seed, **hosts
        )
        opened.append(batches)
        return batches

    yield start
    for batches in opened:
        batches.close()


def take(batches, count):
    return list(itertools.islice(batches, count))


def same(first, second):
    return json.dumps(plain(first)) == json.dumps(plain(second))


def plain(batch):
    if isinstance(batch, tuple | list):
        return [plain(part) for part in batch]
    return batch.tolist() if isinstance(batch, np.ndarray) else batch


def numbers(batch, tokenizers):
    """The numbers n of the pairs "n..." in a batch, by the source side."""
    pieces = tokenizers.source.pieces(batch.source.ids[batch.source.valid])
    return [piece for piece in pieces if piece.startswith("n")]


def epochs_of(batches, tokenizers, corpus, count):
    """The numbers in the batches of whole epochs, an epoch after the other."""
    epochs = [[] for _ in range(count)]
    batch, state = next(batches), batches.get_state()["position"]
    while state["start"] < count * len(corpus):
        epochs[state["start"] // len(corpus)].append(numbers(batch, tokenizers))
        batch, state = next(batches), batches.get_state()["position"]
    return epochs


@pytest.mark.parametrize("packing", [False, True])
@pytest.mark.parametrize("size", [1, 2, 3, 31, 97, 400])
def test_every_epoch_holds_every_pair_once(start, make_corpus, packing, size):
    """Also over several windows (400), and where no shape is ever full (1 to 31)."""
    data = make_corpus(size)
    pair = train_tokenizers(data, TokenizerConfig(kind="word", vocab_size=500))
    batches = start({"packing": packing}, data=data, pair=pair)
    for epoch in epochs_of(batches, pair, data, 3):
        names = [name for batch in epoch for name in batch]
        assert sorted(names) == sorted(f"n{index}" for index in range(size))


def test_a_long_line_among_short_ones_is_seen_once_an_epoch():
    """It used to wait until it filled a batch with copies of itself."""
    line = "n0 " + "a " * 11
    data = ParallelCorpus(
        [line] + [f"n{i} a" for i in range(1, 200)],
        [line] + [f"n{i} a" for i in range(1, 200)],
        "one long line",
    )
    pair = train_tokenizers(data, TokenizerConfig(kind="word", vocab_size=500))
    config = DataConfig(
        source=CLDRSource(),
        bucket_lengths=(4, 16),
        tokens_per_batch=64,
        rows_multiple=4,
    )
    batches = training_batches(data, pair, config, seed=0)
    for epoch in epochs_of(batches, pair, data, 3):
        [with_it] = [batch for batch in epoch if "n0" in batch]
        assert with_it.count("n0") == 1
        assert len(with_it) == 4  # short ones fill its batch
        assert sum(map(len, epoch)) == 200
    batches.close()


@pytest.mark.parametrize("packing", [False, True])
def test_rows_without_a_pair_are_few_and_weigh_nothing(start, packing):
    batches = start({"packing": packing, "shuffle_buffer_batches": 20})
    rows = []
    for batch in take(batches, 60):
        weighed = batch.weights.any(axis=1)
        assert weighed.any()
        assert (weighed[:-1] >= weighed[1:]).all()  # behind the others
        assert not batch.weights[~batch.inputs.valid].any()
        rows += weighed.tolist()
    assert 0.85 < np.mean(rows) < 1


@pytest.mark.parametrize("packing", [False, True])
def test_sources_and_targets_stay_together(start, tokenizers, packing):
    for batch in take(start({"packing": packing}), 20):
        sources = tokenizers.source.pieces(batch.source.ids.ravel())
        targets = tokenizers.target.pieces(batch.labels.ravel())
        assert [p for p in sources if p[0] == "n"] == [
            p for p in targets if p[0] == "n"
        ]


def test_batches_have_the_announced_shapes(start):
    batches = start()
    assert len(batches.shapes) <= 4
    for batch in take(batches, 60):
        shape = (*batch.source.ids.shape, batch.labels.shape[1])
        assert shape in batches.shapes


def test_packed_batches_have_one_shape_and_several_pairs_a_row(start):
    batches = start({"packing": True, "shuffle_buffer_batches": 20})
    [shape] = batches.shapes
    taken = take(batches, 40)
    for batch in taken:
        assert (*batch.source.ids.shape, batch.labels.shape[1]) == shape
        segments_b = batch.source.segments.max(axis=1)
        assert (segments_b == batch.inputs.segments.max(axis=1)).all()
    segments = np.concatenate([batch.source.segments.max(axis=1) for batch in taken])
    assert np.mean(segments[segments > 0]) > 1.2
    assert np.mean([batch.source.valid for batch in taken]) > 0.7


@pytest.mark.parametrize("packing", [False, True])
@pytest.mark.parametrize("stop", [0, 1, 2, 7, 23, 41])
def test_resuming_at_any_batch_gives_the_batches_of_the_unbroken_run(
    start, packing, stop
):
    unbroken = take(start({"packing": packing}), stop + 30)
    first = start({"packing": packing})
    take(first, stop)
    state = json.loads(json.dumps(first.get_state()))
    second = start({"packing": packing})
    take(second, 5)  # wherever it is
    second.set_state(state)
    assert second.get_state() == state
    for expected, resumed in zip(unbroken[stop:], take(second, 30), strict=True):
        assert same(expected, resumed)


@pytest.mark.parametrize("packing", [False, True])
def test_the_latest_batch_is_named_pair_by_pair(start, tokenizers, packing):
    """Pair i is "ni ...", on line i + 1; also from a stored position, on each host."""
    whole, again, *hosts = (
        start({"packing": packing}, process_index=n, process_count=count)
        for n, count in ((0, 1), (0, 1), (0, 2), (1, 2))
    )
    assert whole.describe_last() == []
    for number in range(60):  # over several windows and epochs
        batch, state = next(whole), whole.get_state()
        lines = [int(piece[1:]) + 1 for piece in numbers(batch, tokenizers)]
        expected = [f"numbered, line {line}" for line in lines]
        named = []
        for host in hosts:
            next(host)
            named += host.describe_last()
        if number % 7 == 0:
            assert named == whole.describe_last() == expected
            assert whole.get_state() == state
            again.set_state(json.loads(json.dumps(state)))
            assert again.describe_last() == expected
    assert same(next(whole), next(start_at(again, state)))


def start_at(batches, state):
    batches.set_state(state)
    return batches


def test_a_position_of_another_planning_begins_its_window_anew(start, caplog):
    """Positions of version 0.1 have no number of their planning."""
    batches = start()
    take(batches, 30)
    state = batches.get_state()
    position = {**state["position"]}
    del position["planning"]
    batches.set_state({**state, "position": position})
    assert "another way" in caplog.text
    assert batches.get_state()["position"] == {**state["position"], "emitted": 0}


def test_looking_at_the_state_changes_nothing(start):
    looked_at, left_alone = start(), start()
    for expected in take(left_alone, 30):
        looked_at.get_state()
        assert same(expected, next(looked_at))


def test_seeds_and_epochs_give_other_orders(start, make_corpus):
    """In grain, epoch e of seed s is epoch 0 of seed s + e: ours must not be."""

    def orders(seed):
        # A shape for all pairs and a window of an epoch leave the shuffle as it is.
        fields = {"bucket_lengths": (13,), "shuffle_buffer_batches": 100}
        data = make_corpus(97)
        pair = train_tokenizers(data, TokenizerConfig(kind="word", vocab_size=500))
        epochs = epochs_of(
            start(fields, seed=seed, data=data, pair=pair), pair, data, 3
        )
        return [tuple(sorted(map(tuple, epoch))) for epoch in epochs]

    first = [order for seed in range(4) for order in orders(seed)]
    assert len(set(first)) == 4 * 3
    assert orders(0) == first[:3]


@pytest.mark.parametrize("packing", [False, True])
def test_hosts_share_the_rows_of_the_same_batches(start, packing):
    fields = {"packing": packing, "rows_multiple": 4}
    whole = take(start(fields), 12)
    shares = [
        take(start(fields, process_index=host, process_count=2), 12) for host in (0, 1)
    ]
    for batch, first, second in zip(whole, *shares, strict=True):
        for whole_array, *parts in zip(
            *(leaves(each) for each in (batch, first, second)), strict=True
        ):
            assert parts[0].shape == parts[1].shape
            assert (np.concatenate(parts) == whole_array).all()


def leaves(batch):
    tokens = [array for side in (batch.source, batch.inputs) for array in side]
    arrays = [*tokens, batch.labels, batch.weights]
    return [array for array in arrays if array is not None]


def test_a_state_holds_for_another_number_of_hosts(start):
    fields = {"rows_multiple": 4}
    single = start(fields)
    take(single, 9)
    double = start(fields, process_index=1, process_count=2)
    double.set_state(single.get_state())
    assert (next(double).labels == np.split(next(single).labels, 2)[1]).all()


def test_hosts_that_cannot_share_rows_are_refused(start):
    with pytest.raises(ValueError, match="3 hosts cannot share .* got 2"):
        start(process_count=3)


def test_long_and_empty_pairs_are_left_out_and_counted(start, tokenizers, caplog):
    source = ["n1 a", "", "n3 a", "n4", "n5 " + "a " * 12, "n6 " + "a " * 11]
    target = ["n1 b", "n2", "", "n4 " + "b " * 30, "n5", "n6"]
    data = ParallelCorpus(source, target, "mixed")
    with caplog.at_level(logging.INFO, "attnjax"):
        batches = start(data=data)
        seen = {name for b in take(batches, 6) for name in numbers(b, tokenizers)}
    assert seen == {"n1", "n6"}  # n6 has 13 tokens with its end, as many as the limit
    assert (
        "4 of 6 training pairs read in this epoch (66.7 %) are not"
        in caplog.messages[0]
    )
    epochs = batches.get_state()["position"]["start"] // 6
    assert epochs <= len(caplog.messages)


def test_windows_of_an_epoch_are_counted_together(start, make_corpus, caplog):
    data = make_corpus(97)
    with caplog.at_level(logging.INFO, "attnjax"):
        batches = start(
            {"bucket_lengths": (5, 8), "shuffle_buffer_batches": 1}, data=data
        )
        while batches.get_state()["position"]["start"] < 2 * 97:
            next(batches)
    too_long = sum(i * 7 % 11 > 6 or i * 5 % 11 > 6 for i in range(97))
    epochs = [m for m in caplog.messages if f"{too_long} of 97 training pairs" in m]
    assert len(epochs) >= 2


def test_no_usable_pair_is_an_error(start):
    data = ParallelCorpus(["", "n1 " + "a " * 50], ["n2", "n1"], "useless")
    with pytest.raises(ValueError, match="useless: of 2 .* none can be used"):
        start(data=data)


def test_another_corpus_or_vocabulary_or_batching_is_refused(
    start, make_corpus, corpus
):
    state = start().get_state()
    others = {
        "corpus": start(data=make_corpus(96)),
        "seed": start(seed=1),
        "batching": start({"tokens_per_batch": 78}),
        "vocabulary": start(
            pair=train_tokenizers(corpus, TokenizerConfig(kind="word", vocab_size=90))
        ),
    }
    for part, other in others.items():
        with pytest.raises(ValueError, match=rf"cannot resume .*data\.{part}: .* -> "):
            other.set_state(state)


def test_a_corpus_read_on_demand_gives_the_same_batches(start, monkeypatch):
    expected = take(start(), 10)
    monkeypatch.setattr(encoded, "_MOST_PAIRS_IN_MEMORY", 0)
    on_demand = take(start(), 10)
    assert all(same(*pair) for pair in zip(expected, on_demand, strict=True))


def test_errors_of_the_thread_reach_the_reader(start, tokenizers, corpus):
    class Fails(list):
        def __getitem__(self, index):
            if index == 50:
                raise OSError("disk gone")
            return super().__getitem__(index)

    data = ParallelCorpus(Fails(corpus.source), corpus.target, "failing")
    with pytest.raises(OSError, match="disk gone"):
        take(start(data=data), 100)


def test_sixteen_shapes_leave_little_padding(tokenizers):
    from attnjax.data.cldr import generate_cldr

    source = CLDRSource(train_pairs=4_000, valid_pairs=1, test_pairs=1)
    train = generate_cldr(source, "de", "en")[0]
    pair = train_tokenizers(train, TokenizerConfig(vocab_size=1_000))
    with_end = training_batches(train, pair, DataConfig(source=source), seed=0)
    batches = take(with_end, 60)
    with_end.close()
    real = sum(batch.weights.sum() for batch in batches)
    padded = sum(batch.weights.size for batch in batches)
    assert real / padded > 0.78  # the last batches of two epochs included
