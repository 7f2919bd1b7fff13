"""What the laws do not see of top-k attention: which keys are kept."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnjax.ops.relative import alibi
from attnjax.ops.topk import top_k_attention
from attnjax.types import Mask

B, H, T, S, K, V = 2, 3, 5, 7, 11, 13


def arrays(num_queries=T, seed=0):
    rngs = jax.random.split(jax.random.key(seed), 3)
    shapes = ((B, H, num_queries, K), (B, H, S, K), (B, H, S, V))
    return [jax.random.normal(*pair) for pair in zip(rngs, shapes, strict=True)]


def by_hand(query, key, value, allowed, top_k):
    """Sorts the allowed scores of each query, in float64."""
    query, key, value = (np.asarray(x, np.float64) for x in (query, key, value))
    context = np.zeros((*query.shape[:-1], value.shape[-1]))
    for place in np.ndindex(query.shape[:-1]):
        b, h, _ = place
        scores = key[b, h] @ query[place] / np.sqrt(query.shape[-1])
        seen = [s for s in range(len(scores)) if allowed[place][s]]
        best = sorted(seen, key=lambda s: (-scores[s], s))[:top_k]
        powers = np.exp(scores[best] - scores[best].max()) if best else np.zeros(0)
        for s, power in zip(best, powers, strict=True):
            context[place] += power / powers.sum() * value[b, h, s]
    return context


@pytest.mark.parametrize("top_k", [1, 3, 100])
@pytest.mark.parametrize("chunk", [2, 256])
def test_equals_a_sort_of_the_allowed_scores(top_k, chunk):
    query, key, value = arrays()
    valid = np.ones((B, S), bool)
    valid[1, 4:] = False
    mask = Mask(valid=valid, causal=True, window=(4, 0)).over_heads()
    offset = np.arange(S)[None, :] - (np.arange(T) + S - T)[:, None]
    allowed = (offset <= 0) & (offset >= -4) & valid[:, None, None, :]
    allowed = np.broadcast_to(allowed, (B, H, T, S))
    got = top_k_attention(query, key, value, mask, top_k=top_k, chunk=chunk)
    expected = by_hand(query, key, value, allowed, top_k)
    np.testing.assert_allclose(got.context, expected, atol=1e-5)


def test_each_query_reads_exactly_k_keys_and_of_equal_ones_the_first():
    query, key, _ = arrays()
    probe = jnp.broadcast_to(jnp.eye(S), (B, H, S, S))
    weights = top_k_attention(query, key, probe, Mask(), top_k=3).context
    np.testing.assert_array_equal((weights > 0).sum(-1), 3)
    equal = top_k_attention(query, key * 0, probe, Mask(), top_k=3).context
    np.testing.assert_allclose(
        equal, np.broadcast_to([1 / 3] * 3 + [0] * 4, (B, H, T, S))
    )


def test_keys_that_are_not_kept_get_no_gradient():
    query, key, value = arrays()
    probe = jnp.broadcast_to(jnp.eye(S), (B, H, S, S))
    is_kept = top_k_attention(query, key, probe, Mask(), top_k=2).context[0, 0, 0] > 0

    def first_query(key, value):
        context = top_k_attention(query, key, value, Mask(), top_k=2).context
        return jnp.square(context[0, 0, 0]).sum()

    for gradient in jax.grad(first_query, argnums=(0, 1))(key, value):
        reached = np.abs(gradient[0, 0]).sum(-1) > 0
        np.testing.assert_array_equal(reached, is_kept)
        np.testing.assert_array_equal(gradient[1], 0.0)


def test_bias_decides_which_keys_are_best():
    _, key, _ = arrays(S)
    probe = jnp.broadcast_to(jnp.eye(S), (B, H, S, S))
    mask, bias = Mask(causal=True), alibi(H)
    near = top_k_attention(key * 0, key, probe, mask, top_k=2, bias=bias).context
    is_near = np.broadcast_to(np.arange(S) >= S - 2, (B, H, S))
    np.testing.assert_array_equal(near[..., -1, :] > 0, is_near)


def test_no_leading_axes():
    query, key, value = (x[0, 0] for x in arrays())
    alone = top_k_attention(query, key, value, Mask(), top_k=2, chunk=2).context
    whole = top_k_attention(*arrays(), Mask(), top_k=2).context[0, 0]
    np.testing.assert_allclose(alone, whole, atol=1e-6)


def test_no_key_at_all_is_refused():
    with pytest.raises(ValueError, match="top_k must be at least 1"):
        top_k_attention(*arrays(), Mask(), top_k=0)
