"""No sentence depends on what it is padded with, at the options that users get."""

import functools

import jax
import numpy as np
import pytest

from attnjax.ops.catalog import CATALOG, MECHANISMS
from attnjax.ops.entry import Sizes
from attnjax.types import Mask

H, K, V = 2, 8, 5
LENGTHS, PADDED = (333, 5), 530  # more than any default option, and less than any
SIZES = Sizes(num_heads=H, key_width=K, value_width=V, max_keys=600)


@functools.cache
def arrays():
    rng = np.random.default_rng(0)
    shapes = [(len(LENGTHS), H, PADDED, width) for width in (K, K, V)]
    return [rng.normal(size=shape).astype(np.float32) for shape in shapes]


@pytest.mark.parametrize("name", CATALOG)
def test_alone_equals_in_a_padded_batch_at_the_defaults(name):
    line = CATALOG[name]
    options = line.chosen(sizes=SIZES)
    owned = line.draw(jax.random.key(1), SIZES)
    run = jax.jit(functools.partial(line.attend, **options, **owned))
    valid = np.arange(PADDED)[None, :] < np.array(LENGTHS)[:, None]
    padded = np.asarray(run(*arrays(), Mask(valid=valid).over_heads()).context)
    for row, length in enumerate(LENGTHS):
        inputs = [array[row : row + 1, :, :length] for array in arrays()]
        alone = np.asarray(run(*inputs, Mask()).context)
        np.testing.assert_allclose(padded[row, :, :length], alone[0], atol=2e-5)


@pytest.mark.parametrize(
    "name", [name for name, line in CATALOG.items() if line.incremental]
)
def test_steps_do_not_depend_on_the_size_of_the_cache(name):
    line, num_steps = CATALOG[name], 9
    chosen = MECHANISMS.fill(name, {"clusters": 4, "block": 2})
    options = line.chosen(chosen, SIZES)
    owned = line.draw(jax.random.key(1), SIZES, chosen)
    tokens = [np.moveaxis(array[:, :, :num_steps, None], 2, 0) for array in arrays()]

    @functools.partial(jax.jit, static_argnums=0)
    def run(max_tokens):
        begin, step, _ = line.incremental
        cache = begin(len(LENGTHS), max_tokens, SIZES, np.float32, **options)

        def advance(carry, token):
            position, cache = carry
            context, cache = step(*token, cache, position, **options, **owned)
            return (position + 1, cache), context

        start = np.zeros(len(LENGTHS), np.int32), cache
        return jax.lax.scan(advance, start, tokens)[1]

    np.testing.assert_allclose(run(num_steps), run(50), atol=1e-5)
