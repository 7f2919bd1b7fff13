"""Minimum length, repeated n-grams and forced beginnings, in every search."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnjax.decoding.beam import BeamSettings, beam_search
from attnjax.decoding.constraints import Constraints
from attnjax.decoding.greedy import greedy_search
from attnjax.decoding.hypotheses import SpecialTokens
from attnjax.decoding.sampling import SamplingSettings, sample_outputs

PAD, BOS, EOS = 0, 1, 2
LIMIT = 7
PREFIX = [[4, 5], [3, PAD]]
SEARCHES = ["greedy", "beam", "sampling"]


@functools.partial(jax.jit, static_argnames=("toy", "kind", "min_tokens", "order"))
def run(toy, kind, state, prefix=None, min_tokens=0, order=0):
    constraints = Constraints(
        min_tokens=min_tokens, no_repeat_ngram=order, prefix=prefix
    )
    given = toy.step, state, jnp.array([LIMIT, LIMIT - 1])
    common = {"special": toy.special, "constraints": constraints}
    if kind == "greedy":
        return greedy_search(*given, max_tokens=LIMIT, **common)
    if kind == "beam":
        settings = BeamSettings(beam_size=3, n_best=3)
        return beam_search(*given, max_tokens=LIMIT, settings=settings, **common)
    rngs = jax.random.split(jax.random.key(0), 2)
    settings = SamplingSettings(max_tokens=LIMIT, num_samples=3)
    return sample_outputs(*given, rngs, settings=settings, **common)


def outputs(found):
    """Per row, the hypotheses that are there, as lists."""
    return [
        [
            tokens[:length].tolist()
            for tokens, length in zip(*row, strict=True)
            if length
        ]
        for row in zip(np.asarray(found.tokens), found.lengths.tolist(), strict=True)
    ]


@pytest.fixture(scope="module", params=SEARCHES)
def kind(request):
    return request.param


def log_probabilities_are_the_models(model, found):
    for row, hypotheses in enumerate(outputs(found)):
        for place, tokens in enumerate(hypotheses):
            np.testing.assert_allclose(
                found.log_probabilities[row, place],
                model.log_probability(row, tokens),
                rtol=1e-5,
                atol=1e-5,
            )


def test_outputs_have_the_least_length(random_toy, toy, kind):
    model = random_toy(3, end=4.0)  # a model that likes to end at once
    assert min(len(x) for row in outputs(run(toy, kind, model.state)) for x in row) < 4
    found = run(toy, kind, model.state, min_tokens=4)
    assert min(len(x) for row in outputs(found) for x in row) == 4
    log_probabilities_are_the_models(model, found)


@pytest.mark.parametrize("order", [1, 2, 3])
def test_no_ngram_occurs_twice(random_toy, toy, kind, order):
    model = random_toy(5, classes=5, end=-9.0)  # two words: repeats are sure to come
    table = model.table.copy()
    table[:, :, 3] += 2.0
    model = toy(table)

    def repeats(found):
        return sum(
            len(grams) - len(set(grams))
            for row in outputs(found)
            for tokens in row
            for grams in [list(zip(*(tokens[i:] for i in range(order)), strict=False))]
        )

    assert repeats(run(toy, kind, model.state)) > 0
    found = run(toy, kind, model.state, order=order)
    assert repeats(found) == 0
    log_probabilities_are_the_models(model, found)


@pytest.mark.parametrize("order", [1, 2, 3])
def test_repeats_and_nothing_else_are_forbidden(order):
    # Where padding is also </s>, places that are not filled yet must forbid nothing.
    special = SpecialTokens(pad_id=EOS, bos_id=BOS, eos_id=EOS)
    drawn = np.random.default_rng(0).integers(3, 5, (20, LIMIT))
    choosable = jax.jit(
        lambda tokens, position: Constraints(no_repeat_ngram=order).choosable(
            jnp.zeros((20, 5)), tokens, position, special
        )
    )
    for position in range(LIMIT):
        tokens = np.where(np.arange(LIMIT)[None, :] < position, drawn, EOS)
        forbidden = np.isneginf(choosable(tokens, position))
        for row, written in enumerate(drawn[:, :position].tolist()):
            last = written[position - order + 1 :]
            expected = {
                written[start + order - 1]
                for start in range(position - order + 1)
                if written[start : start + order - 1] == last
            }
            assert set(np.flatnonzero(forbidden[row])) == expected


def test_outputs_begin_with_their_prefix(random_toy, toy, kind):
    model = random_toy(1, end=3.0)
    found = run(toy, kind, model.state, jnp.array(PREFIX))
    for prefix, hypotheses in zip([[4, 5], [3]], outputs(found), strict=True):
        assert hypotheses
        for tokens in hypotheses:
            assert tokens[: len(prefix)] == prefix
    log_probabilities_are_the_models(model, found)


def test_after_the_prefix_the_search_is_free(random_toy, toy, reference):
    model = random_toy(1, end=0.0)
    found = run(toy, "greedy", model.state, jnp.array(PREFIX))
    for row, prefix in enumerate([[4, 5], [3]]):
        tokens = list(prefix)
        while len(tokens) < LIMIT - row and EOS not in tokens:
            following = model.next(row, tokens).copy()
            following[[PAD, BOS]] = -np.inf
            tokens.append(int(np.argmax(following)))
        assert outputs(found)[row] == [tokens]


def test_a_prefix_may_repeat_itself(random_toy, toy):
    prefix = jnp.array([[4, 4], [3, 3]])
    found = run(toy, "greedy", random_toy(1).state, prefix, order=1)
    assert [row[0][:2] for row in outputs(found)] == prefix.tolist()


def test_a_dead_end_is_unfinished(scripted_toy, toy, kind):
    # Only 3 is possible, and it may not come twice.
    model = scripted_toy({(): {3: 1.0}, (3,): {3: 1.0}})
    state = jax.tree.map(lambda leaf: jnp.repeat(leaf, 2, axis=0), model.state)
    found = run(toy, kind, state, order=1)
    assert not found.finished.any()
    assert not np.isnan(np.asarray(found.scores)).any()
    if kind != "beam":
        assert {tuple(x) for row in outputs(found) for x in row} == {(3,)}


def test_an_empty_prefix_changes_nothing(random_toy, toy, kind):
    model = random_toy(2)
    free = run(toy, kind, model.state)
    forced = run(toy, kind, model.state, jnp.full((2, 3), PAD))
    np.testing.assert_array_equal(free.tokens, forced.tokens)
    np.testing.assert_array_equal(free.scores, forced.scores)


@pytest.mark.parametrize("name", ["min_tokens", "no_repeat_ngram"])
def test_negative_constraints_are_refused(name):
    with pytest.raises(ValueError, match=f"{name} must be 0 or more"):
        Constraints(**{name: -1})
