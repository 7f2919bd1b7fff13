"""Axial attention on grids and on folded sequences, against loops."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnjax.ops.attend import dense_attention
from attnjax.ops.axial import axial_attention, axial_attention_2d
from attnjax.types import Mask

K, V = 5, 7


def arrays(*leading):
    rngs = jax.random.split(jax.random.key(3), 3)
    widths = (K, K, V)
    return [
        jax.random.normal(rng, (*leading, width))
        for rng, width in zip(rngs, widths, strict=True)
    ]


def attend(query, key, value):
    """One query, float64."""
    weights = np.exp(np.stack(key) @ query / np.sqrt(K))
    return weights @ np.stack(value) / weights.sum()


def loop(query, key, value, cells):
    """From the equation: the context of each of the cells that are real."""
    first = {
        (r, c): attend(
            query[r, c],
            [key[x] for x in cells if x[0] == r],
            [value[x] for x in cells if x[0] == r],
        )
        for r, c in cells
    }
    return {
        (r, c): attend(
            query[r, c],
            [key[x] for x in cells if x[1] == c],
            [first[x] for x in cells if x[1] == c],
        )
        for r, c in cells
    }


def test_grid_is_its_equation_with_cells_left_out():
    rows, columns = 3, 4
    valid = np.ones((rows, columns), bool)
    valid[1, 2] = valid[0, 0] = valid[2, 3] = False
    inputs = arrays(2, rows, columns)
    got = jax.jit(axial_attention_2d)(*inputs, jnp.asarray(valid)[None]).context
    for one in range(2):
        exact = [np.asarray(x[one], np.float64) for x in inputs]
        expected = loop(*exact, list(zip(*np.nonzero(valid), strict=True)))
        for cell, context in expected.items():
            np.testing.assert_allclose(got[one][cell], context, atol=1e-5)


@pytest.mark.parametrize("rows", [0, 1, 2, 5, 40])
def test_every_sentence_is_folded_by_its_own_length(rows):
    """A batch of all lengths from 1 to 13, against a grid made by hand for each."""
    longest = 13
    lengths = np.arange(1, longest + 1)
    inputs = arrays(longest, longest)
    mask = Mask(valid=jnp.arange(longest)[None] < lengths[:, None])
    run = jax.jit(functools.partial(axial_attention, rows=rows))
    got = run(*inputs, mask).context
    for one, length in enumerate(lengths):
        own_rows = rows or math.ceil(math.sqrt(length))
        columns = math.ceil(length / own_rows)
        cells = [divmod(place, columns) for place in range(length)]
        grids = []
        for array in inputs:
            grid = np.zeros((own_rows, columns, array.shape[-1]))
            for place, cell in enumerate(cells):
                grid[cell] = array[one, place]
            grids.append(grid)
        expected = loop(*grids, cells)
        for place, cell in enumerate(cells):
            np.testing.assert_allclose(got[one, place], expected[cell], atol=1e-5)


def test_padding_in_between_is_no_cell():
    inputs = arrays(1, 6)
    valid = jnp.asarray([[True, True, False, True, True, False]])
    run = jax.jit(functools.partial(axial_attention, rows=2))
    got = run(*inputs, Mask(valid=valid)).context
    cells = [divmod(place, 3) for place in (0, 1, 3, 4)]  # five places, two rows
    grids = [np.asarray(x[0], np.float64).reshape(2, 3, -1) for x in inputs]
    for cell, context in loop(*grids, cells).items():
        np.testing.assert_allclose(got[0, cell[0] * 3 + cell[1]], context, atol=1e-5)


@pytest.mark.parametrize("rows", [1, 6])
def test_one_row_or_one_column_is_dense_attention(rows):
    inputs = arrays(2, 3, 6)
    got = jax.jit(functools.partial(axial_attention, rows=rows))(*inputs, Mask())
    expected = dense_attention(*inputs, Mask()).context
    np.testing.assert_allclose(got.context, expected, atol=1e-5)


def test_two_steps_reach_every_cell():
    query, key, value = arrays(3, 4)

    def context_of(value):
        return axial_attention_2d(query, key, value).context.sum(-1).reshape(-1)

    influence = jax.jit(jax.jacobian(context_of))(value).sum(-1)
    assert np.all(influence > 0.0)


def test_keys_act_along_their_row_and_the_column_of_the_query():
    """A key in another row and column is reached through the value only."""
    query, key, value = arrays(3, 4)

    def context_of(key):
        return axial_attention_2d(query, key, value).context[1, 2].sum()

    influence = np.abs(jax.jit(jax.grad(context_of))(key)).sum(-1)
    assert np.all(influence > 0.0)  # rows are read before columns are

    def of_query(query):
        return axial_attention_2d(query, key, value).context[1, 2].sum()

    used = np.abs(jax.jit(jax.grad(of_query))(query)).sum(-1) > 0.0
    expected = np.zeros((3, 4), bool)
    expected[:, 2] = True  # the queries of the own column read their rows
    np.testing.assert_array_equal(used, expected)
