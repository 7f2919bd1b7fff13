"""Mechanisms of the catalog inside Flax's own multi-head attention."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from attnjax.ops.catalog import entry
from attnjax.types import Array, Mask


def flax_attention_fn(
    name: str,
    mask_facts: Mask | None = None,
    *,
    arrays: Mapping[str, Array] | None = None,
    **options: Any,
) -> Callable[..., jax.Array]:
    """A mechanism as ``attention_fn`` of ``flax.linen.MultiHeadDotProductAttention``.

    Flax hands a mask over as an n x n array, in which no mechanism below n x n could
    find its facts. So the facts are given here, and an array from Flax is refused
    rather than ignored. The same goes for dropout, which needs the weights.

    >>> import jax, jax.numpy as jnp
    >>> from flax import linen as nn
    >>> attention_fn = flax_attention_fn(
    ...     "sliding_window", Mask(causal=True), window=4, dilation=1
    ... )
    >>> layer = nn.MultiHeadDotProductAttention(num_heads=2, attention_fn=attention_fn)
    >>> x = jnp.ones((1, 10, 8))
    >>> layer.init_with_output(jax.random.key(0), x)[0].shape
    (1, 10, 8)

    Args:
        name: of the mechanism.
        mask_facts: for all calls, without a head axis; None allows every key.
        arrays: parameters and buffers of a mechanism that has them, see
            `attnjax.ops.entry.Entry.draw`.
        **options: of the mechanism, by name; all that the catalog lists for it.

    Returns:
        A function of query, key and value ``[B, length, H, K]``, in Flax's layout.

    Raises:
        ValueError: if there is no such mechanism or an option is missing; and when the
            function is called with an array mask, a bias or dropout.
    """
    _require_options(name, entry(name).options, options)
    attend = entry(name).bind(options)
    facts = (mask_facts or Mask()).over_heads()
    given = dict(arrays or {})

    def attention_fn(
        query: Array,
        key: Array,
        value: Array,
        bias: Array | None = None,
        mask: Array | None = None,
        dropout_rate: float = 0.0,
        deterministic: bool = True,
    ) -> jax.Array:  # Flax passes only what is named here
        drops = dropout_rate > 0.0 and not deterministic
        _refuse_extras(name, mask, bias, drops)
        heads_first = (jnp.swapaxes(x, -3, -2) for x in (query, key, value))
        context = attend(*heads_first, facts, **given).context
        return jnp.swapaxes(jnp.asarray(context), -3, -2)

    return attention_fn


def _require_options(name: str, known: Collection[str], given: Collection[str]) -> None:
    missing = sorted(set(known) - set(given))
    unknown = sorted(set(given) - set(known))
    if missing or unknown:
        raise ValueError(
            f"{name} takes the options {', '.join(known) or 'none'}; missing: "
            f"{', '.join(missing) or 'none'}, unknown: {', '.join(unknown) or 'none'}."
        )


def _refuse_extras(
    name: str, mask: Array | None, bias: Array | None, drops: bool
) -> None:
    if mask is not None or bias is not None:
        raise ValueError(
            f"{name} attention takes mask facts, not an n x n mask or bias array; "
            "pass mask_facts=Mask(...) to flax_attention_fn instead."
        )
    if drops:
        raise ValueError(
            f"{name} attention has no dropout on its weights; use dropout_rate=0."
        )
