"""The ops, and what puts them into Flax, import where jax, flax and numpy are alone."""

import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[2]
SCRIPT = """
import importlib, importlib.metadata as metadata, pkgutil, re, sys

def with_needs(names, found):
    for name in names:
        if name not in found:
            found.add(name)
            needs = [n for n in metadata.requires(name) or () if "extra ==" not in n]
            needs = {re.match(r"[\\w.-]+", need)[0] for need in needs}
            with_needs([n for n in map(canonical, needs) if n in installed], found)
    return found

def canonical(name):
    return re.sub(r"[-_.]+", "-", name).lower()

installed = {canonical(found.name) for found in metadata.distributions()}
alone = with_needs(["jax", "flax", "numpy"], set())
owners = metadata.packages_distributions()

class Alone:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top in owners and not {*map(canonical, owners[top])} & {*alone, "attnjax"}:
            raise ModuleNotFoundError(f"{name} is not installed here", name=name)

sys.meta_path.insert(0, Alone())
import attnjax.ops, attnjax.interop.flax_attention, attnjax.ops.catalog
for module in pkgutil.iter_modules(attnjax.ops.__path__):
    importlib.import_module(f"attnjax.ops.{module.name}")
try:
    import sacrebleu
except ModuleNotFoundError as error:
    print(error)
"""


def test_ops_import_with_jax_flax_and_numpy_alone():
    found = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    assert found.stdout == "sacrebleu is not installed here\n"
