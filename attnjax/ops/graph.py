"""Graph attention: a softmax over the edges that enter each node.

The inputs are edges instead of queries and keys, so it is no line of the catalog.
Learned projections and biases are the caller's; a batch of graphs is one graph of
separate parts.

>>> import jax.numpy as jnp
>>> edges = with_self_loops(Edges(jnp.array([0, 1]), jnp.array([1, 2])), 3)
>>> features_nhv = jnp.ones((3, 2, 4))
>>> scores_eh = gatv2_scores(features_nhv, features_nhv, jnp.ones((2, 4)), edges)
>>> context_nhv, weights_eh = graph_attention(scores_eh, features_nhv, edges, 3)
>>> weights_eh[:, 0].tolist()
[0.5, 0.5, 1.0, 0.5, 0.5]
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from attnjax.ops.door import BOOL, INTEGER, require_array, require_shape
from attnjax.types import Array


class Edges(NamedTuple):
    """The directed edges of a graph, in any order.

    Attributes:
        source: ``[E]`` int, the node that is read.
        target: ``[E]`` int, the node that reads.
        valid: ``[E]`` bool, False on edges that only fill the arrays up; None if all
            are real.
    """

    source: Array
    target: Array
    valid: Array | None = None


class GraphAttended(NamedTuple):
    """What graph attention computed.

    Attributes:
        context: ``[N, H, V]``, the weighted mean over the edges that enter each node.
        weights: ``[E, H]``, those of the edges into one node sum to 1.
    """

    context: jax.Array
    weights: jax.Array


def graph_attention(
    scores: Array, value: Array, edges: Edges, num_nodes: int
) -> GraphAttended:
    """Each node averages the values of the nodes that have an edge to it.

    ``context_t = sum_{s -> t} w_st v_s`` with
    ``w_st = exp(e_st) / sum_{s' -> t} exp(e_s't)``, in float32, time and memory O(E).
    A node that no edge enters has no neighbour to average and gets exactly 0, with
    finite gradients; add self-loops (`with_self_loops`) to have it read itself.

    Sources: Velickovic et al. 2018, "Graph attention networks", eq. 2-4; Brody et al.
    2022, "How attentive are graph attention networks?". In both, heads are joined after
    this: concatenated, or their mean taken in the last layer.

    Args:
        scores: ``[E, H]``, from `gat_scores` or `gatv2_scores`.
        value: ``[N, H, V]``.
        edges: which node reads which.
        num_nodes: N of the nodes that read.

    Returns:
        Context ``[N, H, V]`` in the dtype of the values, weights ``[E, H]`` in float32.

    Raises:
        ValueError: if scores, values and edges do not fit together.
    """
    require_shape("scores", scores, edges=_number_of(edges), heads=None)
    require_shape("value", value, nodes=None, heads=scores.shape[-1], width=None)
    weights_eh = segment_softmax(scores, edges, num_nodes)
    messages = value[edges.source].astype(jnp.float32) * weights_eh[:, :, None]
    context = jax.ops.segment_sum(messages, edges.target, num_nodes)
    return GraphAttended(context.astype(value.dtype), weights_eh)


def segment_softmax(scores: Array, edges: Edges, num_nodes: int) -> jax.Array:
    """Softmax over the edges that enter the same node.

    Args:
        scores: ``[E, H]``.
        edges: the node that each edge enters.
        num_nodes: N.

    Returns:
        ``[E, H]`` float32, exactly 0 on edges that are not valid.

    Raises:
        ValueError: if there is not one score for each edge.
    """
    num_edges = _number_of(edges)
    require_shape("scores", scores, edges=num_edges, heads=None)
    scores = scores.astype(jnp.float32)
    if edges.valid is not None:
        scores = jnp.where(edges.valid[:, None], scores, -jnp.inf)
    highest_nh = jax.ops.segment_max(
        jax.lax.stop_gradient(scores), edges.target, num_nodes
    )
    highest_nh = jnp.where(jnp.isneginf(highest_nh), 0.0, highest_nh)
    powers_eh = jnp.exp(scores - highest_nh[edges.target])
    total_nh = jax.ops.segment_sum(powers_eh, edges.target, num_nodes)
    total_nh = jnp.where(total_nh == 0.0, 1.0, total_nh)
    return powers_eh / total_nh[edges.target]


def gat_scores(
    features: Array,
    source_weight: Array,
    target_weight: Array,
    edges: Edges,
    *,
    slope: float = 0.2,
) -> jax.Array:
    """``e_st = LeakyReLU(a_s · W x_s + a_t · W x_t)``, Velickovic et al. 2018, eq. 3.

    The two terms are formed per node, so that no ``[E, H, V]`` array is. A node ranks
    its neighbours by ``a_s · W x_s`` alone, hence as every other node does.

    Args:
        features: ``[N, H, V]``, ``W x``.
        source_weight: ``[H, V]``, the half of the paper's ``a`` for the node read.
        target_weight: ``[H, V]``, the other half.
        edges: which node reads which.
        slope: of the LeakyReLU below 0.

    Returns:
        Scores ``[E, H]``.

    Raises:
        ValueError: if features, weights and edges do not fit together.
    """
    _number_of(edges)
    require_shape("features", features, nodes=None, heads=None, width=None)
    heads, width = features.shape[-2:]
    require_shape("source_weight", source_weight, heads=heads, width=width)
    require_shape("target_weight", target_weight, heads=heads, width=width)
    source_nh = jnp.einsum("nhv,hv->nh", features, source_weight)
    target_nh = jnp.einsum("nhv,hv->nh", features, target_weight)
    return jax.nn.leaky_relu(source_nh[edges.source] + target_nh[edges.target], slope)


def gatv2_scores(
    source_features: Array,
    target_features: Array,
    weight: Array,
    edges: Edges,
    *,
    slope: float = 0.2,
) -> jax.Array:
    """``e_st = a · LeakyReLU(W_s x_s + W_t x_t)``, Brody et al. 2022, eq. 7.

    Which neighbour is best may differ from node to node, unlike in `gat_scores`.

    Args:
        source_features: ``[N, H, V]``, ``W_s x``; also the values, as a rule.
        target_features: ``[N, H, V]``, ``W_t x``.
        weight: ``[H, V]``, the paper's ``a``.
        edges: which node reads which.
        slope: of the LeakyReLU below 0.

    Returns:
        Scores ``[E, H]``.

    Raises:
        ValueError: if features, weight and edges do not fit together.
    """
    _number_of(edges)
    require_shape("weight", weight, heads=None, width=None)
    heads, width = weight.shape
    axes = {"nodes": None, "heads": heads, "width": width}
    require_shape("source_features", source_features, **axes)
    require_shape("target_features", target_features, **axes)
    hidden_ehv = jax.nn.leaky_relu(
        source_features[edges.source] + target_features[edges.target], slope
    )
    return jnp.einsum("ehv,hv->eh", hidden_ehv, weight)


def with_self_loops(edges: Edges, num_nodes: int) -> Edges:
    """Adds an edge from each node to itself, after the others.

    Args:
        edges: without self-loops.
        num_nodes: N.

    Returns:
        ``E + N`` edges.

    Raises:
        ValueError: if the arrays of the edges do not fit together.
    """
    _number_of(edges)
    nodes = jnp.arange(num_nodes)
    valid = edges.valid
    if valid is not None:
        valid = jnp.concatenate([valid, jnp.ones(num_nodes, bool)])
    return Edges(
        jnp.concatenate([edges.source, nodes]),
        jnp.concatenate([edges.target, nodes]),
        valid,
    )


def _number_of(edges: Edges) -> int:
    """E; raises unless all arrays of the edges are ``[E]``."""
    require_array("edges.source", edges.source, INTEGER)
    require_array("edges.target", edges.target, INTEGER)
    if edges.valid is not None:
        require_array("edges.valid", edges.valid, BOOL)
    shapes = {array.shape for array in edges if array is not None}
    if len(shapes) > 1 or edges.source.ndim != 1:
        raise ValueError(
            "edges need source, target and valid of one shape [E], got "
            f"{', '.join(map(str, sorted(shapes)))}."
        )
    return int(edges.source.shape[0])
