"""Several trained models of one vocabulary that decide together."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import jax
import jax.numpy as jnp
from flax import linen as nn

from attnjax.types import (
    Array,
    Decoded,
    Encoded,
    Longest,
    PyTree,
    Stepped,
    Tokens,
    Variables,
)


class Ensemble(nn.Module):
    r"""The mean of its members' probabilities, itself a `attnjax.types.Seq2Seq`.

    $p(y_t \mid y_{<t}, x) = \frac{1}{M} \sum_m p_m(y_t \mid y_{<t}, x)$. Neither search
    nor scoring nor alignment knows of it. Names of attention begin with the member's,
    such as "member_0/decoder/layer_1/cross".

    Attributes:
        members: models of the same source and target vocabulary, alike or not.
    """

    members: Sequence[nn.Module]

    @property
    def longest(self) -> Longest:
        """What all members can take."""
        every = [member.longest for member in self.members]
        return Longest(
            min(each.source for each in every),
            min(each.target for each in every),
            min(every).setting,
        )

    def __call__(self, source: Tokens, inputs: Tokens, *, train: bool) -> Decoded:
        """``decode(encode(source), inputs)``."""
        return self.decode(self.encode(source, train=train), inputs, train=train)

    def encode(self, source: Tokens, *, train: bool) -> Encoded:
        """Encodes source sentences with every member.

        Args:
            source: ``[B, S]`` tokens.
            train: whether dropout acts.

        Returns:
            The members' results as ``states``.
        """
        encoded = tuple(member.encode(source, train=train) for member in self.members)
        return Encoded(encoded, source, None, _named(e.attention for e in encoded))

    def decode(self, encoded: Encoded, inputs: Tokens, *, train: bool) -> Decoded:
        """Scores the next token at every position of given targets.

        Args:
            encoded: from `encode`.
            inputs: ``[B, T]`` decoder inputs.
            train: whether dropout acts.

        Returns:
            Logits ``[B, T, C]``, which are log-probabilities, and all attention.
        """
        decoded = [
            member.decode(states, inputs, train=train)
            for member, states in zip(self.members, encoded.states, strict=True)
        ]
        return Decoded(
            _mean_log_probability([each.logits for each in decoded]),
            _named(each.attention for each in decoded),
        )

    def begin(self, encoded: Encoded, max_tokens: int) -> tuple[PyTree, PyTree]:
        """Prepares for `step`.

        Args:
            encoded: from `encode`.
            max_tokens: the most steps that will be taken.

        Returns:
            The members' constants and states, as tuples.
        """
        begun = [
            member.begin(states, max_tokens)
            for member, states in zip(self.members, encoded.states, strict=True)
        ]
        constants, states = zip(*begun, strict=True)
        return constants, states

    def step(self, constants: PyTree, state: PyTree, tokens: Array) -> Stepped:
        """Scores the next token after one more token.

        Args:
            constants: from `begin`.
            state: from `begin`, or the step before.
            tokens: ``[B]`` the last tokens.

        Returns:
            Log-probabilities ``[B, C]``, the next states, and all attention.
        """
        stepped = [
            member.step(constant, old, tokens)
            for member, constant, old in zip(
                self.members, constants, state, strict=True
            )
        ]
        return Stepped(
            _mean_log_probability([each.logits for each in stepped]),
            tuple(each.state for each in stepped),
            _named(each.attention for each in stepped),
        )


def ensemble_variables(members: Sequence[Variables]) -> Variables:
    """The variables of an `Ensemble` from those of its members.

    Args:
        members: in the order of ``Ensemble.members``.

    Returns:
        Collections by name.
    """
    joined: dict[str, dict[str, PyTree]] = {}
    for index, variables in enumerate(members):
        for collection, tree in variables.items():
            joined.setdefault(collection, {})[f"members_{index}"] = tree
    return joined


def _mean_log_probability(logits: Sequence[Array]) -> jax.Array:
    members = jnp.stack(
        [jax.nn.log_softmax(jnp.asarray(each, jnp.float32)) for each in logits]
    )
    return jax.nn.logsumexp(members, axis=0) - math.log(len(logits))


def _named(attention: Iterable[Mapping[str, Array]]) -> dict[str, Array]:
    return {
        f"member_{index}/{name}": weights
        for index, named in enumerate(attention)
        for name, weights in named.items()
    }
