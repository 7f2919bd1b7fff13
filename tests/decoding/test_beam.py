"""Beam search against enumeration and against a plain search that never ends early."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnjax.decoding.beam import BeamSettings, beam_search, repeat_for_beams
from attnjax.decoding.greedy import greedy_search
from attnjax.decoding.hypotheses import SpecialTokens
from attnjax.decoding.ranking import length_penalty

PAD, BOS, EOS = 0, 1, 2
LIMIT = 5
SEEDS = st.integers(0, 2**32 - 1)
ENDS = st.sampled_from([-2.0, 0.0, 2.0])


@pytest.fixture(scope="module")
def search(toy):
    """One compiled search per setting: ``search(state, limits, beam_size=3, ...)``."""

    @functools.partial(jax.jit, static_argnames=("beam_size", "alpha", "n_best"))
    def run(state, limits, *, beam_size=3, alpha=0.6, n_best=3):
        return beam_search(
            toy.step,
            state,
            limits,
            special=toy.special,
            max_tokens=LIMIT,
            settings=BeamSettings(
                beam_size=beam_size, length_penalty=alpha, n_best=n_best
            ),
        )

    return run


@pytest.fixture(scope="module")
def greedy_of_toy(toy):
    return jax.jit(
        functools.partial(
            greedy_search, toy.step, special=toy.special, max_tokens=LIMIT
        )
    )


def _rows(found):
    """Per row: the lists of (tokens, score, finished) that are present."""
    return [
        [
            (tuple(tokens[:length].tolist()), float(score), bool(finished))
            for tokens, length, score, finished in zip(*row, strict=True)
            if not np.isneginf(score)
        ]
        for row in zip(
            *map(
                np.asarray,
                (found.tokens, found.lengths, found.scores, found.finished),
            ),
            strict=True,
        )
    ]


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    seed=SEEDS,
    end=ENDS,
    limits=st.tuples(st.integers(1, LIMIT), st.integers(1, LIMIT + 1)),
)
@pytest.mark.parametrize("alpha", [0.0, 0.6, 2.0])
def test_equals_a_plain_search_without_early_end(
    search, random_toy, reference, alpha, seed, end, limits
):
    model = random_toy(seed, end=end)
    rows = _rows(search(model.state, jnp.array(limits), alpha=alpha))
    for row, limit in enumerate(limits):
        limit = min(limit, LIMIT)
        finished, unfinished = reference.beam(model, row, limit, 3, alpha)
        expected = [(*entry, True) for entry in finished]
        expected += [(*entry, False) for entry in unfinished]
        assert len(rows[row]) == 3
        for (tokens, score, ended), (expected_score, *facts) in zip(
            rows[row], expected, strict=False
        ):
            assert [tokens, ended] == facts
            np.testing.assert_allclose(score, expected_score, rtol=1e-5, atol=1e-5)


@settings(max_examples=10, deadline=None, derandomize=True)
@given(seed=SEEDS)
def test_a_wide_beam_is_exhaustive_on_three_words(search, random_toy, reference, seed):
    model = random_toy(seed, classes=6)
    # 27 prefixes live at the last step, each with 4 extensions.
    found = search(model.state, jnp.array([4, 3]), beam_size=108, n_best=40)
    for row, limit, count in zip(_rows(found), (4, 3), (40, 13), strict=True):
        index = 0 if limit == 4 else 1
        expected = reference.exhaustive(model, index, limit, 0.6)
        finished = [(tokens, score) for tokens, score, ended in row if ended]
        assert len(expected) == len(finished) == count
        assert [tokens for tokens, _ in finished] == [entry[1] for entry in expected]
        np.testing.assert_allclose(
            [score for _, score in finished],
            [score for score, _ in expected],
            rtol=1e-5,
        )


@settings(max_examples=10, deadline=None, derandomize=True)
@given(seed=SEEDS, end=ENDS)
def test_one_beam_is_greedy_search(search, greedy_of_toy, random_toy, seed, end):
    model = random_toy(seed, end=end)
    limits = jnp.array([LIMIT, 3])
    found = search(model.state, limits, beam_size=1, n_best=1)
    greedy = greedy_of_toy(model.state, limits)
    np.testing.assert_array_equal(found.tokens, greedy.tokens)
    np.testing.assert_array_equal(found.finished, greedy.finished)
    np.testing.assert_allclose(
        found.scores,
        greedy.log_probabilities / ((5 + greedy.lengths) / 6) ** 0.6,
        rtol=1e-6,
    )


@settings(max_examples=10, deadline=None, derandomize=True)
@given(seed=SEEDS, end=ENDS)
def test_the_best_does_not_depend_on_how_many_are_asked_for(
    search, random_toy, seed, end
):
    model = random_toy(seed, end=end)
    limits = jnp.array([LIMIT, LIMIT])
    most = _rows(search(model.state, limits, beam_size=4, alpha=1.0, n_best=4))
    for n_best in (1, 2):
        fewer = _rows(
            search(model.state, limits, beam_size=4, alpha=1.0, n_best=n_best)
        )
        assert fewer == [row[:n_best] for row in most]


@settings(max_examples=15, deadline=None, derandomize=True)
@given(seed=SEEDS, end=ENDS)
def test_hypotheses_are_distinct_sorted_and_end_once(search, random_toy, seed, end):
    model = random_toy(seed, end=end)
    found = search(model.state, jnp.array([LIMIT, 2]), beam_size=4, alpha=1.0, n_best=4)
    tokens, lengths = np.asarray(found.tokens), np.asarray(found.lengths)
    for row in range(2):
        outputs = [
            tuple(tokens[row, rank, : lengths[row, rank]].tolist()) for rank in range(4)
        ]
        assert len(set(outputs)) == 4
        for rank, output in enumerate(outputs):
            assert output.count(EOS) == found.finished[row, rank]
            assert (output[-1] == EOS) == found.finished[row, rank]
            assert not {PAD, BOS} & set(output)
            assert np.all(tokens[row, rank, len(output) :] == PAD)
            np.testing.assert_allclose(
                found.log_probabilities[row, rank],
                model.log_probability(row, output),
                rtol=1e-5,
            )
        for group in (found.finished[row], ~found.finished[row]):
            assert np.all(np.diff(np.asarray(found.scores[row])[np.asarray(group)]) < 0)


def test_goes_on_while_a_longer_output_can_win(scripted_toy, search):
    # joeynmt#148: (3, </s>) at -1.0 is finished long before 4 words at -1.2.
    rest = 1 - np.exp(-1.0) - np.exp(-1.2)
    model = scripted_toy(
        {
            (): {3: np.exp(-1.0), 4: np.exp(-1.2), 5: rest / 2, 6: rest / 2},
            (4,): {4: 1.0},
            (4, 4): {4: 1.0},
            (4, 4, 4): {4: 1.0},
        },
        classes=7,
    )
    found = search(model.state, jnp.array([LIMIT]))
    assert found.tokens[0, 0].tolist() == [4, 4, 4, 4, EOS]
    np.testing.assert_allclose(found.scores[0, 0], -1.2 / (10 / 6) ** 0.6, rtol=1e-6)
    np.testing.assert_allclose(found.log_probabilities[0, 0], -1.2, rtol=1e-6)


def test_stops_when_no_longer_output_can_win(scripted_toy, count_steps):
    # After </s> at p = 0.9 the rest, at 0.1, could reach -2.3 / 1.5 at the very best.
    step, calls = count_steps(
        (model := scripted_toy({(): {EOS: 0.9, 3: 0.1}, (3,): {3: 1.0}})).step
    )
    found = beam_search(
        step,
        model.state,
        jnp.array([13]),
        special=model.special,
        max_tokens=13,
        settings=BeamSettings(beam_size=2, length_penalty=1.0),
    )
    jax.block_until_ready(found)
    jax.effects_barrier()
    assert found.tokens[0, 0, :2].tolist() == [EOS, PAD]
    assert len(calls) == 1


def test_length_counts_the_end_and_not_the_start(scripted_toy, search):
    # sockeye#483: tokens [4, 5, </s>] of log-probability -3.
    third = np.exp(-1.0)
    model = scripted_toy(
        {
            (): {4: third, 3: 1 - third},
            (3,): {},
            (4,): {5: third, 3: 1 - third},
            (4, 3): {},
            (4, 5): {EOS: third, 3: 1 - third},
            (4, 5, 3): {},
        },
        classes=7,
    )
    found = search(model.state, jnp.array([LIMIT]))
    assert found.tokens[0, 0].tolist() == [4, 5, EOS, PAD, PAD]
    assert found.lengths[0, 0] == 3
    np.testing.assert_allclose(found.log_probabilities[0, 0], -3.0, rtol=1e-6)
    np.testing.assert_allclose(found.scores[0, 0], -3.0 / (8 / 6) ** 0.6, rtol=1e-6)


def test_ends_in_every_beam_leave_every_beam_alive(scripted_toy, search):
    # fairseq#555: </s> is best for both beams at the second step.
    model = scripted_toy(
        {
            (): {3: 0.5, 4: 0.5},
            (3,): {EOS: 0.6, 3: 0.4},
            (4,): {EOS: 0.6, 4: 0.4},
            (3, 3): {3: 1.0},
            (4, 4): {4: 1.0},
            (3, 3, 3): {3: 1.0},
            (4, 4, 4): {4: 1.0},
        },
        classes=7,
    )
    found = search(model.state, jnp.array([LIMIT]), beam_size=2, alpha=2.0, n_best=2)
    assert {output for output, *_ in _rows(found)[0]} == {
        (3, 3, 3, 3, EOS),
        (4, 4, 4, 4, EOS),
    }


def test_a_model_that_never_ends_gives_flagged_results(random_toy, search):
    model = random_toy(0, end=-np.inf)
    found = search(model.state, jnp.array([LIMIT, 3]))
    assert not found.finished.any()
    assert found.lengths.tolist() == [[LIMIT] * 3, [3] * 3]
    assert np.isfinite(found.scores).all()
    assert not np.isin(np.asarray(found.tokens[0]), [PAD, BOS, EOS]).any()


def test_finished_outputs_come_before_better_unfinished_ones(scripted_toy, search):
    model = scripted_toy(
        {
            (): {3: 0.99, EOS: 0.01},
            (3,): {3: 1.0},
            (3, 3): {3: 1.0},
            (3, 3, 3): {3: 1.0},
            (3, 3, 3, 3): {3: 1.0},
        },
        classes=7,
    )
    found = search(model.state, jnp.array([LIMIT]))
    assert [(output, ended) for output, _, ended in _rows(found)[0]] == [
        ((EOS,), True),
        ((3,) * LIMIT, False),
    ]
    assert found.lengths[0].tolist() == [1, LIMIT, 0]
    assert found.tokens[0, 2].tolist() == [PAD] * LIMIT
    assert not np.isnan(np.asarray(found.log_probabilities)).any()


def test_limit_zero_stays_empty(random_toy, search):
    found = search(random_toy(0).state, jnp.array([0, LIMIT]))
    assert found.lengths[0].tolist() == [0, 0, 0]
    assert np.all(np.asarray(found.tokens[0]) == PAD)
    assert found.lengths[1, 0] > 0
    assert not found.finished[0].any()


def test_a_row_alone_equals_itself_in_a_batch_of_any_order(random_toy, toy, search):
    model, limits = random_toy(7, end=1.0), [LIMIT, 3]
    together = _rows(search(model.state, jnp.array(limits)))
    turned = _rows(search(toy(model.table[::-1]).state, jnp.array(limits[::-1])))
    assert turned == together[::-1]
    for row, limit in enumerate(limits):
        alone = search(toy(model.table[row : row + 1]).state, jnp.array([limit]))
        assert _rows(alone) == [together[row]]


def test_a_start_token_that_is_also_the_end_can_be_generated(random_toy):
    # fairseq starts with </s>; the toy model does not look at ids.
    model = random_toy(0, end=2.0)
    found = beam_search(
        model.step,
        model.state,
        jnp.array([LIMIT, LIMIT]),
        special=SpecialTokens(pad_id=PAD, bos_id=EOS, eos_id=EOS),
        max_tokens=LIMIT,
        settings=BeamSettings(beam_size=2, n_best=2),
    )
    assert found.finished.any()
    assert not np.isnan(np.asarray(found.scores)).any()


def test_compiles_once_per_shape(random_toy):
    traces = []

    @jax.jit
    def search(state, limits):
        traces.append(limits.shape)
        model = random_toy(0)
        return beam_search(
            model.step,
            state,
            limits,
            special=model.special,
            max_tokens=LIMIT,
            settings=BeamSettings(beam_size=2),
        )

    for seed in range(3):
        search(random_toy(seed).state, jnp.array([seed, LIMIT]))
    assert traces == [(2,)]


def test_length_penalty_is_the_one_of_wu_et_al():
    np.testing.assert_allclose(
        length_penalty(jnp.array([1, 7, 25]), 0.6), [1.0, 2**0.6, 5**0.6], rtol=1e-6
    )
    assert length_penalty(jnp.array(25), 0.0) == 1.0


def test_repeat_for_beams_keeps_the_beams_of_a_row_together():
    repeated = repeat_for_beams({"rows": jnp.arange(6).reshape(2, 3)}, 2)
    assert repeated["rows"].tolist() == [[0, 1, 2], [0, 1, 2], [3, 4, 5], [3, 4, 5]]


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"beam_size": 0}, "beam_size=0"),
        ({"beam_size": 2, "n_best": 3}, "n_best=3"),
        ({"n_best": 0}, "n_best=0"),
        ({"length_penalty": -0.1}, "length_penalty"),
    ],
)
def test_impossible_settings_are_refused(fields, named):
    with pytest.raises(ValueError, match=named):
        BeamSettings(**fields)
