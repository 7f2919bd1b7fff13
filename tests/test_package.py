"""What a user of the installed package gets."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import attnjax

ROOT = Path(__file__).parents[1]
build = pytest.importorskip("hatchling.build")


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    """The wheel and the editable one, opened."""
    folder = tmp_path_factory.mktemp("wheels")
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(ROOT)
        names = build.build_wheel(str(folder)), build.build_editable(str(folder / "e"))
    return zipfile.ZipFile(folder / names[0]), zipfile.ZipFile(folder / "e" / names[1])


def test_the_wheel_has_the_configs_the_types_and_the_files_of_the_page(wheels):
    names = set(wheels[0].namelist())
    package = ROOT / "attnjax"
    page = [*(package / "diagnostics" / "page").iterdir()]
    configs = [*(ROOT / "configs").glob("*.py")]
    assert len(page) == 7
    assert len(configs) >= 8
    for file in [package / "py.typed", *page, *package.rglob("*.py")]:
        assert file.relative_to(ROOT).as_posix() in names
    for file in configs:
        assert f"attnjax/configs/{file.name}" in names


def test_an_installed_package_finds_its_configs_anywhere(wheels, tmp_path):
    wheels[0].extractall(tmp_path / "site")
    command = "import sys; from attnjax.cli import main; sys.exit(main(sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-c", command, "train", "--config", "quickstart", "--help"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path / "site")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "Transformer on CLDR phrases" in done.stdout
    assert "runs/quickstart" in done.stdout


def test_type_checkers_follow_an_editable_install(wheels):
    """They read plain paths of ``.pth`` files, but do not run import hooks."""
    (name,) = [name for name in wheels[1].namelist() if name.endswith(".pth")]
    assert wheels[1].read(name).decode().split() == [str(ROOT)]


def test_importing_the_package_loads_nothing_and_opening_a_run_is_at_hand():
    code = (
        "import sys, attnjax; before = {'jax', 'numpy', 'flax'} & {*sys.modules}; "
        "assert not before, before; from attnjax import open_run; "
        "assert open_run.__module__ == 'attnjax.runs.opening'"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
    with pytest.raises(AttributeError, match="no attribute 'opne_run'"):
        _ = attnjax.opne_run
