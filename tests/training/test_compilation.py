"""The persistent cache is an effect that only a call has."""

import os
import subprocess
import sys

SCRIPT = """
import sys
from pathlib import Path
import jax
from attnjax.training.compilation import enable_compilation_cache
assert jax.config.jax_compilation_cache_dir is None, "importing set the cache"
enable_compilation_cache(Path(sys.argv[1]))
hits = []
jax.monitoring.register_event_listener(
    lambda event, **_: hits.append(event) if event.endswith("/cache_hits") else None
)
jax.jit(lambda x: x * 3 + 1)(2.0)
print(len(hits))
"""


def test_the_second_process_compiles_nothing(tmp_path):
    folder = tmp_path / "new" / "cache"
    # Without the cache of this suite.
    environment = {k: v for k, v in os.environ.items() if not k.startswith("JAX_")}
    hits = [
        int(
            subprocess.run(
                [sys.executable, "-c", SCRIPT, str(folder)],
                capture_output=True,
                text=True,
                check=True,
                env=environment | {"JAX_PLATFORMS": "cpu"},
            ).stdout
        )
        for _ in range(2)
    ]
    assert hits[0] == 0
    assert hits[1] > 0
