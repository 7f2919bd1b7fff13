"""Windows at inference, and hard attention's gradient through a whole model."""

import dataclasses
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnjax.config import RNNConfig
from attnjax.fields import Options
from attnjax.layers.recurrent_decoder import RecurrentDecoder
from attnjax.models.rnn import RNNSeq2Seq
from attnjax.ops.attend import Dense
from attnjax.ops.hard import GumbelChoice, HardChoice
from attnjax.ops.selection import SELECTIONS
from attnjax.training.losses import token_losses
from attnjax.types import Tokens

B, T, S, C = 2, 3, 3, 7
SIZES = {"embedding_width": 5, "hidden_width": 6, "attention_width": 4, "dropout": 0.0}
HARD = HardChoice(soft_rate=0.0, entropy_weight=0.0)
QUERIES = {
    "previous": {"query": "previous"},
    "current": {"query": "current"},
    "feeding": {"query": "current", "input_feeding": True},
}
# What feeds its input reads with the current state too.
both_queries = pytest.mark.parametrize("query", ["previous", "feeding"])


def _config(selection: Options, **fields) -> RNNConfig:
    return RNNConfig(**{**SIZES, "selection": selection, **fields})


def _tokens(rows: int, length: int, seed: int) -> Tokens:
    ids = np.random.default_rng(seed).integers(4, C, size=(rows, length))
    return Tokens(ids.astype(np.int32), np.ones((rows, length), bool))


def _random_variables(model: RNNSeq2Seq, *tokens: Tokens):
    shapes = jax.eval_shape(
        lambda rng: model.init(rng, *tokens, train=False), jax.random.key(0)
    )
    rng = np.random.default_rng(1)
    params = jax.tree.map(
        lambda leaf: 0.6 * rng.normal(size=leaf.shape).astype(leaf.dtype),
        shapes["params"],
    )
    others = {name: leaf for name, leaf in shapes.items() if name != "params"}
    return {"params": params, **jax.tree.map(lambda leaf: np.float32(2.0), others)}


@functools.cache
def _step_flops(config: RNNConfig, num_keys: int) -> float:
    model = RNNSeq2Seq(config, C, C)
    source, inputs = _tokens(1, num_keys, 0), _tokens(1, 2, 1)
    variables = _random_variables(model, source, inputs)

    def begin(variables):
        encoded = model.apply(variables, source, train=False, method="encode")
        return model.apply(variables, encoded, 5, method="begin")

    def step(variables, constants, state):
        return model.apply(variables, constants, state, inputs.ids[:, 0], method="step")

    constants, state = jax.eval_shape(begin, variables)
    compiled = jax.jit(step).lower(variables, constants, state).compile()
    return compiled.cost_analysis()["flops"]


@both_queries
@pytest.mark.parametrize("kind", ["local_m", "local_p"])
def test_a_step_of_local_attention_costs_the_same_for_any_source(kind, query):
    local = _config(SELECTIONS.fill(kind, {"window": 2}), **QUERIES[query])
    soft = _config(Dense(), **QUERIES[query])
    added = _step_flops(local, 800) - _step_flops(local, 100)
    added_soft = _step_flops(soft, 800) - _step_flops(soft, 100)
    assert added_soft > 700 * 4
    assert added <= 700 * 2  # the lengths of the sentences are counted


@pytest.mark.parametrize("query", QUERIES)
def test_the_mean_estimate_is_the_gradient_of_the_expected_loss(query, monkeypatch):
    """All 27 choices of a sentence of three tokens over three source tokens."""
    config = dataclasses.replace(_config(HARD), **QUERIES[query])
    model = RNNSeq2Seq(config, C, C)
    source, inputs = _tokens(1, S, 0), _tokens(1, T, 1)
    labels = np.array([[5, 4, 6]])
    weights = np.array([[1.0, 1.0, 0.0]], np.float32)
    variables = _random_variables(model, source, inputs)
    baseline = {"baseline": variables["baseline"]}
    patterns = np.array(list(itertools.product(range(S), repeat=T)))
    wanted = 1e6 * np.eye(S, dtype=np.float32)[patterns][:, :, None]  # [27, T, B, S]

    def parts(params, noise):
        """Loss with the estimator's term, plain loss and log-probability."""
        monkeypatch.setattr(RecurrentDecoder, "choice_noise", lambda *_, **__: noise)
        decoded = model.apply(
            {"params": params, **baseline},
            *(source, inputs),
            train=True,
            rngs={"dropout": jax.random.key(0)},
        )
        costs = token_losses(decoded.logits, labels)
        added, _ = model.apply(
            {"params": params, **baseline},
            *(decoded.choices, jax.lax.stop_gradient(costs), weights),
            mutable=["baseline"],
            method="choice_loss",
        )
        loss = (costs * weights).sum()
        return loss + added, loss, decoded.choices.log_probability.sum()

    @jax.jit
    def both(params):
        def expected(params):
            _, losses, log_p = jax.vmap(lambda noise: parts(params, noise))(wanted)
            return (jnp.exp(log_p) * losses).sum(), jnp.exp(log_p)

        exact, probability = jax.grad(expected, has_aux=True)(params)
        estimates = jax.vmap(
            lambda noise: jax.grad(lambda params: parts(params, noise)[0])(params)
        )(wanted)
        mean = jax.tree.map(
            lambda leaf: jnp.tensordot(probability, leaf, axes=1), estimates
        )
        return exact, mean, probability

    exact, mean, probability = both(variables["params"])
    np.testing.assert_allclose(probability.sum(), 1.0, atol=1e-5)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-5), exact, mean)
    scorer = exact["decoder"]["attention"]["scorer"]
    assert max(np.abs(leaf).max() for leaf in jax.tree.leaves(scorer)) > 1e-3


def test_soft_sentences_are_those_of_soft_attention():
    source, inputs = _tokens(B, S, 0), _tokens(B, T, 1)
    rngs = {"dropout": jax.random.key(3)}

    def decode(selection):
        model = RNNSeq2Seq(_config(selection), C, C)
        variables = _random_variables(model, source, inputs)

        def total(params):
            decoded = model.apply(
                {**variables, "params": params},
                *(source, inputs),
                train=True,
                rngs=rngs,
            )
            return jnp.square(decoded.logits).sum(), decoded

        return jax.jit(jax.grad(total, has_aux=True))(variables["params"])

    gradient, decoded = decode(HardChoice(soft_rate=1.0))
    soft_gradient, soft = decode(Dense())
    np.testing.assert_allclose(decoded.logits, soft.logits, atol=1e-5)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=1e-3),
        gradient,
        soft_gradient,
    )
    np.testing.assert_array_equal(decoded.choices.log_probability, 0.0)
    assert (decoded.choices.entropy > 0).all()
    assert soft.choices is None


def test_half_of_the_sentences_are_soft():
    rows = 400
    source, inputs = _tokens(rows, S, 0), _tokens(rows, T, 1)
    model = RNNSeq2Seq(_config(HardChoice()), C, C)
    variables = _random_variables(model, source, inputs)
    decoded = jax.jit(
        lambda rng: model.apply(
            variables, source, inputs, train=True, rngs={"dropout": rng}
        )
    )(jax.random.key(0))
    weights = np.asarray(decoded.attention["decoder/cross"][:, 0])  # [rows, T, S]
    one_hot = (weights.max(-1) == 1.0).all(-1)
    assert 150 < one_hot.sum() < 250
    drawn = np.asarray(decoded.choices.log_probability) != 0
    np.testing.assert_array_equal(drawn.all(-1), one_hot)
    np.testing.assert_array_equal(drawn.any(-1), one_hot)
    assert len({tuple(row) for row in weights[one_hot].argmax(-1)}) > 10


@both_queries
@pytest.mark.parametrize("kind", ["top_k", "local_m", "local_p", "hard", "gumbel"])
def test_every_selection_computes_in_bfloat16(kind, query):
    selection = SELECTIONS.fill(kind, {"window": 1, "top_k": 2})
    config = _config(selection, cell="lstm", **QUERIES[query])
    model = RNNSeq2Seq(config, C, C, dtype=jnp.bfloat16)
    source, inputs = _tokens(B, 5, 0), _tokens(B, T, 1)
    variables = _random_variables(model, source, inputs)
    decoded = jax.eval_shape(
        lambda rng: model.apply(
            variables, source, inputs, train=True, rngs={"dropout": rng}
        ),
        jax.random.key(0),
    )
    assert decoded.logits.dtype == jnp.bfloat16
    assert decoded.attention["decoder/cross"].shape == (B, 1, T, 5)
    assert (decoded.choices is not None) == (kind == "hard")
    for leaf in jax.tree.leaves(decoded.choices):
        assert leaf.shape == (B, T)
        assert leaf.dtype == jnp.float32


def test_a_selection_needs_an_attention():
    with pytest.raises(ValueError, match="attention 'none' scores none"):
        RNNConfig(attention="none", selection=HardChoice())
    with pytest.raises(ValueError, match="temperature must be 1e-06 or more"):
        GumbelChoice(temperature=0.0)
    with pytest.raises(ValueError, match="soft_rate must be 0 or more and at most 1,"):
        HardChoice(soft_rate=1.5)
