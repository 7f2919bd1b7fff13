"""All mechanisms, a line each; what models, tests, benchmarks and the table read.

To add one: a file in this package with the pure function, an entry here, its name in
`attnjax.config.MechanismName`. The laws of ``tests/ops/test_laws.py`` and everything
else then cover it.
"""

from __future__ import annotations

from collections.abc import Mapping

from attnjax.ops import cache
from attnjax.ops.attend import dense_attention
from attnjax.ops.chunked import chunked_attention
from attnjax.ops.entry import SLOTS, Entry

CATALOG: Mapping[str, Entry] = {
    "dense": Entry(
        attend=dense_attention,
        slots=SLOTS,
        limit=lambda n: {},
        cost="time n^2, memory n^2",
        memory_exponent=2.0,
        paper="Vaswani et al. 2017, Attention is all you need",
        accepts_bias=True,
        incremental=cache.with_pattern(cache.every_position),
    ),
    "chunked": Entry(
        attend=chunked_attention,
        options=("chunk",),
        slots=("encoder", "decoder", "cross", "classifier"),
        refusal="a recurrent decoder has one query at a time, and n scores need no "
        "chunks",
        limit=lambda n: {"chunk": max(1, n // 2)},
        cost="time n^2, memory n chunk",
        memory_exponent=1.0,
        paper="Rabe and Staats 2021, Self-attention does not need O(n^2) memory",
        accepts_bias=True,
        incremental=cache.with_pattern(cache.every_position),
    ),
}


def entry(name: str) -> Entry:
    """The catalog's line of a mechanism.

    Args:
        name: as in `CATALOG`.

    Returns:
        The entry.

    Raises:
        ValueError: if there is no such mechanism.
    """
    if name not in CATALOG:
        raise ValueError(
            f"there is no attention mechanism {name!r}; the catalog has "
            f"{', '.join(CATALOG)}."
        )
    return CATALOG[name]
