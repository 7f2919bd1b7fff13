"""A part of the suite again, compiled as users compile: optimised, loops fused.

All other tests leave that out (`conftest.py`), because they would take twice the time.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
AS_USERS = "ATTNJAX_TEST_AS_USERS"
PARTS = {
    "tests/ops/test_laws.py": "limit_equals_dense or formula",
    "tests/models/test_laws.py": "step_is_decode and (post or feeding)",
    "tests/learning/test_transformer_learns.py": "reverses and post",
    "tests/tasks/test_translator.py": "scoring_the_output and plain",
    "tests/test_users_settings.py": "part_of_the_suite",
}


@pytest.mark.slow
def test_part_of_the_suite_holds_with_the_settings_of_users():
    """Laws of mechanisms in larger sizes, a training run and a search."""
    if AS_USERS in os.environ:
        assert "optimization_level" not in os.environ["XLA_FLAGS"]
        return
    chosen = " or ".join(f"({expression})" for expression in PARTS.values())
    command = [sys.executable, "-m", "pytest", "-q", "-n0", "-k", chosen, *PARTS]
    environment = {**os.environ, AS_USERS: "1", "XLA_FLAGS": ""}
    ended = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stdout[-8_000:] + ended.stderr[-2_000:]
