import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnjax.ops.positions import sinusoids

T, D = 7, 6


def by_loops(interleaved):
    table = np.zeros((T, D))
    for position in range(T):
        for pair in range(D // 2):
            angle = position / 10_000 ** (2 * pair / D)
            sine = 2 * pair if interleaved else pair
            cosine = sine + 1 if interleaved else pair + D // 2
            table[position, sine] = math.sin(angle)
            table[position, cosine] = math.cos(angle)
    return table


@pytest.mark.parametrize("layout", ["interleaved", "halves"])
def test_equals_the_formula_by_loops(layout):
    table = sinusoids(jnp.arange(T), D, layout)
    np.testing.assert_allclose(table, by_loops(layout == "interleaved"), atol=1e-6)


def test_interleaved_is_the_default_with_sines_at_even_channels():
    start = sinusoids(jnp.zeros((2, 3), int), D)
    np.testing.assert_array_equal(start, np.tile([0.0, 1.0], (2, 3, D // 2)))


def test_far_positions_are_still_right():
    far = jnp.array([9_999])
    exact = [math.sin(9_999 / 10_000 ** (2 / D)), math.cos(9_999 / 10_000 ** (2 / D))]
    np.testing.assert_allclose(sinusoids(far, D)[0, 2:4], exact, atol=1e-4)


def test_odd_width_is_refused():
    with pytest.raises(ValueError, match="even width"):
        sinusoids(jnp.arange(T), 5)


def test_jit_equals_eager():
    compiled = jax.jit(sinusoids, static_argnums=1)(jnp.arange(T), D)
    np.testing.assert_allclose(compiled, sinusoids(jnp.arange(T), D), atol=1e-6)
