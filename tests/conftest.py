"""Settings for the whole suite: strict ranks, a CPU of eight virtual devices."""

import os

os.environ["XLA_FLAGS"] = (
    os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"
)
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax  # noqa: E402
import pytest  # noqa: E402


@pytest.fixture(autouse=True)
def _strict_rank_promotion():
    """Broadcasting over a missing axis is an error in every test."""
    with jax.numpy_rank_promotion("raise"):
        yield
