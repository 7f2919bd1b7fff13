"""Longformer attention against Hugging Face's, and where it cannot go."""

import functools
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnjax.ops.attend import dense_attention
from attnjax.ops.local_global import (
    GlobalProjections,
    local_global_attention,
    longformer_attention,
)
from attnjax.types import Mask

GOLDEN = Path(__file__).parents[1] / "golden" / "hf_longformer_self.npz"


def test_equals_hugging_face_with_projections_for_global_tokens():
    golden = np.load(GOLDEN)
    num_heads = int(golden["num_heads"])
    num_global = int(golden["is_global"][0].sum())
    first = np.arange(golden["is_global"].shape[1]) < num_global
    assert np.all(golden["is_global"] == first[None])

    def projected(name):
        x = golden["hidden"] @ golden[f"param:{name}.weight"].T
        x = x + golden[f"param:{name}.bias"][None, None]
        return np.moveaxis(x.reshape(*x.shape[:2], num_heads, -1), 1, 2)

    options = {"window": int(golden["window"]) // 2, "num_global": num_global}
    run = functools.partial(longformer_attention, **options)
    attended = jax.jit(run)(
        *map(projected, ("query", "key", "value")),
        Mask(valid=golden["valid"]).over_heads(),
        GlobalProjections(
            *map(projected, ("query_global", "key_global", "value_global"))
        ),
    )
    context = np.moveaxis(attended.context, 1, 2).reshape(golden["output"].shape)
    real = golden["valid"]
    np.testing.assert_allclose(context[real], golden["output"][real], atol=1e-5)


dense = jax.jit(dense_attention)


@pytest.mark.parametrize("options", [{"window": 12}, {"window": 1, "num_global": 12}])
def test_limits_equal_dense(options):
    inputs = np.random.default_rng(0).normal(size=(3, 2, 13, 5)).astype(np.float32)
    attend = jax.jit(functools.partial(local_global_attention, **options))
    for mask in (Mask(), Mask(causal=True)):
        got = attend(*inputs, mask).context
        expected = dense(*inputs, mask).context
        np.testing.assert_allclose(got, expected, atol=1e-5)


def test_options_out_of_range_are_refused():
    x = jnp.zeros((3, 2))
    for options in ({"window": 0}, {"num_global": -1}):
        with pytest.raises(ValueError, match="window must be at least 1"):
            local_global_attention(x, x, x, Mask(), **options)
