"""Toy language models, and searches over them that are slow and plainly right."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnjax.decoding.hypotheses import SpecialTokens

PAD, BOS, EOS = 0, 1, 2
CONTEXTS = 257  # a prime, so that nearly every history has logits of its own


def _next_context(context, token):
    return (context * 31 + token + 1) % CONTEXTS


def _step(state, tokens):
    """Logits by a hash of all that was read: a state that loses its beam shows."""
    table, context = state
    context = _next_context(context, tokens)
    return table[jnp.arange(len(tokens)), context], (table, context)


class ToyModel:
    """One table of logits ``[CONTEXTS, C]`` per row; the history picks the line."""

    special = SpecialTokens(pad_id=PAD, bos_id=BOS, eos_id=EOS)
    step = staticmethod(_step)

    def __init__(self, table):
        self.table = np.asarray(table, np.float32)
        logits = self.table.astype(np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            self.log_probabilities = logits - np.log(
                np.exp(logits).sum(-1, keepdims=True)
            )

    @property
    def state(self):
        return jnp.asarray(self.table), jnp.zeros(len(self.table), jnp.int32)

    def next(self, row, prefix):
        """Log-probabilities ``[C]`` after a prefix, in float64."""
        context = 0
        for token in (BOS, *prefix):
            context = _next_context(context, token)
        return self.log_probabilities[row, context]

    def log_probability(self, row, tokens):
        return sum(self.next(row, tokens[:i])[token] for i, token in enumerate(tokens))

    def words(self):
        return range(EOS + 1, self.table.shape[-1])


def _score(total, length, alpha):
    return total / ((5 + length) / 6) ** alpha


class Reference:
    """Searches written with Python lists, without any early end."""

    @staticmethod
    def greedy(model, row, limit):
        tokens = []
        while len(tokens) < limit and EOS not in tokens:
            log_probabilities = model.next(row, tokens).copy()
            log_probabilities[[PAD, BOS]] = -np.inf
            tokens.append(int(np.argmax(log_probabilities)))
        return tokens

    @staticmethod
    def exhaustive(model, row, limit, alpha):
        """Every output that ends within the limit, as falling (score, tokens)."""
        outputs = [
            (*words, EOS)
            for length in range(limit)
            for words in itertools.product(model.words(), repeat=length)
        ]
        scored = [
            (_score(model.log_probability(row, output), len(output), alpha), output)
            for output in outputs
        ]
        return sorted(scored, reverse=True)

    @staticmethod
    def beam(model, row, limit, beam_size, alpha):
        """Falling (score, tokens) of all that finished, then of what did not."""
        live, finished = [(0.0, ())], []
        for _ in range(limit):
            extended = [
                (total + model.next(row, prefix)[token], (*prefix, token))
                for total, prefix in live
                for token in (EOS, *model.words())
            ]
            extended.sort(key=lambda candidate: -candidate[0])
            finished += [
                (_score(total, len(tokens), alpha), tokens)
                for total, tokens in extended[:beam_size]
                if tokens[-1] == EOS
            ]
            live = [entry for entry in extended if entry[1][-1] != EOS][:beam_size]
        unfinished = [(_score(total, limit, alpha), tokens) for total, tokens in live]
        return sorted(finished, reverse=True), sorted(unfinished, reverse=True)


@pytest.fixture(scope="session")
def toy():
    return ToyModel


@pytest.fixture(scope="session")
def reference():
    return Reference


@pytest.fixture(scope="session")
def random_toy():
    """Makes a random model; a large ``scale`` is a sure one, ``end`` lifts ``</s>``."""

    def make(seed, *, batch=2, classes=7, scale=2.0, end=0.0):
        table = np.random.default_rng(seed).normal(size=(batch, CONTEXTS, classes))
        table *= scale
        table[:, :, EOS] += end
        return ToyModel(table)

    return make


@pytest.fixture(scope="session")
def scripted_toy():
    """Makes a one-row model from probabilities after given prefixes.

    ``{(): {3: 0.6, EOS: 0.4}, (3,): {...}}``; a token or prefix that is not named is
    impossible, or ends.
    """

    def make(script, classes=6):
        with np.errstate(divide="ignore"):
            table = np.full((1, CONTEXTS, classes), -np.inf)
            table[:, :, EOS] = 0.0
            for prefix, probabilities in script.items():
                context = 0
                for token in (BOS, *prefix):
                    context = _next_context(context, token)
                table[0, context] = -np.inf
                for token, probability in probabilities.items():
                    table[0, context, token] = np.log(probability)
        return ToyModel(table)

    return make


@pytest.fixture
def count_steps():
    """Wraps a step so that ``calls`` grows by one whenever it runs, also under jit."""

    def wrap(step):
        calls = []

        def counted(state, tokens):
            jax.debug.callback(lambda: calls.append(None))
            return step(state, tokens)

        return counted, calls

    return wrap
