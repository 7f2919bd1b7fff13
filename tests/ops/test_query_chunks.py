"""Queries in chunks give what all at once give."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnjax.ops.query_chunks import over_query_chunks

T, K = 7, 5


@pytest.mark.parametrize("chunk", [1, 3, 7, 100])
def test_chunks_change_neither_value_nor_gradient(chunk):
    query = jax.random.normal(jax.random.key(0), (2, 3, T, K))
    position = jnp.arange(T)[:, None]

    def attend(some, place):
        return jnp.cumsum(jnp.sin(some) * (1 + place[None, None]), axis=-1)

    def total(query, function):
        context = function(query)
        return jnp.square(context).sum(), context

    def run(function):
        return jax.jit(jax.grad(lambda q: total(q, function), has_aux=True))(query)

    whole = run(lambda q: attend(q, position))
    parts = run(lambda q: over_query_chunks(attend, q, position, chunk=chunk))
    for got, expected in zip(parts, whole, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5)


def test_a_chunk_of_nothing_is_refused():
    with pytest.raises(ValueError, match="chunk must be at least 1, got 0"):
        over_query_chunks(jnp.sin, jnp.ones((T, K)), chunk=0)
