"""Settings for the trainer's tests."""

import jax
import pytest


@pytest.fixture(scope="session", autouse=True)
def _shared_compilations(tmp_path_factory):
    """The same tiny programs come again and again; compile each of them once."""
    names = (
        "jax_compilation_cache_dir",
        "jax_persistent_cache_min_compile_time_secs",
        "jax_persistent_cache_min_entry_size_bytes",
    )
    before = {name: getattr(jax.config, name) for name in names}
    folder = str(tmp_path_factory.mktemp("compilations"))
    for name, value in zip(names, (folder, 0.0, 0), strict=True):
        jax.config.update(name, value)
    yield
    for name, value in before.items():
        jax.config.update(name, value)
