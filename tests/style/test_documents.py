"""What documents and docstrings claim exists, and their examples run."""

import ast
import contextlib
import doctest
import functools
import importlib
import io
import itertools
import re
import shlex
from pathlib import Path

import jax
import pytest

from attnjax.cli import main
from attnjax.diagnostics.mechanisms import mechanism_page
from attnjax.ops.catalog import CATALOG

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
CONFIGS = sorted(ROOT.glob("configs/*.py"))
COMMANDS = (
    *("train", "evaluate", "translate", "score", "align", "compare", "average"),
    *("mechanisms", "draw"),
)
MODULES = [
    ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for file in sorted((ROOT / "attnjax").rglob("*.py"))
]


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples_run(name):
    if name == "attnjax.benchmarks.torch_train_step":
        pytest.importorskip("torch", reason="the peer of a benchmark, not a dependency")
    with jax.numpy_rank_promotion("allow"):  # an example shows use, not rank discipline
        failed, _ = doctest.testmod(
            importlib.import_module(name), optionflags=doctest.ELLIPSIS
        )
    assert failed == 0


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_and_named_files_exist(document):
    text = document.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        if "://" not in target:
            assert (document.parent / target).exists(), target
    for name in re.findall(r"`(configs/\w+\.py|docs/[\w/]+\.md|tests/[\w/.]+)`", text):
        assert (ROOT / name).exists(), name


def commands(text: str) -> list[list[str]]:
    """Shell commands of a document, in code blocks and in backticks."""
    text = text.replace("\\\n", " ")
    lines = re.findall(r"^(?: {4})?((?:make|python|attnjax) .*)$", text, re.M)
    lines += re.findall(r"`((?:make|python|attnjax) [^`]*)`", text)
    return [shlex.split(line, comments=True) for line in lines]


def refused_options(command: list[str]) -> list[str]:
    """Options of a train or eval command that its --help does not list."""
    script = {"train.py": "train", "eval.py": "evaluate"}.get(command[1], command[1])
    if script not in COMMANDS:
        return []
    arguments = [script]
    if "--config" in command:
        config = command[command.index("--config") + 1]
        if config == "FILE":
            return []
        file = ROOT / config  # or a name of those that come with attnjax
        arguments += ["--config", str(file) if file.is_file() else config]
    for option, value in itertools.pairwise(command):
        if option.endswith(".kind"):  # it has options of its own
            arguments += [option, value]
    options = {word for word in command if word.startswith("--")}
    return sorted(options - {"--config", "--help"} - listed_options(*arguments))


@functools.cache
def listed_options(*arguments: str) -> set[str]:
    """Options that the --help of a command lists."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
        main([*arguments, "--help"])
    # Only lines that begin with an option: the description repeats the docstring.
    lines = re.findall(r"^[\s│]*(--?\w.*)$", out.getvalue(), re.M)
    return set().union(*(re.findall(r"--[\w.-]+", line) for line in lines))


@pytest.mark.parametrize("config", CONFIGS, ids=lambda path: path.name)
def test_command_of_a_config_is_known_and_names_it(config):
    docstring = ast.get_docstring(ast.parse(config.read_text(encoding="utf-8"))) or ""
    for part in ("Paper:", "Command:", "Cost:", "Expected score:"):
        assert part in docstring
    text = docstring.split("Command:")[1].split("Cost:")[0].replace("\\\n", " ")
    found = [
        shlex.split(command)
        for line in text.splitlines()
        for command in line.split("&&")
        if command.split()[:1] == ["python"]
    ]
    assert any(f"configs/{config.name}" in command for command in found)
    for command in found:
        assert refused_options(command) == [], command


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_commands_of_documents_are_known(document):
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M))
    for command in commands(document.read_text(encoding="utf-8")):
        if command[0] == "make":
            assert command[1] in targets, command
        elif command[0] == "attnjax" or command[1] in ("train.py", "eval.py"):
            assert refused_options(command) == [], command
        elif command[1] == "-m":
            assert command[2] in (*MODULES, "pytest", "pip"), command


def test_an_invented_option_is_noticed():
    command = shlex.split("python train.py --config configs/quickstart.py --warp 9")
    assert refused_options(command) == ["--warp"]


def test_page_of_mechanisms_is_the_catalog():
    page = (ROOT / "docs" / "mechanisms.md").read_text(encoding="utf-8")
    assert page == mechanism_page(), (
        "run: attnjax mechanisms --markdown > docs/mechanisms.md"
    )


def test_table_of_mechanisms_names_all(capsys):
    assert main(["mechanisms"]) == 0
    printed = capsys.readouterr().out
    for name in CATALOG:
        assert f"\n{name}: " in f"\n{printed}"
