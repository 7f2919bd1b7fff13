"""Mechanisms of the catalog inside Flax's own multi-head attention, linen and nnx."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from flax import nnx

from attnjax.config import TransformerConfig
from attnjax.fields import Options
from attnjax.ops.catalog import entry, mechanism
from attnjax.ops.door import (
    require_allowed,
    require_axes,
    require_facts,
    require_fit,
)
from attnjax.ops.entry import Sizes
from attnjax.ops.masks import all_of, allowed
from attnjax.ops.scorers import scaled_dot_scores
from attnjax.ops.softmax import masked_softmax
from attnjax.types import Array, Attended, Mask

# What Flax passes and any mechanism here does anyway, or needs for dropout only.
_HARMLESS = ("broadcast_dropout", "dropout_rng", "force_fp32_for_softmax")


def flax_attention_fn(
    name: str,
    mask_facts: Mask | None = None,
    *,
    arrays: Mapping[str, Array] | None = None,
    **options: Any,
) -> Callable[..., jax.Array]:
    """A mechanism for linen's MultiHeadDotProductAttention, nnx's MultiHeadAttention.

    Flax hands a mask over as an array of all pairs, in which no mechanism below n x n
    could find its facts. So the facts are given here, and only dense attention takes an
    array too, and so ``decode=True``, which describes its cache by one. Others refuse
    it, and all refuse dropout and biases. ``sow_weights`` works where there are some.

    >>> import jax, jax.numpy as jnp
    >>> from flax import linen as nn
    >>> attention_fn = flax_attention_fn("sliding_window", Mask(causal=True), window=4)
    >>> layer = nn.MultiHeadDotProductAttention(num_heads=2, attention_fn=attention_fn)
    >>> x = jnp.ones((1, 10, 8))
    >>> layer.init_with_output(jax.random.key(0), x)[0].shape
    (1, 10, 8)

    Args:
        name: of the mechanism.
        mask_facts: for all calls, without a head axis; None allows every key.
        arrays: parameters and buffers of a mechanism that has them, see
            `attnjax.ops.entry.Entry.draw`.
        **options: of the mechanism, by name; max_positions is 512.

    Returns:
        A function of query, key and value ``[B, length, H, K]``, in Flax's layout.

    Raises:
        ValueError: if there is no such mechanism, or it has no such option; and when
            the function is called with what the mechanism cannot honour.
    """
    facts = (mask_facts or Mask()).over_heads()
    return _AttentionFunction(name, mechanism(name, **options), facts, arrays or {})


@dataclasses.dataclass(frozen=True, eq=False)
class _AttentionFunction:
    """What `flax_attention_fn` returns."""

    name: str
    options: Options
    facts: Mask
    arrays: Mapping[str, Array]

    # Linen passes only what the signature names: ours takes all that its own does.
    __signature__ = inspect.signature(nn.dot_product_attention)

    def __call__(
        self,
        query: Array,
        key: Array,
        value: Array,
        bias: Array | None = None,
        mask: Array | None = None,
        **more: Any,
    ) -> jax.Array:
        module, dtype = more.pop("module", None), more.pop("dtype", None)
        _refuse_extras(self.name, bias, more)
        causal = bool(self.facts.causal or more.get("is_causal"))
        facts = dataclasses.replace(self.facts, causal=causal)
        for part, array in (("query", query), ("key", key), ("value", value)):
            require_axes(part, array, length=None, heads=None, width=None)
        inputs = [jnp.swapaxes(x, -3, -2) for x in (query, key, value)]
        inputs = inputs if dtype is None else [x.astype(dtype) for x in inputs]
        if mask is None:
            *_, num_heads, width = query.shape
            max_keys = TransformerConfig().max_positions
            sizes = Sizes(num_heads, width, value.shape[-1], max_keys)
            attend = entry(self.name).bind(self.options, sizes)
            attended = attend(*inputs, facts, **self.arrays)
        else:
            attended = _under_array(self.name, mask, facts, inputs)
        if module is not None:
            _sow(self.name, module, attended.weights)
        return jnp.swapaxes(jnp.asarray(attended.context), -3, -2)


def _refuse_extras(name: str, bias: Array | None, more: Mapping[str, Any]) -> None:
    """Refuses what would change the result and cannot be honoured."""
    if bias is not None:
        raise ValueError(
            f"{name} attention takes no bias array from Flax; see accepts_bias in "
            "attnjax.ops.entry for terms of the scores."
        )
    if more.get("dropout_rate", 0.0) > 0.0 and not more.get("deterministic", False):
        raise ValueError(
            f"{name} attention has no dropout on its weights; use dropout_rate=0."
        )
    read = (*_HARMLESS, "dropout_rate", "deterministic", "is_causal")
    unread = [
        word for word, given in more.items() if given is not None and word not in read
    ]
    if unread:
        raise ValueError(
            f"{name} attention cannot honour Flax's {' and '.join(unread)}; leave it "
            "at its default."
        )


def _under_array(
    name: str, mask: Array, facts: Mask, inputs: list[jax.Array]
) -> Attended:
    """Dense attention where both the facts and Flax's array allow it."""
    if name != "dense":
        raise ValueError(
            f"{name} attention takes mask facts, not an n x n mask (nor decode=True, "
            "whose cache Flax describes by one); pass mask_facts=Mask(...) to "
            "flax_attention_fn instead, or use dense."
        )
    query, key, value = inputs
    require_fit("dense attention", query, key, value, any_width=False)
    scores = scaled_dot_scores(query, key)
    require_facts("dense attention", facts, scores.shape)
    num_queries, num_keys = scores.shape[-2:]
    if facts.window is not None and num_queries != num_keys:
        raise ValueError(
            "a window beside an array mask needs as many queries as keys, got "
            f"{num_queries} and {num_keys}: in Flax's decode=True nobody says at which "
            "position the query stands. Put the window into the mask."
        )
    of_facts = allowed(facts, scores.shape)
    of_both = [jnp.asarray(mask) != 0, *([] if of_facts is None else [of_facts])]
    require_allowed(scores, of_both[0])
    weights = masked_softmax(scores, all_of(of_both))
    context = jnp.einsum("...ts,...sv->...tv", weights.astype(value.dtype), value)
    return Attended(context, weights)


def _sow(name: str, module: Any, weights: Array | None) -> None:
    """Keeps the weights where Flax's own attention would."""
    if weights is None:
        raise ValueError(
            f"{name} attention forms no weights; use sow_weights=False, or dense."
        )
    is_linen = isinstance(module, nn.Module)
    module.sow(
        "intermediates" if is_linen else nnx.Intermediate, "attention_weights", weights
    )
