"""LSH attention against a loop over the definition, its hashes and its odd rules."""

import functools

import jax
import numpy as np
import pytest

from attnjax.ops.lsh import LSH, buckets, lsh_attention
from attnjax.types import Mask

B, H, S, K, V = 2, 3, 13, 11, 7
OPTIONS = {"block": 2, "clusters": 4, "rounds": 3, "seed": 5}


def arrays(length=S, seed=0):
    """Queries, and keys that are the same at one length, as a layer shares them."""
    rng = np.random.default_rng(seed)
    query, value = (rng.normal(size=(B, H, length, width)) for width in (K, V))
    key = query / np.sqrt(np.square(query).mean(-1, keepdims=True))
    return tuple(np.float32(x) for x in (query, key, value))


attend = jax.jit(
    lsh_attention,
    static_argnames=("block", "clusters", "rounds", "seed", "attend_to_self"),
)


bucketed = jax.jit(buckets, static_argnums=1)


def hashed_by(vectors, length=S, **options):
    return np.asarray(bucketed(vectors, LSH(**options), np.array([[length]])))


def weights_of(query, key, valid=None, causal=False, window=None, **options):
    """Reads the weights off one-hot values."""
    length = query.shape[-2]
    probe = np.broadcast_to(np.eye(length, dtype=np.float32), (B, H, length, length))
    mask = Mask(valid=valid, causal=causal, window=window)
    return np.asarray(attend(query, key, probe, mask, **{**OPTIONS, **options}).context)


def by_hand(query, key, valid, causal, window):
    """The union of what the rounds show, and one softmax over it, in float64."""
    hashed = hashed_by(query, **OPTIONS)
    query, key = (np.asarray(x, np.float64) for x in (query, key))
    weights = np.zeros((B, H, S, S))
    for b, h, t in np.ndindex(B, H, S):
        if not valid[b, t]:
            continue
        seen = set()
        for bucket in hashed[b, h]:
            members = [s for s in range(S) if valid[b, s] and bucket[s] == bucket[t]]
            block = {s: rank // OPTIONS["block"] for rank, s in enumerate(members)}
            seen |= {s for s in members if block[t] - block[s] in (0, 1)}
        seen = {s for s in seen if not (causal and s > t)}
        seen = {s for s in seen if window is None or -window[0] <= s - t <= window[1]}
        seen = sorted(seen - {t}) or [t]
        scores = key[b, h, seen] @ query[b, h, t] / np.sqrt(K)
        powers = np.exp(scores - scores.max())
        weights[b, h, t, seen] = powers / powers.sum()
    return weights


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [None, (4, 2)])
def test_equals_one_softmax_over_the_union_of_the_rounds(causal, window):
    query, key, _ = arrays()
    valid = np.arange(S)[None, :] < np.array([[S], [8]])
    got = weights_of(query, key, valid[:, None], causal, window)
    expected = by_hand(query, key, valid, causal, window)
    assert 0.2 < np.mean(expected[0] > 0) < 0.8 or causal or window
    np.testing.assert_allclose(got, expected, atol=1e-5)


def test_a_key_seen_in_many_rounds_counts_once():
    """The weights are those of a plain softmax over whatever keys they cover."""
    query, key, _ = arrays()
    options = {"clusters": 2, "rounds": 4}  # pairs meet in 0 to 4 of the rounds
    weights = weights_of(query, key, **options)
    hashed = hashed_by(query, **{**OPTIONS, **options})
    meetings = (hashed[..., :, None] == hashed[..., None, :]).sum(2)
    assert set(np.unique(meetings)) == {0, 1, 2, 3, 4}
    scores = np.einsum("bhtk,bhsk->bhts", query, key) / np.sqrt(K)
    powers = np.exp(scores) * (weights > 0)
    expected = powers / powers.sum(-1, keepdims=True)
    np.testing.assert_allclose(weights, expected, atol=1e-5)


def test_own_position_is_read_only_where_there_is_no_other():
    query, key, _ = arrays()
    own = np.arange(S)
    weights = weights_of(query, key, clusters=1, causal=True)
    np.testing.assert_array_equal(weights[..., 0, 0], 1.0)
    np.testing.assert_array_equal(weights[..., own[1:], own[1:]], 0.0)
    weights = weights_of(query, key, clusters=1, causal=True, attend_to_self=True)
    assert np.all(weights[..., own, own] > 0)


def test_what_stands_under_padding_is_in_no_bucket():
    """Masked queries would change the blocks if they were hashed."""
    query, key, value = arrays()
    valid = (np.arange(S) % 3 != 1)[None, None]  # holes, not only an end
    other = np.where(valid[..., None], query, query[..., :1, :])
    for causal in (False, True):
        mask = Mask(valid=valid, causal=causal)
        plain, changed = (
            np.asarray(attend(x, key, value, mask, **OPTIONS).context)
            for x in (query, other)
        )
        np.testing.assert_array_equal(plain, changed)
        is_real = np.broadcast_to(valid[..., None], plain.shape)
        np.testing.assert_array_equal(plain[~is_real], 0.0)


def test_buckets_are_directions():
    query, _, _ = arrays()
    hashed = functools.partial(hashed_by, clusters=8, rounds=4)
    plain = hashed(query)
    assert plain.shape == (B, H, 4, S)
    assert set(np.unique(plain)) == set(range(8))
    np.testing.assert_array_equal(plain, hashed(np.float32(7) * query))
    opposite = hashed(-query)
    np.testing.assert_array_equal((plain + 4) % 8, opposite)


def test_near_vectors_share_buckets_more_often_than_far_ones():
    query, _, _ = arrays(length=200)
    noise = np.random.default_rng(9).normal(size=query.shape)
    hashed = functools.partial(hashed_by, clusters=8, rounds=4)
    shares = [
        np.mean(hashed(query) == hashed(np.float32(query + scale * noise)))
        for scale in (0.0, 0.1, 0.5, 100.0)
    ]
    assert shares[0] == 1.0
    assert shares == sorted(shares, reverse=True)
    assert abs(shares[-1] - 1 / 8) < 0.03


def test_seed_decides():
    query, key, _ = arrays()
    plain = weights_of(query, key)
    np.testing.assert_array_equal(plain, weights_of(query, key))
    assert np.any(plain != weights_of(query, key, seed=6))


def test_default_number_of_buckets_grows_with_the_root_of_the_own_length():
    query, _, _ = arrays(length=150)
    for length, num_buckets in ((1, 2), (13, 4), (36, 6), (150, 12)):
        hashed = hashed_by(query, length, clusters=0)
        assert len(np.unique(hashed)) == num_buckets
        # Of fewer positions there are fewer directions, and these are the same.
        alone = hashed_by(query[:, :, :length], length, clusters=0)
        same_bucket = hashed[..., :length, None] == hashed[..., None, :length]
        np.testing.assert_array_equal(
            alone[..., :, None] == alone[..., None, :], same_bucket
        )


def test_causal_needs_the_number_of_buckets():
    with pytest.raises(ValueError, match="does not know beforehand; give an even"):
        lsh_attention(*arrays(), Mask(causal=True), clusters=0)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"clusters": 3}, "use 4"), ({"rounds": 0}, "rounds"), ({"block": 0}, "block")],
)
def test_impossible_hashes_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        lsh_attention(*arrays(), Mask(), **{**OPTIONS, **options})
