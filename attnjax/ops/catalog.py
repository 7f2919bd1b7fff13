"""All mechanisms, a line each; what models, tests, benchmarks and the table read.

To add one: a file in this package with the pure function and the class of its options,
and an entry here, under the name by which configs choose it. The laws of
``tests/ops/test_laws.py`` and everything else then cover it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attnjax.fields import Kinds, Options
from attnjax.ops import (
    block_sparse,
    cache,
    compressed,
    favor,
    linear,
    local,
    local_global,
    lsh,
    references,
    ring,
    sparse,
    topk,
)
from attnjax.ops.attend import Dense, dense_attention
from attnjax.ops.axial import Axial, axial_attention
from attnjax.ops.chunked import Chunked, chunked_attention
from attnjax.ops.cluster import Clustered, clustered_attention
from attnjax.ops.compressed import (
    MemoryCompressed,
    memory_compressed_attention,
    memory_compressed_parameters,
)
from attnjax.ops.entry import Entry
from attnjax.ops.hard import (
    Gumbel,
    Hard,
    attend_to_best,
    gumbel_attention,
    hard_attention,
)
from attnjax.ops.lowrank import (
    Linformer,
    Nystrom,
    linformer_attention,
    linformer_parameters,
    nystrom_attention,
)
from attnjax.ops.routing import (
    Routing,
    routing_attention,
    routing_buffers,
    update_centroids,
)

SELF_ONLY = (
    "its pattern is one of positions, and those of queries and keys are not the same "
    "there"
)
CATALOG: Mapping[str, Entry] = {
    "dense": Entry(
        attend=dense_attention,
        options=Dense,
        accepts_score=True,
        limit=lambda n: {},
        cost="time n^2, memory n^2",
        memory_exponent=2.0,
        paper="Vaswani et al. 2017, Attention is all you need",
        accepts_bias=True,
        incremental=cache.with_pattern(cache.every_position),
    ),
    "chunked": Entry(
        attend=chunked_attention,
        options=Chunked,
        limit=lambda n: {"chunk": max(1, n // 2)},
        cost="time n^2, memory n chunk",
        memory_exponent=1.0,
        paper="Rabe and Staats 2021, Self-attention does not need O(n^2) memory",
        accepts_bias=True,
        incremental=cache.with_pattern(cache.every_position),
    ),
    "linformer": Entry(
        attend=linformer_attention,
        options=Linformer,
        facts=("valid",),
        slots=("encoder", "cross"),
        max_keys="limit",
        refusal="its keys mix all positions, so it cannot be causal",
        limit_reason="rank n needs identity projections, which are learned parameters",
        reference=references.linformer,
        cost="time n rank, memory n rank",
        memory_exponent=1.0,
        paper="Wang et al. 2020, Linformer: Self-attention with linear complexity",
        normalised=False,
        pairwise=False,
        parameters=linformer_parameters,
    ),
    "nystrom": Entry(
        attend=nystrom_attention,
        options=Nystrom,
        facts=("valid",),
        slots=("encoder",),
        refusal="its landmarks are means over all queries, later ones too, and over "
        "all keys",
        limit_reason="with rank n it nears dense attention as the iterations of its "
        "pseudo-inverse grow; the paper's six are no limit",
        reference=references.nystrom,
        cost="time n rank, memory n rank",
        memory_exponent=1.0,
        paper="Xiong et al. 2021, Nystromformer: A Nystrom-based algorithm for "
        "approximating self-attention",
        self_only=True,
        normalised=False,
        pairwise=False,
    ),
    "memory_compressed": Entry(
        attend=memory_compressed_attention,
        options=MemoryCompressed,
        facts=("valid", "causal"),
        limit_reason="stride 1 needs identity kernels, which are learned parameters",
        reference=references.memory_compressed,
        cost="time n^2 / stride, memory n",
        memory_exponent=1.0,
        paper="Liu et al. 2018, Generating Wikipedia by summarizing long sequences",
        normalised=False,
        pairwise=False,
        parameters=memory_compressed_parameters,
        incremental=compressed.incremental,
    ),
    "routing": Entry(
        attend=routing_attention,
        options=Routing,
        max_keys="read",
        facts=("valid",),
        slots=("encoder",),
        refusal="a cluster takes the best positions of the whole sentence, so that a "
        "later token can push an earlier one out",
        limit=lambda n: {"clusters": 1},
        cost="time n^2 / clusters, memory n^2 / clusters",
        memory_exponent=1.5,
        paper="Roy et al. 2021, Efficient content-based sparse attention with routing "
        "transformers",
        self_only=True,
        normalised=False,
        buffers=routing_buffers,
        update=update_centroids,
    ),
    "clustered": Entry(
        attend=clustered_attention,
        options=Clustered,
        facts=("valid",),
        slots=("encoder",),
        refusal="queries share weights with those of their cluster, later ones too",
        limit=lambda n: {"top_k": n},
        cost="time n clusters + n top_k, memory n clusters",
        memory_exponent=1.5,
        paper="Vyas et al. 2020, Fast transformers with clustered attention",
        self_only=True,
        pairwise=False,
    ),
    "axial": Entry(
        attend=axial_attention,
        options=Axial,
        facts=("valid",),
        slots=("encoder",),
        refusal="a sequence is folded by its length, which a decoder does not know",
        limit=lambda n: {"rows": 1},
        cost="time n sqrt(n), memory n sqrt(n)",
        memory_exponent=1.5,
        paper="Ho et al. 2019, Axial attention in multidimensional transformers",
        self_only=True,
    ),
    "sliding_window": Entry(
        attend=local.sliding_window_attention,
        options=local.SlidingWindow,
        slots=("encoder", "decoder"),
        refusal=SELF_ONLY,
        limit=lambda n: {"window": n},
        cost="time n window, memory n",
        memory_exponent=1.0,
        paper="Beltagy et al. 2020, Longformer: the long-document transformer",
        self_only=True,
        accepts_bias=True,
        incremental=ring.with_ring(
            local.window_pattern, local.kept_positions, "window dilation"
        ),
    ),
    "local_global": Entry(
        attend=local_global.local_global_attention,
        options=local_global.LocalGlobal,
        facts=("valid", "causal", "window"),
        slots=("encoder", "decoder"),
        refusal=SELF_ONLY,
        limit=lambda n: {"window": 1, "num_global": n},
        cost="time n (window + num_global), memory n",
        memory_exponent=1.0,
        paper="Beltagy et al. 2020, Longformer: the long-document transformer",
        self_only=True,
        accepts_bias=True,
        incremental=ring.with_ring(
            local_global.local_global_pattern,
            local_global.kept_positions,
            "window + num_global",
        ),
    ),
    "strided": Entry(
        attend=sparse.strided_attention,
        options=sparse.Strided,
        from_sizes={"stride": sparse.stride_of},
        max_keys="read",
        slots=("encoder", "decoder"),
        refusal=SELF_ONLY,
        limit=lambda n: {"stride": n},
        cost="time n (stride + n / stride), memory n",
        memory_exponent=1.0,
        paper="Child et al. 2019, Generating long sequences with sparse transformers",
        self_only=True,
        accepts_bias=True,
        incremental=sparse.stepwise(sparse.strided_pattern),
    ),
    "fixed": Entry(
        attend=sparse.fixed_attention,
        options=sparse.Fixed,
        from_sizes={"stride": sparse.stride_of},
        max_keys="read",
        facts=("valid", "causal", "window"),
        slots=("encoder", "decoder"),
        refusal=SELF_ONLY,
        limit=lambda n: {"stride": n},
        cost="time n (stride + num_global n / stride), memory n",
        memory_exponent=1.0,
        paper="Child et al. 2019, Generating long sequences with sparse transformers",
        self_only=True,
        accepts_bias=True,
        incremental=sparse.stepwise(sparse.fixed_pattern),
    ),
    "block_sparse": Entry(
        attend=block_sparse.block_sparse_attention,
        options=block_sparse.BlockSparse,
        facts=("valid", "causal", "window"),
        slots=("encoder", "decoder"),
        refusal=SELF_ONLY,
        limit=lambda n: {"block": n},
        cost="time n block (3 + num_global + num_random), memory n",
        memory_exponent=1.0,
        paper="Zaheer et al. 2020, Big Bird: transformers for longer sequences",
        self_only=True,
        accepts_bias=True,
        incremental=cache.with_pattern(block_sparse.block_sparse_pattern),
    ),
    "hard": Entry(
        attend=hard_attention,
        options=Hard,
        limit_reason="one key has all the weight; no option spreads it",
        reference=references.best_key,
        cost="time n^2, memory n^2",
        memory_exponent=2.0,
        paper="Xu et al. 2015, Show, attend and tell",
        accepts_bias=True,
        needs_rng=True,
        incremental=cache.with_pattern(cache.every_position, read=attend_to_best),
    ),
    "gumbel": Entry(
        attend=gumbel_attention,
        options=Gumbel,
        limit_reason="one key has all the weight; the temperature spreads the gradient",
        reference=references.best_key,
        cost="time n^2, memory n^2",
        memory_exponent=2.0,
        paper="Jang et al. 2017, Categorical reparameterization with Gumbel-softmax",
        accepts_bias=True,
        needs_rng=True,
        incremental=cache.with_pattern(cache.every_position, read=attend_to_best),
    ),
    "top_k": Entry(
        attend=topk.top_k_attention,
        options=topk.TopK,
        limit=lambda n: {"top_k": n},
        cost="time n^2, memory n chunk",
        memory_exponent=1.0,
        paper="Gupta et al. 2021, Memory-efficient transformers via top-k attention",
        accepts_bias=True,
        incremental=topk.INCREMENTAL,
    ),
    "lsh": Entry(
        attend=lsh.lsh_attention,
        options=lsh.LSH,
        facts=("valid", "causal", "window"),
        slots=("encoder", "decoder"),
        refusal="queries and keys share their projection, so they must be the same "
        "positions",
        limit=lambda n: {"block": n, "clusters": 1, "attend_to_self": True},
        cost="time n (block + sqrt(n)) rounds, memory n (block + sqrt(n))",
        memory_exponent=1.5,
        paper="Kitaev et al. 2020, Reformer: the efficient transformer",
        self_only=True,
        shares_query_key=True,
        incremental=lsh.INCREMENTAL,
    ),
    "linear": Entry(
        attend=linear.linear_attention,
        options=linear.Linear,
        facts=("valid", "causal"),
        limit_reason="its kernel is another than the exponential",
        reference=references.linear,
        cost="time n K^2, memory n K",
        memory_exponent=1.0,
        paper="Katharopoulos et al. 2020, Transformers are RNNs",
        pairwise=False,
        incremental=linear.INCREMENTAL,
    ),
    "favor": Entry(
        attend=favor.favor_from_options,
        options=favor.Favor,
        facts=("valid", "causal"),
        limit_reason="its error falls as 1 / sqrt(features) only once these outnumber "
        "the kernel's relative variance, exp(|q + k|^2) - 1 of scaled q and k",
        reference=references.favor,
        cost="time n K features, memory n features",
        memory_exponent=1.0,
        paper="Choromanski et al. 2021, Rethinking attention with Performers",
        buffers=favor.buffers,
        update=favor.update,
        incremental=favor.INCREMENTAL,
    ),
}


# What a config chooses from.
MECHANISMS = Kinds(
    noun="attention mechanism",
    classes={name: line.options for name, line in CATALOG.items()},
    in_turn=True,
)


def entry(mechanism: str | Options) -> Entry:
    """The catalog's line of a mechanism.

    Args:
        mechanism: its name in `CATALOG`, or its options.

    Returns:
        The entry.

    Raises:
        ValueError: if there is no such mechanism.
    """
    if not isinstance(mechanism, str):
        return CATALOG[MECHANISMS.name(mechanism)]
    MECHANISMS.find(mechanism)
    return CATALOG[mechanism]


def mechanism(kind: str, **options: Any) -> Options:
    """The options of a mechanism, chosen by name.

    >>> mechanism("sliding_window", window=8)
    SlidingWindow(window=8, dilation=1)

    Args:
        kind: a name in `CATALOG`.
        **options: those that are not to have their default.

    Returns:
        What a config or a layer takes as its mechanism.

    Raises:
        ValueError: if there is no such mechanism, it has no such option, or a value is
            out of range.
    """
    chosen = MECHANISMS.find(kind)
    for option in options.keys() - {*chosen.names()}:
        raise ValueError(f"{option} {MECHANISMS.unread([kind], option)}.")
    return chosen(**options)
