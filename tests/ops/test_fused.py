"""When cuDNN's kernel may stand in, and that it is asked for the same thing."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnjax.ops import chunked
from attnjax.ops.attend import dense_attention
from attnjax.ops.fused import kernel_attention, kernel_fits
from attnjax.types import Mask

B, H, T, S, K = 2, 3, 5, 7, 16


def arrays(num_queries=S, width=K, dtype=jnp.bfloat16):
    rng = np.random.default_rng(0)
    shapes = ((B, H, num_queries, width), (B, H, S, width), (B, H, S, width))
    return [rng.normal(size=shape).astype(dtype) for shape in shapes]


@pytest.mark.parametrize(
    ("inputs", "mask", "has_bias", "fits"),
    [
        (arrays(), Mask(), False, True),
        (arrays(dtype=jnp.float16), Mask(causal=True), False, True),
        (arrays(num_queries=T), Mask(), False, True),
        (arrays(num_queries=T), Mask(causal=True), False, False),
        (arrays(dtype=jnp.float32), Mask(), False, False),
        (arrays(width=12), Mask(), False, False),
        (arrays(width=136), Mask(), False, False),
        (arrays(), Mask(), True, False),
        (arrays(), Mask(window=(1, 0), causal=True), False, False),
        (arrays(), Mask(valid=np.ones((B, 1, S), bool)), False, False),
    ],
)
def test_kernel_is_used_only_within_its_limits(inputs, mask, has_bias, fits):
    assert kernel_fits(*inputs, mask, has_bias=has_bias) is fits


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("leading", [(), (H,), (B, H)])
def test_kernel_is_asked_for_dense_attention(causal, leading):
    inputs = [array[(0,) * (2 - len(leading))] for array in arrays(dtype=jnp.float32)]

    @jax.jit
    def run(*inputs):
        got = kernel_attention(*inputs, causal=causal, implementation="xla")
        return got, dense_attention(*inputs, Mask(causal=causal)).context

    got, expected = run(*inputs)
    np.testing.assert_allclose(got, expected, atol=1e-5)


def test_chunked_attention_calls_the_kernel_on_a_gpu_only(monkeypatch):
    calls = []

    def kernel(query, key, value, *, causal):
        calls.append(causal)
        return kernel_attention(query, key, value, causal=causal, implementation="xla")

    monkeypatch.setattr(chunked, "kernel_attention", kernel)
    inputs = arrays()

    def attend(mask):  # traced anew by every call
        run = jax.jit(lambda *inputs: chunked.chunked_attention(*inputs, mask, chunk=3))
        return np.asarray(run(*inputs).context)

    plain = attend(Mask(causal=True))
    assert calls == []
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    fused = attend(Mask(causal=True))
    assert calls == [True]
    np.testing.assert_allclose(
        plain.astype(np.float32), fused.astype(np.float32), atol=0.02
    )
    attend(Mask(window=(1, 1)))
    assert calls == [True]
