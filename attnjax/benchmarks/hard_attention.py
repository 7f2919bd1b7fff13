"""Hard attention on a small task: what it learns, and how noisy its gradient is.

    python -m attnjax.benchmarks.hard_attention

Sentences of 2 to 6 words out of 6 are to be written backwards, by an additive GRU with
32 units. The tables go to ``docs/results/hard_attention.md``.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from attnjax.config import DecodingConfig, RNNConfig, TokenizerConfig
from attnjax.data.parallel import ParallelCorpus
from attnjax.data.tokenizers import train_tokenizers
from attnjax.fields import Options
from attnjax.models.rnn import RNNSeq2Seq
from attnjax.ops.attend import Dense
from attnjax.ops.hard import GumbelChoice, HardChoice
from attnjax.ops.reinforce import advantages, empty_baseline
from attnjax.tasks.translation import TranslationTask, ValidationSet
from attnjax.tasks.translator import Translator
from attnjax.terminal import run_command
from attnjax.training.losses import token_losses
from attnjax.training.state import TrainState, init_state
from attnjax.training.step import make_train_step
from attnjax.types import Array, PairBatch, PyTree, Tokens, Variables

WORDS, LONGEST = 6, 6
BOS, EOS, FIRST_WORD = 1, 2, 4
ROWS = 64  # sentences of an update

# The advantage of each position, from the costs of the tokens, weights and baseline.
Estimator = Callable[[Array, Array, Array], Array]


class Learned(NamedTuple):
    """A model after training.

    Attributes:
        variables: of the model.
        nll: of unseen sentences, nats a token, the best key being taken.
        accuracy: of the same, share of tokens.
    """

    variables: Variables
    nll: Array
    accuracy: Array


def task_of(selection: Options) -> TranslationTask:
    """The small model with a selection, as a task.

    Args:
        selection: how it attends.

    Returns:
        The task; it has nothing to validate on.
    """
    words = [" ".join("abcdef"[:WORDS])]
    tokenizers = train_tokenizers(
        ParallelCorpus(source=words, target=words, origin="six words"),
        TokenizerConfig(kind="word"),
    )
    config = RNNConfig(
        embedding_width=16,
        hidden_width=32,
        attention_width=32,
        dropout=0.0,
        selection=selection,
    )
    model = RNNSeq2Seq(config, tokenizers.source.size, tokenizers.target.size)
    return TranslationTask(
        Translator(model, tokenizers, DecodingConfig()),
        ValidationSet(),
        label_smoothing=0.0,
        tokens_per_batch=1,
    )


def reversal_batch(rng: Array, rows: int) -> PairBatch:
    """Random sentences, and the same words backwards.

    Args:
        rng: a PRNG key.
        rows: B.

    Returns:
        Sentences of up to 7 tokens.
    """
    word_rng, length_rng = jax.random.split(rng)
    words = jax.random.randint(
        word_rng, (rows, LONGEST), FIRST_WORD, FIRST_WORD + WORDS
    )
    length = jax.random.randint(length_rng, (rows, 1), 2, LONGEST + 1)
    position = jnp.arange(LONGEST + 1)[None]
    padded = jnp.pad(words, ((0, 0), (0, 1)))
    ends = jnp.where(position == length, EOS, 0)
    source = jnp.where(position < length, padded, ends)
    backwards = jnp.take_along_axis(padded, jnp.maximum(length - 1 - position, 0), 1)
    labels = jnp.where(position < length, backwards, ends)
    valid = position <= length
    inputs = jnp.pad(labels[:, :-1], ((0, 0), (1, 0)), constant_values=BOS)
    weights = valid.astype(jnp.float32)
    return PairBatch(Tokens(source, valid), Tokens(inputs, valid), labels, weights)


def learn(
    selection: Options,
    *,
    updates: int,
    with_baseline: bool = True,
    seed: int = 0,
) -> Learned:
    """Trains the small model with Adam.

    Args:
        selection: how it attends.
        updates: of 64 sentences each.
        with_baseline: whether REINFORCE compares a cost with the usual one.
        seed: of weights, sentences and draws.

    Returns:
        The model, and how well it does on 512 unseen sentences.
    """
    task = task_of(selection)
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(5e-3))
    step = make_train_step(task, optimizer)

    def update(state: TrainState, rng: Array) -> tuple[TrainState, Array]:
        if not with_baseline:
            model_state: dict[str, Any] = {"baseline": {"cost": empty_baseline()}}
            state = dataclasses.replace(state, model_state=model_state)
        state, metrics = step(state, reversal_batch(rng, ROWS))
        return state, metrics["nll"].total

    @jax.jit
    def run(rng: jax.Array) -> Learned:
        state = init_state(task, optimizer, seed)
        state, _ = jax.lax.scan(update, state, jax.random.split(rng, updates))
        unseen = reversal_batch(jax.random.fold_in(rng, updates), 512)
        metrics, _ = task.loss(state.variables, unseen, rng, train=False)
        nll, accuracy = (metrics[name] for name in ("nll", "accuracy"))
        return Learned(
            state.variables, nll.total / nll.count, accuracy.total / accuracy.count
        )

    return run(jax.random.key(seed))


def whole_sentence(costs: Array, weights: Array, baseline: Array) -> jax.Array:
    """The advantage as in Xu et al. 2015: that of the sentence, at every position.

    Args:
        costs: ``[B, T]`` of the tokens, in nats.
        weights: ``[B, T]``, 1 for tokens that count and 0 for padding.
        baseline: scalar, the usual cost of a token.

    Returns:
        ``[B, T]``.
    """
    total = jnp.sum((costs - baseline) * weights, axis=1, keepdims=True)
    return jnp.broadcast_to(total, costs.shape)


ESTIMATORS: dict[str, Estimator] = {
    "cost of the sentence": lambda c, w, b: whole_sentence(c, w, jnp.zeros_like(b)),
    "cost of the sentence - baseline": whole_sentence,
    "cost from here on": lambda c, w, b: advantages(c, w, jnp.zeros_like(b)),
    "cost from here on - baseline": advantages,
}


@functools.partial(jax.jit, static_argnames="draws")
def gradient_moments(variables: Variables, draws: int) -> tuple[Array, Array]:
    """Mean and variance of the gradient over draws of the keys, on 16 sentences.

    Args:
        variables: of a model with hard attention.
        draws: how many times all keys are drawn.

    Returns:
        For each of `ESTIMATORS`, the squared norm of the mean gradient and the total
        variance (both summed over all parameters).
    """

    def add(sums: tuple[PyTree, PyTree], rng: Array) -> tuple[PyTree, None]:
        gradients = _gradients_of_a_draw(variables, rng)
        total, squares = sums
        total = jax.tree.map(jnp.add, total, gradients)
        return (total, jax.tree.map(lambda s, g: s + g**2, squares, gradients)), None

    zeros = [jax.tree.map(jnp.zeros_like, variables["params"]) for _ in ESTIMATORS]
    rngs = jax.random.split(jax.random.key(200), draws)
    (total, squares), _ = jax.lax.scan(add, (zeros, zeros), rngs)
    squared_mean = jnp.stack(
        [_summed(jax.tree.map(lambda leaf: (leaf / draws) ** 2, t)) for t in total]
    )
    mean_square = jnp.stack([_summed(tree) / draws for tree in squares])
    return squared_mean, (mean_square - squared_mean) * draws / (draws - 1)


def _gradients_of_a_draw(variables: Variables, rng: Array) -> list[PyTree]:
    """The whole gradient (choices held fixed, and REINFORCE) by each estimator."""
    model: Any = task_of(HardChoice(soft_rate=0.0)).model
    batch = reversal_batch(jax.random.key(100), 16)
    weights = batch.weights

    def parts(params: PyTree):
        decoded = model.apply(
            {**variables, "params": params},
            *(batch.source, batch.inputs),
            train=True,
            rngs={"dropout": rng},
        )
        costs = token_losses(decoded.logits, batch.labels)
        return (jnp.sum(costs * weights), decoded.choices.log_probability), costs

    _, pull_back, costs = jax.vjp(parts, variables["params"], has_aux=True)
    baseline = variables["baseline"]["cost"].value
    count = jnp.sum(weights)
    gradients = []
    for estimator in ESTIMATORS.values():
        advantage = estimator(costs, weights, baseline) * weights
        (gradient,) = pull_back((1 / count, advantage / count))
        gradients.append(gradient)
    return gradients


def _summed(tree: PyTree) -> jax.Array:
    return jnp.stack([jnp.sum(leaf) for leaf in jax.tree.leaves(tree)]).sum()


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints both tables.

    Args:
        arguments: without the program's name; None means those of the process.
    """
    parser = argparse.ArgumentParser(description="Hard attention on a small task.")
    parser.add_argument("--updates", type=int, default=600)
    parser.add_argument("--draws", type=int, default=500)
    options = parser.parse_args(arguments)
    runs = {
        "soft": (Dense(), True),
        "hard, half of the sentences soft": (HardChoice(), True),
        "hard": (HardChoice(soft_rate=0.0), True),
        "hard, no baseline": (HardChoice(soft_rate=0.0), False),
        "hard, no entropy term": (HardChoice(soft_rate=0.0, entropy_weight=0.0), True),
        "gumbel": (GumbelChoice(), True),
    }
    print("| attention | nll, nats a token | accuracy |\n| --- | --- | --- |")
    for name, (selection, with_baseline) in runs.items():
        learned = learn(selection, updates=options.updates, with_baseline=with_baseline)
        print(f"| {name} | {learned.nll:.3f} | {learned.accuracy:.1%} |", flush=True)
    print("\n| updates | gradient by | total variance | its mean, squared |")
    print("| --- | --- | --- | --- |")
    for updates in (options.updates // 20, options.updates // 6, options.updates):
        variables = learn(HardChoice(soft_rate=0.0), updates=updates).variables
        moments = gradient_moments(variables, options.draws)
        for name, signal, variance in zip(ESTIMATORS, *moments, strict=True):
            print(f"| {updates} | {name} | {variance:.3g} | {signal:.3g} |", flush=True)


if __name__ == "__main__":
    sys.exit(run_command(main))
