"""Routing attention and its centroids, against loops."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnjax.ops.entry import Sizes
from attnjax.ops.routing import routing_attention, routing_buffers, update_centroids
from attnjax.types import Mask

B, H, S, K, V, C = 2, 3, 11, 5, 7, 3
LENGTHS = (11, 5)


def arrays():
    rngs = jax.random.split(jax.random.key(3), 3)
    shapes = ((B, H, S, K), (B, H, S, K), (B, H, S, V))
    return [jax.random.normal(r, s) for r, s in zip(rngs, shapes, strict=True)]


def ragged():
    valid = jnp.arange(S)[None, :] < jnp.asarray(LENGTHS)[:, None]
    return Mask(valid=valid).over_heads()


def made(clusters=C):
    sizes = Sizes(num_heads=H, key_width=K, value_width=V, max_keys=S)
    shape, init = routing_buffers(sizes, clusters=clusters)["centroids"]
    return init(jax.random.key(1), shape)


attend = jax.jit(routing_attention)
update = jax.jit(update_centroids)


def run(inputs, mask, centroids):
    return attend(*inputs, mask, centroids=centroids).context


def direction(vectors):
    vectors = vectors - vectors.mean(-1, keepdims=True)
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def loop(query, key, value, centroids):
    """Algorithm 1 of the paper for one head of one sentence, float64."""
    size = -(-len(key) // len(centroids))
    found = [[] for _ in query]
    for centroid in centroids:
        readers = np.argsort(-(direction(query) @ centroid))[:size]
        sources = np.argsort(-(direction(key) @ centroid))[:size]
        for reader in readers:
            weights = np.exp(key[sources] @ query[reader] / np.sqrt(K))
            found[reader].append(weights @ value[sources] / weights.sum())
    empty = np.zeros(value.shape[-1])
    return np.stack([np.mean(parts, 0) if parts else empty for parts in found])


def test_is_its_algorithm_on_the_real_positions():
    inputs, centroids = arrays(), made()
    got = run(inputs, ragged(), centroids)
    exact = [np.asarray(x, np.float64) for x in inputs]
    for row, length in enumerate(LENGTHS):
        for head in range(H):
            parts = (x[row, head, :length] for x in exact)
            expected = loop(*parts, np.asarray(centroids[head], np.float64))
            np.testing.assert_allclose(got[row, head, :length], expected, atol=1e-5)
        np.testing.assert_array_equal(got[row, :, length:], 0.0)


def test_clusters_are_of_equal_size_and_without_padding():
    """Weights by one-hot values: a query of one cluster sees as many as it holds."""
    query, key, _ = arrays()
    one_hot = jnp.broadcast_to(jnp.eye(S), (B, H, S, S))
    weights = np.asarray(run((query, key, one_hot), ragged(), made()))
    for row, length in enumerate(LENGTHS):
        np.testing.assert_array_equal(weights[row, :, :, length:], 0.0)
        size = -(-length // C)
        seen = np.unique((weights[row, :, :length] > 0).sum(-1))
        assert seen[seen > 0].min() == size
        assert seen.max() <= C * size


def test_more_padding_changes_nothing():
    inputs, centroids = arrays(), made()
    short = run(inputs, ragged(), centroids)
    longer = [jnp.pad(x, ((0, 0), (0, 0), (0, 9), (0, 0))) + 0.5 for x in inputs]
    longer = [x.at[:, :, :S].set(y) for x, y in zip(longer, inputs, strict=True)]
    valid = jnp.pad(ragged().valid, ((0, 0), (0, 0), (0, 9)))
    padded = run(longer, Mask(valid=valid), centroids)[:, :, :S]
    np.testing.assert_allclose(padded, short, atol=1e-6)


def test_first_centroids_are_directions_about_sqrt_n_many():
    centroids = made(clusters=0)
    assert centroids.shape == (H, 4, K)  # S = 11
    np.testing.assert_allclose(np.linalg.norm(centroids, axis=-1), 1.0, atol=1e-6)
    np.testing.assert_allclose(centroids.mean(-1), 0.0, atol=1e-6)


def test_another_number_of_centroids_is_refused():
    with pytest.raises(ValueError, match=r"\[clusters 2, width 5\], got \(3, 3, 5\)"):
        routing_attention(*arrays(), Mask(), clusters=2, centroids=made())


def updated(centroids, inputs, mask, **decay):
    buffers = {"centroids": centroids}
    rng = jax.random.key(0)
    return update(buffers, *inputs[:2], mask, rng, **decay)["centroids"]


@pytest.mark.parametrize("options", [{"decay": 0.75}, {}])
def test_centroids_move_to_the_mean_of_what_is_nearest(options):
    inputs = arrays()
    start = np.asarray(made(), np.float64)
    got = updated(made(), inputs, ragged(), **options)
    decay = options.get("decay", 0.999)  # the paper's
    for head in range(H):
        near = [[] for _ in range(C)]
        for array in inputs[:2]:
            for row, length in enumerate(LENGTHS):
                for vector in direction(np.asarray(array)[row, head, :length]):
                    near[np.argmax(start[head] @ vector)].append(vector)
        for number in range(C):
            assert near[number]
            mean = np.mean(near[number], 0)
            moved = decay * start[head, number] + (1 - decay) * mean
            np.testing.assert_allclose(
                got[head, number], moved / np.linalg.norm(moved), atol=2e-6
            )


def test_a_centroid_that_nothing_is_near_stays_as_it_is():
    query, key, value = arrays()
    centroids = made()
    towards_first = jnp.broadcast_to(centroids[:, None, :1], (H, B, S, K))
    towards_first = jnp.swapaxes(towards_first, 0, 1)
    inputs = (towards_first, towards_first, value)
    got = updated(centroids, inputs, Mask(), decay=0.5)
    np.testing.assert_array_equal(got[:, 1:], centroids[:, 1:])
    nothing = Mask(valid=jnp.zeros((B, 1, S), bool))
    none = updated(centroids, (query, key, value), nothing)
    np.testing.assert_array_equal(none, centroids)


def test_centroids_find_the_directions_of_the_data():
    """Online k-means on four heaps of directions, one per centroid."""
    rng = np.random.default_rng(0)
    heaps = direction(rng.normal(size=(C, K)))
    centroids = jnp.asarray(direction(heaps + 0.3 * rng.normal(size=(C, K))))[None]
    vectors = heaps[rng.integers(0, C, size=60)] + 0.02 * rng.normal(size=(60, K))
    inputs = [jnp.asarray(vectors)[None]] * 2
    for _ in range(30):
        centroids = updated(centroids, inputs, Mask(), decay=0.5)
    np.testing.assert_allclose(centroids[0], heaps, atol=0.05)
