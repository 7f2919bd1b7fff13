"""No sentence depends on what it is padded with, at the options that users get."""

import functools

import jax
import numpy as np
import pytest

from attnjax.config import MechanismConfig
from attnjax.ops.catalog import CATALOG
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
    options = line.chosen(vars(MechanismConfig()), SIZES)
    owned = line.draw(jax.random.key(1), SIZES, options)
    run = jax.jit(functools.partial(line.attend, **options, **owned))
    valid = np.arange(PADDED)[None, :] < np.array(LENGTHS)[:, None]
    padded = np.asarray(run(*arrays(), Mask(valid=valid).over_heads()).context)
    for row, length in enumerate(LENGTHS):
        inputs = [array[row : row + 1, :, :length] for array in arrays()]
        alone = np.asarray(run(*inputs, Mask()).context)
        np.testing.assert_allclose(padded[row, :, :length], alone[0], atol=2e-5)
