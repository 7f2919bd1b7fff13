"""Graph attention: PyTorch Geometric's numbers, isolated nodes, what GATv2 adds."""

import functools
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnjax.ops.attend import attend as dense_attend
from attnjax.ops.graph import (
    Edges,
    gat_scores,
    gatv2_scores,
    graph_attention,
    with_self_loops,
)
from attnjax.types import Mask

GOLDEN = Path(__file__).parents[1] / "golden"
N, E, H, V = 7, 17, 3, 11


@functools.cache
def graph():
    """No edge enters the last node."""
    rng = np.random.default_rng(0)
    source = rng.integers(0, N, E).astype(np.int32)
    target = rng.integers(0, N - 1, E).astype(np.int32)
    scores, value = (
        rng.normal(size=shape).astype(np.float32) for shape in ((E, H), (N, H, V))
    )
    return scores, value, Edges(source, target)


@jax.jit
def pull(scores, value, edges, cotangent):
    """Context and weights, and the gradients of ``context . cotangent``."""
    context, pull, weights = jax.vjp(
        lambda *inputs: graph_attention(*inputs, edges, len(value)),
        *(scores, value),
        has_aux=True,
    )
    return context, weights, pull(cotangent.astype(context.dtype))


def attend(scores, value, edges):
    """Context and weights; one program serves all graphs of a size."""
    return jax.device_get(pull(scores, value, edges, np.zeros((N, H, V), np.float32)))[
        :2
    ]


@pytest.mark.parametrize("heads", ["concat", "mean"])
def test_equals_pytorch_geometric(heads):
    with np.load(GOLDEN / f"pyg_gat_{heads}.npz") as file:
        golden = dict(file)
    nodes, num_heads = len(golden["features"]), int(golden["heads"])
    features = golden["features"] @ golden["param:lin.weight"].T
    features = features.reshape(nodes, num_heads, -1)
    halves = golden["param:att_src"][0], golden["param:att_dst"][0]

    @jax.jit
    def run(features, edges):
        edges = with_self_loops(Edges(*edges), nodes)
        scores = gat_scores(features, *halves, edges)
        return edges[:2], graph_attention(scores, features, edges, nodes)

    edges, (context, weights) = jax.device_get(run(features, golden["edges"]))
    np.testing.assert_array_equal(np.stack(edges), golden["edges_with_self_loops"])
    np.testing.assert_allclose(weights, golden["attention"], atol=1e-6)
    joined = context.reshape(nodes, -1) if heads == "concat" else context.mean(1)
    output = joined + golden["param:bias"][None]
    np.testing.assert_allclose(output, golden["output"], atol=1e-5)


def test_equals_a_loop_over_the_nodes():
    scores, value, edges = graph()
    context, weights = attend(scores, value, edges)
    scores, value = np.asarray(scores, np.float64), np.asarray(value, np.float64)
    for node in range(N):
        entering = np.flatnonzero(np.asarray(edges.target) == node)
        for head in range(H):
            powers = np.exp(scores[entering, head])
            expected = powers / powers.sum()
            np.testing.assert_allclose(weights[entering, head], expected, atol=1e-6)
            read = value[np.asarray(edges.source)[entering], head]
            np.testing.assert_allclose(context[node, head], expected @ read, atol=1e-5)


def test_isolated_node_is_zero_with_finite_gradients():
    scores, value, edges = graph()
    scores = scores.copy()
    scores[0] = 1e4  # would overflow without its maximum
    context, _ = attend(scores, value, edges)
    # The gradients of its squares.
    *_, gradients = jax.device_get(pull(scores, value, edges, 2 * context))
    np.testing.assert_array_equal(context[-1], 0.0)
    assert np.all(np.any(context[:-1] != 0.0, axis=(1, 2)) | ~has_edges(edges)[:-1])
    assert all(np.all(np.isfinite(gradient)) for gradient in gradients)


def has_edges(edges):
    return np.isin(np.arange(N), np.asarray(edges.target))


def test_graph_without_edges_is_zero():
    _, value, _ = graph()
    none = jnp.zeros((0,), jnp.int32)
    context, weights = graph_attention(jnp.zeros((0, H)), value, Edges(none, none), N)
    np.testing.assert_array_equal(context, jnp.zeros((N, H, V)))
    assert weights.shape == (0, H)


def test_edges_that_fill_up_change_nothing():
    scores, value, edges = graph()
    expected = attend(scores, value, edges)
    filled = Edges(
        np.append(edges.source, np.int32([0, 3])),
        np.append(edges.target, np.int32([N - 1, 2])),
        np.arange(E + 2) < E,
    )
    scores = np.concatenate([scores, np.full((2, H), 90.0, np.float32)])
    got = jax.device_get(pull(scores, value, filled, np.ones_like(value)))
    context, weights, gradients = got
    np.testing.assert_array_equal(context, expected[0])
    np.testing.assert_array_equal(weights[:E], expected[1])
    np.testing.assert_array_equal(weights[E:], 0.0)
    assert all(np.all(np.isfinite(gradient)) for gradient in gradients)


def complete():
    """Every node reads every node."""
    source, target = np.meshgrid(np.arange(N), np.arange(N))
    return Edges(source.ravel(), target.ravel())


def test_complete_graph_equals_dense_attention():
    _, value, _ = graph()
    edges = complete()
    rng = np.random.default_rng(7)
    scores_hts = rng.normal(size=(H, N, N)).astype(np.float32)
    scores_eh = scores_hts[:, edges.target, edges.source].T
    context, weights = attend(scores_eh, value, edges)
    dense = jax.jit(dense_attend)(scores_hts, np.moveaxis(value, 0, 1), Mask())
    np.testing.assert_allclose(np.moveaxis(context, 0, 1), dense.context, atol=1e-5)
    np.testing.assert_allclose(weights.T.reshape(H, N, N), dense.weights, atol=1e-6)


def test_order_of_edges_does_not_matter():
    scores, value, edges = graph()
    order = np.random.default_rng(3).permutation(E)
    mixed, mixed_weights = attend(
        scores[order], value, Edges(edges.source[order], edges.target[order])
    )
    plain, plain_weights = attend(scores, value, edges)
    np.testing.assert_allclose(mixed, plain, atol=1e-5)
    np.testing.assert_allclose(mixed_weights, plain_weights[order], atol=1e-6)


def test_low_precision_values_are_averaged_in_float32():
    scores, value, edges = graph()
    context, weights = attend(scores, value.astype(jnp.bfloat16), edges)
    assert context.dtype == jnp.bfloat16
    assert weights.dtype == np.float32


def test_gat_ranks_neighbours_alike_for_all_nodes_and_gatv2_does_not():
    """Brody et al. 2022, section 3 and theorem 2, on a complete graph."""
    rng = np.random.default_rng(1)
    features = rng.normal(size=(N, H, V)).astype(np.float32)
    weight = rng.normal(size=(2, H, V)).astype(np.float32)
    edges = complete()
    first = np.asarray(jax.jit(gat_scores)(features, *weight, edges))
    second = np.asarray(jax.jit(gatv2_scores)(features, -features, weight[0], edges))
    first, second = (scores.reshape(N, N, H) for scores in (first, second))
    best_by_gat, best_by_gatv2 = first.argmax(1), second.argmax(1)
    assert all(len(set(best_by_gat[:, head].tolist())) == 1 for head in range(H))
    assert any(len(set(best_by_gatv2[:, head].tolist())) > 1 for head in range(H))


def test_gatv2_scores_equal_a_loop():
    rng = np.random.default_rng(4)
    read, reader = (rng.normal(size=(N, H, V)).astype(np.float32) for _ in range(2))
    weight = rng.normal(size=(H, V)).astype(np.float32)
    _, _, edges = graph()
    got = np.asarray(jax.jit(gatv2_scores)(read, reader, weight, edges, slope=0.1))
    for edge, (source, target) in enumerate(zip(*edges[:2], strict=True)):
        for head in range(H):
            hidden = np.float64(read[source, head]) + np.float64(reader[target, head])
            hidden = np.where(hidden > 0, hidden, 0.1 * hidden)
            expected = hidden @ np.float64(weight[head])
            np.testing.assert_allclose(got[edge, head], expected, atol=1e-5)
