"""One compiled search over a `Seq2Seq` model: encode, begin, and step until the end."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from attnjax.config import DecodingConfig
from attnjax.decoding.beam import BeamSettings, beam_search
from attnjax.decoding.beams import repeat_for_beams
from attnjax.decoding.constraints import Constraints, Spelling
from attnjax.decoding.hypotheses import Hypotheses, SpecialTokens
from attnjax.decoding.sampling import SamplingSettings, sample_outputs
from attnjax.decoding.tracing import (
    Traced,
    begin_trace,
    coverage_bonus,
    traced_step,
)
from attnjax.types import Array, PyTree, Step, Stepped, Tokens, Variables


class SearchInputs(NamedTuple):
    """The lines of a batch.

    Attributes:
        source: the source sentences; a row of a lone ``</s>`` is filler.
        seeds: ``[B]`` uint32 of the draws of each row.
        prefix: ``[B, P]`` int32 beginnings of the outputs, padded with ``<pad>``; None
            if none is forced.
        spelling: the texts that follow; None if none is forced.
    """

    source: Tokens
    seeds: Array
    prefix: Array | None = None
    spelling: Spelling | None = None


def search_batch(
    model: nn.Module,
    special: SpecialTokens,
    config: DecodingConfig,
    variables: Variables,
    inputs: SearchInputs,
    *,
    with_attention: bool,
) -> Hypotheses:
    """Encodes a batch and searches for its translations; pure, to be compiled.

    Args:
        model: implements `attnjax.types.Seq2Seq`.
        special: ids of the target vocabulary.
        config: method, penalties, constraints and limits.
        variables: of the model.
        inputs: the batch.
        with_attention: whether ``trace`` of the result is the attention ``[B, J, L,
            S]``, and not None.

    Returns:
        The hypotheses of every row; filler rows have empty ones.

    Raises:
        ValueError: if attention is needed of a model that forms no weights.
    """
    source = inputs.source
    forced_bp = _forced_tokens(inputs, special)
    max_tokens = min(
        source.ids.shape[1] + config.max_extra_tokens + forced_bp.shape[1],
        model.longest.target - 1,  # so that an unfinished output may yet get its </s>
    )
    encoded = model.apply(variables, source, train=False, method="encode")
    constants, state = model.apply(variables, encoded, max_tokens, method="begin")
    repeated = repeat_for_beams(constants, _num_outputs(config))
    if with_attention or config.coverage_penalty:
        state = begin_trace(state, source.valid, max_tokens if with_attention else 0)
        step = traced_step(lambda *given: _look(model, variables, repeated, *given))
    else:
        step = _plain_step(model, variables, repeated)
    given = step, state, _limits(inputs, config, jnp.sum(forced_bp, axis=-1))
    rules: dict[str, Any] = {"special": special, "constraints": _rules(inputs, config)}
    if config.method == "beam":
        settings = _beam_settings(config, with_attention)
        return beam_search(*given, max_tokens=max_tokens, settings=settings, **rules)
    fold = jax.vmap(jax.random.fold_in, (None, 0))
    rngs = fold(jax.random.key(config.seed), inputs.seeds)
    draws = _sampling_settings(config, max_tokens, with_attention)
    return sample_outputs(*given, rngs, settings=draws, **rules)


def seeds_of(sources: Sequence[Sequence[int]], rows: int) -> np.ndarray:
    """Seeds of sentences, and not of their places: draws depend on nothing else.

    Args:
        sources: ids without special tokens.
        rows: of the batch; those beyond the sentences have seed 0.

    Returns:
        ``[rows]`` uint32.
    """
    seeds = np.zeros(rows, np.uint32)
    seeds[: len(sources)] = [
        zlib.crc32(np.asarray(ids, np.int32).tobytes()) for ids in sources
    ]
    return seeds


def _num_outputs(config: DecodingConfig) -> int:
    """Hypotheses of a row that a search works on at once."""
    outputs = {"beam": config.beam_size, "sampling": config.n_best}
    return outputs.get(config.method, config.num_samples)


def _rules(inputs: SearchInputs, config: DecodingConfig) -> Constraints:
    return Constraints(
        min_tokens=config.min_tokens,
        no_repeat_ngram=config.no_repeat_ngram,
        prefix=inputs.prefix,
        spelling=inputs.spelling,
    )


def _forced_tokens(inputs: SearchInputs, special: SpecialTokens) -> jax.Array:
    """``[B, P + R]`` bool, where a row's output is not free; at most a token a byte."""
    forced = [jnp.zeros((len(inputs.seeds), 0), bool)]
    if inputs.prefix is not None:
        forced.append(jnp.asarray(inputs.prefix) != special.pad_id)
    if inputs.spelling is not None:
        forced.append(jnp.asarray(inputs.spelling.states) > 0)
    return jnp.concatenate(forced, axis=1)


def _sampling_settings(
    config: DecodingConfig, max_tokens: int, with_attention: bool
) -> SamplingSettings:
    return SamplingSettings(
        max_tokens=max_tokens,
        num_samples=_num_outputs(config),
        temperature=config.temperature,
        top_k=config.top_k,
        top_p=config.top_p,
        trace=_history if with_attention else _nothing,
    )


def _limits(
    inputs: SearchInputs, config: DecodingConfig, num_forced: jax.Array
) -> jax.Array:
    num_tokens = jnp.sum(inputs.source.valid, axis=-1)
    most = num_tokens + config.max_extra_tokens + num_forced
    # A filler row is a lone </s>: of limit 0, it keeps no other row waiting.
    return jnp.where(num_tokens > 1, most, 0)


def _beam_settings(config: DecodingConfig, with_attention: bool) -> BeamSettings:
    beta = config.coverage_penalty
    return BeamSettings(
        beam_size=config.beam_size,
        n_best=config.n_best,
        length_penalty=config.length_penalty,
        penalty=config.length_penalty_kind,
        bonus=coverage_bonus(beta) if beta else None,
        trace=_history if with_attention else None,
    )


def _plain_step(model: nn.Module, variables: Variables, constants: PyTree) -> Step:
    def step(state: PyTree, tokens: Array) -> tuple[Array, PyTree]:
        stepped = _step(model, variables, constants, state, tokens)
        return stepped.logits, stepped.state

    return step


def _step(model: nn.Module, variables: Variables, *given: PyTree) -> Stepped:
    return cast(Stepped, model.apply(variables, *given, method="step"))


def _look(
    model: nn.Module,
    variables: Variables,
    constants: PyTree,
    state: PyTree,
    tokens: Array,
) -> tuple[Array, PyTree, jax.Array]:
    """A step that also says where the last layer looked, its heads averaged."""
    stepped = _step(model, variables, constants, state, tokens)
    if not stepped.attention:
        raise ValueError(
            "this model forms no attention weights over its source, so there is no "
            "coverage penalty and no attention to return; set "
            "decoding.coverage_penalty=0 and ask for no attention."
        )
    weights_bhs = list(stepped.attention.values())[-1]
    return stepped.logits, stepped.state, jnp.mean(weights_bhs, axis=1)


def _history(state: Traced) -> Array:
    return state.history


def _nothing(state: PyTree) -> None:
    del state
