"""Translation as a task: loss, metrics and validation of any `Seq2Seq` model.

The trainer sees an `attnjax.types.Task` and never the model; the task calls the model
through its linen methods alone.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from attnjax.config.decoding import READ_BY, DecodingConfig
from attnjax.data.batching import pair_batches
from attnjax.evaluation.bleu import bleu_tokenizer, corpus_scores
from attnjax.evaluation.lines import lines_fingerprint
from attnjax.tasks.compiled import compiled
from attnjax.tasks.translator import Translator
from attnjax.training.losses import cross_entropy, token_losses
from attnjax.types import Array, Metrics, PairBatch, Ratio, Tokens, Variables

_NO_MATTER_FOR_SCORES = ("n_best", "tokens_per_batch")


class ValidationSet(NamedTuple):
    """What validation during training looks at.

    Attributes:
        pairs: token ids of all pairs, for the loss.
        sources: the first source lines, which are translated.
        references: their references.
        target_language: chooses the tokenizer of BLEU.
    """

    pairs: Sequence[tuple[Sequence[int], Sequence[int]]] = ()
    sources: Sequence[str] = ()
    references: Sequence[str] = ()
    target_language: str = ""


class TranslationTask:
    """Implements `attnjax.types.Task` for sentence pairs."""

    unit = "target tokens"
    score = "bleu"

    def __init__(
        self,
        translator: Translator,
        validation: ValidationSet,
        *,
        label_smoothing: float,
        tokens_per_batch: int,
    ) -> None:
        """Binds the model to its loss and its validation set.

        Args:
            translator: holds the model; translates the validation sources.
            validation: see `ValidationSet`.
            label_smoothing: mass spread over all classes in the training loss.
            tokens_per_batch: padded tokens of a validation batch.
        """
        self.model: nn.Module = translator.model
        self.translator = translator
        self._validation = validation
        self._label_smoothing = label_smoothing
        self._tokens_per_batch = tokens_per_batch
        self._validate = compiled(
            _validation_sums, translator.model, layout=translator.layout
        )

    @property
    def measure(self) -> str:
        """Metric and tokenizer, the lines that are translated, and the search."""
        sources, references = self._validation.sources, self._validation.references
        digest = lines_fingerprint([*sources, *references])
        config = self.translator.config
        settings = {
            name: getattr(config, name)
            for name in READ_BY[config.method]
            if name not in _NO_MATTER_FOR_SCORES
        }
        usual = DecodingConfig()
        changed = [f"{k} {v}" for k, v in settings.items() if v != getattr(usual, k)]
        tokenizer = bleu_tokenizer(self._validation.target_language)
        lines = f"{self.score} ({tokenizer}) of {len(sources):,} lines"
        return ", ".join([lines, digest[:8], *changed])

    def init(self, rng: jax.Array) -> Variables:
        """Fresh variables of the model."""
        example = Tokens(np.ones((1, 2), np.int32), np.ones((1, 2), bool))
        initialise = functools.partial(self.model.init, train=False)
        return jax.jit(initialise)(rng, example, example)

    def loss(
        self, variables: Variables, batch: PairBatch, rng: jax.Array, *, train: bool
    ) -> tuple[Metrics, Variables]:
        """Label-smoothed cross-entropy of the target, summed over real tokens.

        Args:
            variables: of the model.
            batch: sentence pairs.
            rng: of dropout.
            train: whether dropout and smoothing apply.

        Returns:
            ``loss``, ``nll`` (both in nats) and ``accuracy``, each with the number of
            real target tokens as its count, and the collections other than parameters.
            A model that makes choices adds to the loss what they are learned from, and
            ``choice_entropy`` (in nats).
        """
        smoothing = self._label_smoothing if train else 0.0
        return _loss(self.model, smoothing, variables, batch, rng, train=train)

    def evaluate(self, variables: Variables) -> Mapping[str, float]:
        """Validation nll (nats a token), perplexity, accuracy and sacreBLEU."""
        totals: dict[str, Array] = {}
        for _, batch in pair_batches(
            self._validation.pairs,
            self.translator.tokenizers,
            tokens_per_batch=self._tokens_per_batch,
            rows_multiple=self.translator.rows_multiple,
            longest=self.model.longest,
        ):
            for name, ratio in self._validate(variables, batch).items():
                totals[name] = totals.get(name, 0.0) + np.array(ratio, np.float64)
        means = {name: total / count for name, (total, count) in totals.items()}
        translations = self.translator.translate(variables, self._validation.sources)
        scores = corpus_scores(
            translations.texts,
            self._validation.references,
            target_language=self._validation.target_language,
        )
        return {
            "nll": float(means["nll"]),
            "perplexity": float(np.exp(min(means["nll"], 50.0))),
            "accuracy": float(means["accuracy"]),
            "bleu": scores.bleu,
            "chrf": scores.chrf,
        }


def _validation_sums(
    model: nn.Module, variables: Variables, batch: PairBatch
) -> Metrics:
    rng = jax.random.key(0)  # dropout is off
    return _loss(model, 0.0, variables, batch, rng, train=False)[0]


def _loss(
    model: nn.Module,
    smoothing: float,
    variables: Variables,
    batch: PairBatch,
    rng: jax.Array,
    *,
    train: bool,
) -> tuple[Metrics, Variables]:
    collections = [name for name in variables if name != "params"]
    decoded, updated = model.apply(
        variables,
        batch.source,
        batch.inputs,
        train=train,
        rngs={"dropout": rng},
        mutable=collections if train else [],
    )
    labels, weights = batch.labels, batch.weights
    sums = cross_entropy(decoded.logits, labels, weights, smoothing=smoothing)
    count = jnp.sum(batch.weights)
    metrics = {
        "loss": Ratio(sums.loss, count),
        "nll": Ratio(sums.nll, count),
        "accuracy": Ratio(sums.correct, count),
    }
    if decoded.choices is not None:
        costs = token_losses(decoded.logits, labels, smoothing=smoothing)
        added, updated = model.apply(
            {**variables, **updated},
            *(decoded.choices, jax.lax.stop_gradient(costs), weights),
            mutable=collections,
            method="choice_loss",
        )
        metrics["loss"] = Ratio(sums.loss + added, count)
        entropy = jnp.sum(decoded.choices.entropy * weights)
        metrics["choice_entropy"] = Ratio(entropy, count)
    return metrics, updated
