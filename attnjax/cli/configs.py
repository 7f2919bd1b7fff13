"""Config files: those that come with attnjax, by name, and any other by its path."""

from __future__ import annotations

import ast
import runpy
import traceback
from pathlib import Path

import attnjax
from attnjax.config import Experiment


def shipped_configs() -> dict[str, Path]:
    """Finds the configs that come with attnjax.

    Returns:
        Name to file, in order: of the checkout, or of the installed package, which
        keeps a copy of ``configs``.
    """
    package = Path(attnjax.__file__).parent
    for folder in (package / "configs", package.parent / "configs"):
        if files := sorted(folder.glob("*.py")):
            return {file.stem: file for file in files}
    return {}


def describe_configs() -> str:
    """Lists the configs that come with attnjax.

    Returns:
        Lines of the name and the first sentence of each.
    """
    files = shipped_configs()
    width = max(map(len, files), default=0)
    return "\n".join(
        f"  {name:{width}}  {document_of(file).partition(chr(10))[0]}"
        for name, file in files.items()
    )


def find_config(config: str) -> Path:
    """Finds the file that a command line means.

    Args:
        config: the path of a file, or the name of a config that comes with attnjax.

    Returns:
        The file.

    Raises:
        ValueError: there is no such file or name.
    """
    if Path(config).is_file():
        return Path(config)
    files = shipped_configs()
    if config in files:
        return files[config]
    raise ValueError(
        f"there is no config file {config}, and no config of that name comes with "
        f"attnjax; these do: {', '.join(files)}."
    )


def read_experiment(config: Path) -> Experiment:
    """Runs a config file and returns its ``experiment``.

    Args:
        config: a Python file that binds ``experiment``.

    Returns:
        The experiment, checked.

    Raises:
        ValueError: the file is missing or does not make an experiment.
    """
    file = find_config(str(config))
    try:
        made = runpy.run_path(str(file)).get("experiment")
    except (Exception, SystemExit) as error:
        frames = traceback.extract_tb(error.__traceback__)
        lines = [frame.lineno for frame in frames if frame.filename == str(file)]
        where = f"{config}, line {lines[-1]}," if lines else str(config)
        raise ValueError(
            f"{where} fails to run: {type(error).__name__}: {error}"
        ) from error
    if not isinstance(made, Experiment):
        raise ValueError(
            f"{config} must bind `experiment` to an attnjax.config.Experiment, got "
            f"{type(made).__name__}; see the config quickstart."
        )
    return made


def document_of(config: Path) -> str:
    """Reads what a config says of itself.

    Args:
        config: a Python file.

    Returns:
        Its docstring; empty if it has none.

    Raises:
        ValueError: the file is not Python.
    """
    try:
        tree = ast.parse(config.read_bytes())
    except SyntaxError as error:
        raise ValueError(f"{config} is not Python: {error}.") from error
    return ast.get_docstring(tree) or ""
