"""Clustered queries: the grouping, and the attention against loops."""

import jax
import numpy as np
import pytest

from attnjax.ops.attend import dense_attention
from attnjax.ops.cluster import clustered_attention, group_queries
from attnjax.types import Mask

B, H, S, K, V = 2, 3, 11, 5, 7
LENGTHS = (11, 6)


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def arrays():
    return [normal(B, H, S, width, seed=n) for n, width in enumerate((K, K, V))]


def ragged():
    valid = np.arange(S)[None, :] < np.asarray(LENGTHS)[:, None]
    return Mask(valid=valid).over_heads()


STATIC = ("clusters", "rounds", "seed", "top_k", "chunk")
attend = jax.jit(clustered_attention, static_argnames=STATIC)
group = jax.jit(group_queries, static_argnames=STATIC[:3])


def grouped(query, valid, **options):
    return jax.device_get(group(query, valid, **options))


def run(inputs, mask, **options):
    return jax.device_get(attend(*inputs, mask, **options)).context


def everywhere(mask):
    return np.broadcast_to(mask.valid, (B, H, S))


def softmax(scores):
    weights = np.exp(scores - scores.max())
    return weights / weights.sum()


def loop(query, key, value, own, top_k):
    """Sections 3.2 and 3.3 of the paper for one head of one sentence, float64."""
    context = []
    for position in range(len(query)):
        members = [p for p in range(len(query)) if own[p] == own[position]]
        mean = np.mean([query[p] for p in members], axis=0)
        weights = softmax(key @ mean / np.sqrt(K))
        best = np.argsort(-weights)[: min(top_k, len(key))]
        if top_k:
            mass = weights[best].sum()
            weights[best] = mass * softmax(key[best] @ query[position] / np.sqrt(K))
        context.append(weights @ value)
    return np.stack(context)


@pytest.mark.parametrize("top_k", [0, 3, 8])
def test_is_its_equation_given_the_groups(top_k):
    """The top 8 are more keys than the shorter sentence has."""
    inputs = arrays()
    options = {"clusters": 3, "rounds": 2, "seed": 1}
    groups = grouped(inputs[0], everywhere(ragged()), **options)
    got = run(inputs, ragged(), top_k=top_k, chunk=4, **options)
    exact = [np.asarray(x, np.float64) for x in inputs]
    for row, length in enumerate(LENGTHS):
        for head in range(H):
            own = groups.own[row, head, :length]
            parts = (x[row, head, :length] for x in exact)
            expected = loop(*parts, own, top_k)
            np.testing.assert_allclose(got[row, head, :length], expected, atol=1e-5)


def test_every_real_query_is_in_one_cluster_and_padding_in_none():
    member = grouped(arrays()[0], everywhere(ragged()), clusters=3).member
    np.testing.assert_array_equal(member.sum(-2), everywhere(ragged()))


def test_separate_heaps_are_found():
    """Each stretch of four queries is a heap, so each gets a first centre."""
    rng = np.random.default_rng(0)
    heaps = np.repeat(10 * rng.normal(size=(3, K)), 4, axis=0)
    query = (heaps + 0.1 * rng.normal(size=heaps.shape)).astype(np.float32)
    for seed in range(3):
        groups = grouped(query, np.ones(12, bool), clusters=3, rounds=1, seed=seed)
        np.testing.assert_array_equal(groups.own, np.repeat([0, 1, 2], 4))


def test_many_rounds_reach_a_fixed_point_of_k_means():
    query = normal(40, 2)
    before, after = (
        grouped(query, np.ones(40, bool), clusters=4, rounds=n).own for n in (1, 30)
    )

    def distances(own):
        means = np.stack([query[own == c].mean(0) for c in range(4)])
        return np.square(query[:, None] - means).sum(-1)

    np.testing.assert_array_equal(distances(after).argmin(-1), after)
    assert np.any(distances(before).argmin(-1) != before)


def test_a_seed_gives_the_same_groups_and_another_seed_others():
    query = normal(200, K)
    owns = [
        grouped(query, np.ones(200, bool), clusters=20, seed=seed).own
        for seed in (0, 0, 1)
    ]
    np.testing.assert_array_equal(owns[0], owns[1])
    assert np.mean(owns[0] != owns[2]) > 0.2


def test_default_number_of_clusters_follows_the_sentence_not_its_batch():
    """Sixteen real positions have four clusters, whatever the padding."""
    query, key, value = (
        normal(H, 16, width, seed=n) for n, width in enumerate((K, K, V))
    )
    alone = run((query, key, value), Mask(), top_k=2)
    rows = [
        np.pad(x, ((0, 0), (0, 13), (0, 0)), constant_values=9.0)
        for x in (query, key, value)
    ]
    padded = run(rows, Mask(valid=np.arange(29)[None] < 16), top_k=2)
    np.testing.assert_allclose(padded[:, :16], alone, atol=1e-5)
    groups = grouped(query, np.ones((H, 16), bool))
    assert groups.member.shape == (H, 4, 16)


def test_queries_that_are_equal_in_a_cluster_lose_nothing():
    _, key, value = arrays()
    query = np.float32(5.0) * np.eye(3, K, dtype=np.float32)[np.arange(S) * 3 // S]
    inputs = (np.broadcast_to(query, key.shape), key, value)  # three kinds
    got = run(inputs, Mask(), top_k=0, clusters=3)
    expected = jax.jit(dense_attention)(*inputs, Mask()).context
    np.testing.assert_allclose(got, expected, atol=1e-5)


def test_plain_clustered_queries_share_their_context():
    inputs = arrays()
    own = grouped(inputs[0], np.ones((B, H, S), bool), clusters=2).own
    got = run(inputs, Mask(), top_k=0, clusters=2)
    distance = np.abs(got[..., :, None, :] - got[..., None, :, :]).max(-1)
    together = own[..., :, None] == own[..., None, :]
    np.testing.assert_array_equal(distance < 1e-5, together)
