"""What is remembered of attention follows the beam; coverage ranks."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnjax.decoding.beam import BeamSettings, beam_search
from attnjax.decoding.ranking import coverage_penalty, length_penalty
from attnjax.decoding.sampling import SamplingSettings, sample_outputs
from attnjax.decoding.tracing import begin_trace, coverage_bonus, traced_step

EOS = 2
LIMIT, SHORT = 5, 3
NUM_SOURCES = 3
VALID = jnp.array([[True, True, True], [True, True, False]])


def look(context):
    """Attention that is a function of all that was read, zero on padding."""
    weights = jnp.stack([context % 5 + 1, context % 7 + 1, context % 3 + 1], axis=-1)
    return weights / weights.sum(-1, keepdims=True)


def attending(step):
    def stepped(state, tokens):
        logits, (table, context) = step(state, tokens)
        return logits, (table, context), look(context)

    return stepped


def expected_attention(tokens):
    """The same by a Python loop over the tokens that were read."""
    context, rows = 0, []
    for token in (1, *tokens[:-1]):
        context = (context * 31 + token + 1) % 257
        rows.append(np.asarray(look(jnp.array(context))))
    return np.stack(rows)


@pytest.fixture(scope="module", params=[1, 3])
def found(request, random_toy, toy):
    """Rows of different limits, so that one stops before the other."""
    model = random_toy(11, end=-0.5)

    @jax.jit
    def search(state):
        settings = BeamSettings(
            beam_size=request.param,
            n_best=request.param,
            bonus=coverage_bonus(0.3),
            trace=lambda state: state.history,
        )
        return beam_search(
            traced_step(attending(toy.step)),
            begin_trace(state, VALID, LIMIT),
            jnp.array([LIMIT, SHORT]),
            special=toy.special,
            max_tokens=LIMIT,
            settings=settings,
        )

    return search(model.state)


def each(found):
    for row in range(2):
        for place, length in enumerate(found.lengths[row].tolist()):
            if length:
                yield row, place, found.tokens[row, place, :length].tolist()


def test_the_history_is_that_of_the_hypothesis(found):
    histories = np.asarray(found.trace)
    for row, place, tokens in each(found):
        np.testing.assert_allclose(
            histories[row, place, : len(tokens)], expected_attention(tokens), rtol=1e-6
        )


def test_a_row_that_stopped_stays(found):
    tokens, lengths = np.asarray(found.tokens[1]), np.asarray(found.lengths[1])
    assert (lengths <= SHORT).all()
    assert (tokens[:, SHORT:] == 0).all()
    assert not np.asarray(found.finished[1]).all()  # what was live is shown too


def test_scores_hold_the_coverage_of_the_hypothesis(found):
    for row, place, tokens in each(found):
        coverage = expected_attention(tokens).sum(0)
        bonus = coverage_penalty(jnp.array(coverage), VALID[row], 0.3)
        rank = found.log_probabilities[row, place] / length_penalty(len(tokens), 0.6)
        np.testing.assert_allclose(found.scores[row, place], rank + bonus, rtol=1e-5)


def test_a_sample_keeps_the_coverage_it_ended_with(random_toy, toy):
    settings = SamplingSettings(
        max_tokens=LIMIT, num_samples=3, trace=lambda state: state.coverage
    )
    found = jax.jit(
        lambda state: sample_outputs(
            traced_step(attending(toy.step)),
            begin_trace(state, VALID),
            jnp.array([LIMIT, SHORT]),
            jax.random.split(jax.random.key(0), 2),
            special=toy.special,
            settings=settings,
        )
    )(random_toy(11, end=-1.0).state)
    assert len(set(found.lengths[0].tolist())) > 1
    for row, place, tokens in each(found):
        coverage = expected_attention(tokens).sum(0)
        np.testing.assert_allclose(found.trace[row, place], coverage, rtol=1e-5)


def test_coverage_is_that_of_wu_et_al():
    valid = jnp.array([True, True, True, False])
    found = coverage_penalty(jnp.array([0.5, 2.0, 1.0, 0.0]), valid, 0.2)
    np.testing.assert_allclose(found, 0.2 * np.log(0.5), rtol=1e-6)
    nothing = coverage_penalty(jnp.zeros(4), valid, 0.2)
    np.testing.assert_allclose(nothing, 0.2 * 3 * np.log(1e-4), rtol=1e-6)


@functools.partial(jax.jit, static_argnames="toy")
def first_token_of_best(toy, state, beta):
    """Of a model that looks at its second source word once it has read a 4."""

    def step(state, tokens):
        logits, state = toy.step(state, tokens)
        second = jnp.where(tokens == 4, 1.0, 0.0)
        return logits, state, jnp.stack([1 - second, second], axis=-1)

    found = beam_search(
        traced_step(step),
        begin_trace(state, jnp.ones((1, 2), bool)),
        jnp.array([3]),
        special=toy.special,
        max_tokens=3,
        settings=BeamSettings(beam_size=2, bonus=coverage_bonus(beta)),
    )
    return found.tokens[0, 0, 0]


def test_coverage_changes_the_best(scripted_toy, toy):
    # The likelier output looks at the first source word only.
    model = scripted_toy({(): {3: 0.6, 4: 0.4}})
    assert first_token_of_best(toy, model.state, 0.0) == 3
    assert first_token_of_best(toy, model.state, 0.2) == 4


def test_goes_on_while_coverage_can_still_rise(scripted_toy, toy):
    # The output that ends at once is ahead until the other looks at the second word.
    model = scripted_toy({(): {EOS: 0.5, 4: 0.4, 3: 0.1}})
    assert first_token_of_best(toy, model.state, 0.0) == EOS
    assert first_token_of_best(toy, model.state, 0.2) == 4


def test_plain_length_penalty_is_a_mean_at_one():
    np.testing.assert_allclose(
        length_penalty(jnp.array([1, 4, 25]), 1.0, "plain"), [1.0, 4.0, 25.0]
    )
    np.testing.assert_allclose(
        length_penalty(jnp.array([4, 25]), 0.5, "plain"), [2.0, 5.0], rtol=1e-6
    )
