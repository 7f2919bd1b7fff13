"""The rules of docs/architecture.md that a program can check, over every file."""

import ast
import functools
import re
from collections.abc import Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "attnjax"
FILES = sorted(PACKAGE.rglob("*.py"))
NAMES = [str(file.relative_to(ROOT)) for file in FILES]
every_file = pytest.mark.parametrize("file", FILES, ids=NAMES)

LEVELS = {
    "types": 0,
    "json_files": 0,
    "processes": 0,
    "fields": 0,
    "storage": 1,
    "ops": 1,
    "partitioning": 1,
    "words": 1,
    "terminal": 1,
    "config": 2,
    "config_json": 3,
    "unread_options": 3,
    "layers": 3,
    "data": 3,
    "decoding": 3,
    "training": 3,
    "evaluation": 3,
    "models": 4,
    "tasks": 4,
    "diagnostics": 4,
    "run_folder": 4,
    "interop": 5,
    "experiment": 5,
    "runs": 6,
    "benchmarks": 7,
    "cli": 8,
    "__main__": 9,
}
FILE_CAP = 400  # lines
FUNCTION_CAP = 60  # lines
PARAMETER_CAP = 7
BANNED_NAMES = {"utils.py", "common.py", "misc.py", "helpers.py"}
# Whoever reads a config or trains must never wait for TensorFlow.
BANNED_IMPORTS = {"tensorflow", "torch", "pickle", "dill", "cloudpickle"}


@functools.cache
def nodes_of(file: Path) -> list[ast.AST]:
    """All nodes of a file, read once for all rules."""
    return [*ast.walk(ast.parse(file.read_text(encoding="utf-8")))]


def imported_modules(nodes: Iterable[ast.AST]) -> list[str]:
    modules = []
    for node in nodes:
        if isinstance(node, ast.Import):
            modules += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            modules.append(node.module or "")
            modules += [f"{node.module}.{alias.name}" for alias in node.names]
    return modules


def part_of(module: str) -> str | None:
    """``attnjax.ops.masks`` -> ``ops``."""
    pieces = module.split(".")
    return pieces[1] if pieces[0] == "attnjax" and len(pieces) > 1 else None


def wrong_imports(part: str, modules: list[str]) -> list[str]:
    wrong = []
    for module in modules:
        other = part_of(module)
        if other in LEVELS and other != part and LEVELS[other] >= LEVELS[part]:
            wrong.append(module)
    return wrong


@every_file
def test_imports_go_to_strictly_lower_levels(file):
    relative = file.relative_to(PACKAGE)
    part = relative.parts[0].removesuffix(".py")
    if part == "__init__":
        # What is below `if TYPE_CHECKING` is not run.
        assert not any(map(part_of, imported_modules(nodes_of(file)[0].body)))
        return
    assert part in LEVELS, f"{part} has no level; add it here and in architecture.md"
    assert wrong_imports(part, imported_modules(nodes_of(file))) == []


def test_the_import_rule_sees_an_upward_import():
    tree = ast.parse("from attnjax.models.rnn import RNNSeq2Seq")
    assert wrong_imports("training", imported_modules(ast.walk(tree)))


@every_file
def test_no_banned_import(file):
    roots = {module.split(".")[0] for module in imported_modules(nodes_of(file))}
    if file.parent.name == "benchmarks":
        roots -= {"torch"}  # a peer to measure against
    assert not roots & BANNED_IMPORTS
    if file.relative_to(PACKAGE).parts[0] == "data":
        assert "jax" not in roots, "data stays numpy"
    if file.relative_to(PACKAGE).parts[0] == "ops":
        assert "flax" not in roots, "ops are plain functions"


@every_file
def test_files_and_functions_stay_within_their_caps(file):
    assert file.name not in BANNED_NAMES
    assert len(file.read_text(encoding="utf-8").splitlines()) <= FILE_CAP
    for node in nodes_of(file):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            where = f"{file.name}:{node.lineno} {node.name}"
            assert node.end_lineno - node.lineno + 1 <= FUNCTION_CAP, where
            assert len(parameters(node)) <= PARAMETER_CAP, where


def parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    given = node.args.posonlyargs + node.args.args + node.args.kwonlyargs
    names = [argument.arg for argument in given if argument.arg not in ("self", "cls")]
    for starred in (node.args.vararg, node.args.kwarg):
        names += [starred.arg] if starred else []
    return names


@every_file
def test_args_of_a_docstring_are_the_parameters(file):
    for node in nodes_of(file):
        if not isinstance(node, ast.FunctionDef | ast.ClassDef):
            continue
        documented = documented_args(ast.get_docstring(node) or "")
        if documented is None:
            continue
        function = node
        if isinstance(node, ast.ClassDef):
            function = next(
                (n for n in node.body if getattr(n, "name", "") == "__init__"), None
            )
            if function is None:
                continue
        expected = parameters(function)
        assert documented == expected, f"{file.name}:{node.lineno} {node.name}"


def documented_args(docstring: str) -> list[str] | None:
    section = re.search(r"^Args:\n(.*?)(?=^\S|\Z)", docstring, re.S | re.M)
    if not section:
        return None
    names = re.findall(r"^    (\*{0,2}\w[\w, ]*?)(?: \([^)]*\))?:", section[1], re.M)
    return [name.strip("* ") for group in names for name in group.split(",")]


def test_documented_args_are_read():
    text = (
        "Adds.\n\nArgs:\n    left: a\n      b: no\n    right: c\n\nReturns:\n    x: y"
    )
    assert documented_args(text) == ["left", "right"]


@every_file
def test_no_bare_assert_and_no_unfinished_work(file):
    asserts = [node.lineno for node in nodes_of(file) if isinstance(node, ast.Assert)]
    assert asserts == []
    text = file.read_text(encoding="utf-8")
    assert not re.search(r"\b(TODO|FIXME|XXX|NotImplementedError)\b", text)


AXES = set("btshdkvafcjwpne")


def einsum_disagreements(nodes: Iterable[ast.AST]) -> list[str]:
    """Einsum operands and results whose suffix is not their subscript."""
    found = []
    for node in nodes:
        targets: list[ast.expr] = []
        call = node
        if isinstance(node, ast.Assign):
            call, targets = node.value, node.targets
        if not (isinstance(call, ast.Call) and "einsum" in ast.unparse(call.func)):
            continue
        if not (call.args and isinstance(call.args[0], ast.Constant)):
            continue
        inputs, _, output = str(call.args[0].value).replace(" ", "").partition("->")
        pairs = [*zip(inputs.split(","), call.args[1:], strict=False)]
        pairs += [(output, target) for target in targets]
        for subscript, operand in pairs:
            suffix = axis_suffix(operand)
            if suffix and "." not in subscript and suffix != subscript:
                found.append(f"line {node.lineno}: {suffix} used as {subscript}")
    return found


def axis_suffix(operand: ast.expr) -> str | None:
    if not isinstance(operand, ast.Name) or "_" not in operand.id:
        return None
    suffix = operand.id.rsplit("_", 1)[1]
    rank_two_axes = len(suffix) >= 2 and set(suffix) <= AXES
    return suffix if rank_two_axes and len(set(suffix)) == len(suffix) else None


@every_file
def test_einsum_letters_are_the_suffixes(file):
    assert einsum_disagreements(nodes_of(file)) == []


def test_the_einsum_rule_sees_swapped_axes():
    good = "s_bhts = jnp.einsum('bhtk,bhsk->bhts', query_bhtk, key_bhsk)"
    assert einsum_disagreements(ast.walk(ast.parse(good))) == []
    assert einsum_disagreements(
        ast.walk(ast.parse(good.replace("query_bhtk", "query_bthk")))
    )
    assert einsum_disagreements(ast.walk(ast.parse(good.replace("s_bhts", "s_bhst"))))


def test_scripts_are_thin():
    for script in ("train.py", "eval.py"):
        assert len((ROOT / script).read_text().splitlines()) < 60
