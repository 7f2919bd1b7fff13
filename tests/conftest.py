"""Settings for the whole suite: strict ranks, a CPU of eight virtual devices."""

import contextlib
import gc
import importlib.metadata
import importlib.util
import os
import resource
from pathlib import Path

# Tests compile far more than they compute: leave out LLVM's optimisations and XLA's
# emitters of fused loops, which take half of the time, and keep what was compiled.
# `tests/test_users_settings.py` runs a part of them again with neither left out.
_flags = ["--xla_force_host_platform_device_count=8"]
if "ATTNJAX_TEST_AS_USERS" not in os.environ:
    _flags.append("--xla_backend_optimization_level=0")
    _flags.append("--xla_cpu_parallel_codegen_split_count=1")
    if importlib.metadata.version("jaxlib").startswith("0.10."):  # later: no such flag
        _flags.append("--xla_cpu_use_fusion_emitters=false")
os.environ["XLA_FLAGS"] = " ".join([os.environ.get("XLA_FLAGS", ""), *_flags])
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault(
    "JAX_COMPILATION_CACHE_DIR",
    str(Path(__file__).parents[1] / ".pytest_cache" / "jax"),
)
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")

import jax  # noqa: E402
import pytest  # noqa: E402

# Broadcasting over a missing axis is an error in every test, and in what the fixtures
# of a module compile for them: a program serves under the settings it was made with.
jax.config.update("jax_numpy_rank_promotion", "raise")
# Tracing makes many objects and few cycles: look for those a hundred times less often.
gc.set_threshold(70_000, 10, 10)


@pytest.fixture
def files_of_at_most():
    """A context in which no file can grow beyond so many bytes, as on a full disk."""

    @contextlib.contextmanager
    def files_of_at_most(num_bytes):
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, before[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)

    return files_of_at_most


@pytest.fixture
def fake_wmt(tmp_path, monkeypatch):
    """The module ``tests/fake_wmt.py``, and archives that TFDS takes for the real ones.

    Returns the folder with the archives.
    """
    module = _module("fake_wmt")
    folder = tmp_path / "archives"
    module.patch_checksums(monkeypatch, module.make_archives(folder))
    return folder


@pytest.fixture(scope="session")
def with_other_ids():
    """Makes tokenizers whose special ids are not ours, see ``tests/other_ids.py``."""
    return _module("other_ids").with_other_ids


@pytest.fixture(scope="session")
def linear_problem():
    """The module ``tests/linear_problem.py``: a task and its batches."""
    return _module("linear_problem")


@pytest.fixture(scope="session")
def linear_task(linear_problem):
    return linear_problem.LinearTask


@pytest.fixture(scope="session")
def fake_batches(linear_problem):
    return linear_problem.FakeBatches


@pytest.fixture(scope="session")
def batch_of(linear_problem):
    return linear_problem.make_batch


@pytest.fixture(scope="session")
def adam():
    """An optimiser for the linear problem."""
    from attnjax.config import OptimizerConfig, ScheduleConfig
    from attnjax.training.optimizers import make_optimizer

    schedule = ScheduleConfig(kind="rsqrt", peak=0.1, warmup_steps=3)
    return make_optimizer(OptimizerConfig(schedule=schedule), num_steps=100)


def _module(name):
    """A module of this folder, which is not on the path."""
    path = Path(__file__).parent / f"{name}.py"
    specification = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module
