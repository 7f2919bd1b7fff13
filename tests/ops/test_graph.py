"""Graph attention: PyTorch Geometric's numbers, isolated nodes, what GATv2 adds."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnjax.ops.attend import attend
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


def graph(seed=0):
    """No edge enters the last node."""
    rngs = jax.random.split(jax.random.key(seed), 4)
    source = jax.random.randint(rngs[0], (E,), 0, N)
    target = jax.random.randint(rngs[1], (E,), 0, N - 1)
    scores = jax.random.normal(rngs[2], (E, H))
    return scores, jax.random.normal(rngs[3], (N, H, V)), Edges(source, target)


@pytest.mark.parametrize("heads", ["concat", "mean"])
def test_equals_pytorch_geometric(heads):
    with np.load(GOLDEN / f"pyg_gat_{heads}.npz") as file:
        golden = dict(file)
    nodes, num_heads = len(golden["features"]), int(golden["heads"])
    edges = with_self_loops(Edges(*golden["edges"]), nodes)
    np.testing.assert_array_equal(jnp.stack(edges[:2]), golden["edges_with_self_loops"])
    features = golden["features"] @ golden["param:lin.weight"].T
    features = features.reshape(nodes, num_heads, -1)
    halves = golden["param:att_src"][0], golden["param:att_dst"][0]
    scores = gat_scores(features, *halves, edges)
    context, weights = graph_attention(scores, features, edges, nodes)
    np.testing.assert_allclose(weights, golden["attention"], atol=1e-6)
    joined = context.reshape(nodes, -1) if heads == "concat" else context.mean(1)
    output = joined + golden["param:bias"][None]
    np.testing.assert_allclose(output, golden["output"], atol=1e-5)


def test_equals_a_loop_over_the_nodes():
    scores, value, edges = graph()
    context, weights = graph_attention(scores, value, edges, N)
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
    scores = scores.at[0].set(1e4)  # would overflow without its maximum

    def total(scores, value):
        context, weights = graph_attention(scores, value, edges, N)
        return jnp.square(context).sum(), context

    gradients, context = jax.grad(total, argnums=(0, 1), has_aux=True)(scores, value)
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
    expected = graph_attention(scores, value, edges, N)
    more = jnp.array([0, 3])
    filled = Edges(
        jnp.concatenate([edges.source, more]),
        jnp.concatenate([edges.target, jnp.array([N - 1, 2])]),
        jnp.arange(E + 2) < E,
    )

    def total(scores):
        scores = jnp.concatenate([scores, jnp.full((2, H), 90.0)])
        got = graph_attention(scores, value, filled, N)
        return got.context.sum(), got

    gradient, got = jax.grad(total, has_aux=True)(scores)
    np.testing.assert_array_equal(got.context, expected.context)
    np.testing.assert_array_equal(got.weights[:E], expected.weights)
    np.testing.assert_array_equal(got.weights[E:], 0.0)
    assert np.all(np.isfinite(gradient))


def test_complete_graph_equals_dense_attention():
    _, value, _ = graph()
    source, target = (x.reshape(-1) for x in jnp.meshgrid(jnp.arange(N), jnp.arange(N)))
    scores_hts = jax.random.normal(jax.random.key(7), (H, N, N))
    scores_eh = scores_hts[:, target, source].T
    got = graph_attention(scores_eh, value, Edges(source, target), N)
    dense = attend(scores_hts, jnp.moveaxis(value, 0, 1), Mask())
    np.testing.assert_allclose(
        jnp.moveaxis(got.context, 0, 1), dense.context, atol=1e-5
    )
    np.testing.assert_allclose(got.weights.T.reshape(H, N, N), dense.weights, atol=1e-6)


def test_order_of_edges_does_not_matter():
    scores, value, edges = graph()
    order = jax.random.permutation(jax.random.key(3), E)
    mixed = graph_attention(
        scores[order], value, Edges(edges.source[order], edges.target[order]), N
    )
    plain = graph_attention(scores, value, edges, N)
    np.testing.assert_allclose(mixed.context, plain.context, atol=1e-5)
    np.testing.assert_allclose(mixed.weights, plain.weights[order], atol=1e-6)


def test_low_precision_values_are_averaged_in_float32():
    scores, value, edges = graph()
    low = graph_attention(scores, value.astype(jnp.bfloat16), edges, N)
    assert low.context.dtype == jnp.bfloat16
    assert low.weights.dtype == jnp.float32


def test_gat_ranks_neighbours_alike_for_all_nodes_and_gatv2_does_not():
    """Brody et al. 2022, section 3 and theorem 2, on a complete graph."""
    features = jax.random.normal(jax.random.key(1), (N, H, V))
    weight = jax.random.normal(jax.random.key(2), (2, H, V))
    source, target = (x.reshape(-1) for x in jnp.meshgrid(jnp.arange(N), jnp.arange(N)))
    edges = Edges(source, target)
    first = gat_scores(features, *weight, edges).reshape(N, N, H)
    second = gatv2_scores(features, -features, weight[0], edges).reshape(N, N, H)
    best_by_gat, best_by_gatv2 = first.argmax(1), second.argmax(1)
    assert all(len(set(best_by_gat[:, head].tolist())) == 1 for head in range(H))
    assert any(len(set(best_by_gatv2[:, head].tolist())) > 1 for head in range(H))


def test_gatv2_scores_equal_a_loop():
    rngs = jax.random.split(jax.random.key(4), 3)
    read, reader = (jax.random.normal(rng, (N, H, V)) for rng in rngs[:2])
    weight = jax.random.normal(rngs[2], (H, V))
    _, _, edges = graph()
    got = gatv2_scores(read, reader, weight, edges, slope=0.1)
    for edge, (source, target) in enumerate(zip(*edges[:2], strict=True)):
        for head in range(H):
            hidden = np.float64(read[source, head]) + np.float64(reader[target, head])
            hidden = np.where(hidden > 0, hidden, 0.1 * hidden)
            expected = hidden @ np.float64(weight[head])
            np.testing.assert_allclose(got[edge, head], expected, atol=1e-5)
