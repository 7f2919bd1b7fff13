"""What the documents tell a user to type: all of it runs, shortened by flags alone."""

import argparse
import contextlib
import importlib
import io
import re
import runpy
import shlex
import sys
import tomllib
import types
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
import tyro

from attnjax.cli import main
from attnjax.cli.configs import document_of, read_experiment
from attnjax.config import CLDRSource, RNNConfig
from attnjax.experiment import build_model
from attnjax.types import Tokens

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
# The changelog names commands and does not give them; tests/style knows their options.
OTHERS = sorted([*ROOT.glob("docs/**/*.md"), ROOT / "CONTRIBUTING.md"])
CONFIGS = sorted(ROOT.glob("configs/*.py"))
SHORT = [
    *("--data.tokenizer.vocab-size", "400", "--data.bucket-lengths", "64"),
    *("--data.tokens-per-batch", "512"),
    *("--training.num-steps", "2", "--training.checkpoint-every", "1"),
    *("--training.evaluate-every", "1", "--training.log-every", "1"),
    *("--optimizer.schedule.kind", "constant"),
    *("--evaluation.beam-size", "1", "--evaluation.max-pairs", "2"),
    *("--decoding.beam-size", "3", "--decoding.max-extra-tokens", "2"),
    *("--decoding.max-source-tokens", "48"),
]
SHORT_CLDR = [
    *("--data.source.train-pairs", "300", "--data.source.valid-pairs", "8"),
    *("--data.source.test-pairs", "9"),
]
SHORT_RNN = [
    *("--model.embedding-width", "8", "--model.hidden-width", "12"),
    *("--model.attention-width", "8"),
]
SHORT_TRANSFORMER = [
    *("--model.width", "16", "--model.feed-forward-width", "16"),
    *("--model.num-heads", "2"),
    *("--model.encoder-layers", "1", "--model.decoder-layers", "1"),
]
SHORT_BENCH = [
    *("--mechanisms", "dense", "--lengths", "16", "--heads", "1"),
    *("--head-width", "8", "--seconds", "0.01"),
]


def stages(line: str) -> list[list[str]]:
    """The words of each command of a pipe; a file read or written is ``<`` or ``>``."""
    words = shlex.shlex(line, posix=True, punctuation_chars="|<>")
    words.whitespace_split = True
    found: list[list[str]] = [[]]
    for word in words:
        if word == "|":
            found.append([])
        else:
            found[-1].append(word)
    return found


def called(words: list[str]) -> tuple[str, list[str]]:
    """The module whose ``main`` a command calls, and with what."""
    program, *rest = words
    if program == "python" and rest[0] == "-m":
        return rest[1], rest[2:]
    if program == "python":
        rest[0] = {"train.py": "train", "eval.py": "evaluate"}[rest[0]]
    return "attnjax.cli", rest


def shortened(words: list[str]) -> tuple[str, list[str]]:
    """What is called, as printed but smaller."""
    module, arguments = called(words)
    if arguments[0] == "bench":
        arguments += SHORT_BENCH
    if arguments[0] == "train":
        arguments += smaller(arguments[arguments.index("--config") + 1])
    return module, arguments


def smaller(config: str) -> list[str]:
    experiment = read_experiment(Path(config))
    is_rnn = isinstance(experiment.model, RNNConfig)
    has_pairs = isinstance(experiment.data.source, CLDRSource)
    flags = [*SHORT, *(SHORT_RNN if is_rnn else SHORT_TRANSFORMER)]
    if "wmt" in config:
        flags += ["--data.source.data-dir", "prepared"]
    return flags + (SHORT_CLDR if has_pairs else [])


def call(words: list[str], stdin: str) -> str:
    """Runs one command of a pipe; returns what it prints."""
    for sign in "<>":
        if sign in words:
            place = words.index(sign)
            file = Path(words[place + 1])
            words = words[:place] + words[place + 2 :]
            if sign == "<":
                return call(words, file.read_text(encoding="utf-8"))
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(call(words, stdin), encoding="utf-8")
            return ""
    if words[0] == "echo":
        return " ".join(words[1:]) + "\n"
    if words[0] == "printf":
        assert words[1] == r"%s\n"
        return "".join(f"{word}\n" for word in words[2:])
    module, arguments = shortened(words)
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    with (
        pytest.MonkeyPatch.context() as patched,
        contextlib.redirect_stdout(out),
    ):
        patched.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        code = importlib.import_module(module).main(arguments)
    assert not code, (words, code)
    out.seek(0)
    return out.read()


def run_line(line: str) -> str:
    text = ""
    for words in stages(line):
        text = call(words, text)
    return text


def lines_of_shell(text: str) -> list[str]:
    """Commands of a document, in blocks and in backticks, without their comments."""
    blocks = re.findall(r"^```bash\n(.*?)^```", text, re.M | re.S)
    blocks += re.findall(r"(?:^ {4}.*\n)+", text, re.M)
    joined = "\n".join(blocks).replace("\\\n", " ")
    first = "echo|printf|python|attnjax"
    found = re.findall(rf"^ *((?:{first}) .*)$", joined, re.M)
    prose = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S).replace("\n", " ")
    found += re.findall(r"`((?:python|attnjax) [^`]*)`", prose)
    return [line.split("   #")[0] for line in found]


def demo() -> list[str]:
    """The recipe of ``make demo``."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8").replace("\\\n", " ")
    recipe = re.search(r"^demo:.*\n((?:\t.*\n)+)", makefile, re.M)[1]
    folder = re.search(r"^RUN \?= (.*)$", makefile, re.M)[1]
    text = recipe.replace("$(BIN)/", "").replace("$(RUN)", folder)
    return [line.strip() for line in text.splitlines()]


@pytest.fixture
def checkout(tmp_path, monkeypatch, fake_wmt):
    """A folder like that of a user, with a corpus and archives of his own."""
    for name in ("configs", "train.py", "eval.py"):
        (tmp_path / name).symlink_to(ROOT / name)
    for split, count in (("train", 60), ("valid", 4), ("test", 4)):
        for language, word in (("de", "Hund"), ("en", "dog")):
            lines = [f"{split} {n} {word} {n * n}\n" for n in range(count)]
            file = tmp_path / "corpus" / f"{split}.{language}"
            file.parent.mkdir(exist_ok=True)
            file.write_text("".join(lines), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
def test_every_command_of_the_readme_runs_as_printed(checkout):
    assert set(re.findall(r"^make (\w+)", README, re.M)) == {"demo", "test"}
    commands = [
        line
        for line in [*demo(), *lines_of_shell(README)]
        if line.split()[0] not in ("make", "source")
        and not line.startswith("python -m pip")
    ]
    assert len(commands) > 18
    for command in commands:
        with jax.numpy_rank_promotion("allow"):  # as users have it
            run_line(command)
    page = ROOT / "docs" / "library.md"
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text("utf-8"), re.M | re.S)
    assert len(blocks) >= 8
    script = checkout / "library.py"
    script.write_text("\n".join(blocks), encoding="utf-8")
    with contextlib.redirect_stdout(io.StringIO()) as out:
        runpy.run_path(str(script))
    assert "vor 3 Wochen -> " in out.getvalue()
    for name in ("attention.png", "self.svg", "given.svg", "output.en"):
        assert (checkout / name).stat().st_size > 0


class BegunError(Exception):
    """A command has read its arguments, and would begin."""


@pytest.mark.parametrize("document", OTHERS, ids=lambda path: path.name)
def test_every_command_of_other_documents_begins(document, checkout, monkeypatch):
    """Training up to the shapes of its weights, the rest up to its arguments."""

    def begin(*given, **settings):
        raise BegunError(*given)

    def beginning_after(read):
        return lambda *given, **settings: begin(read(*given, **settings))

    parser = argparse.ArgumentParser

    def start(words):
        if words[:2] != ["python", "-m"]:
            return main(called(words)[1])
        with monkeypatch.context() as patched:
            patched.setattr(tyro, "cli", beginning_after(tyro.cli))
            patched.setattr(parser, "parse_args", beginning_after(parser.parse_args))
            patched.setattr(sys, "argv", words[2:])
            return importlib.import_module(words[2]).main()

    monkeypatch.setattr("attnjax.experiment.train", begin)
    monkeypatch.setattr("attnjax.cli.arguments.chosen_launch", lambda options: None)
    monkeypatch.setattr("attnjax.cli.using._open", begin)
    monkeypatch.setattr("attnjax.diagnostics.mechanisms.mechanism_page", begin)
    for words in commands_with_variables(document.read_text(encoding="utf-8")):
        if words[:3] == ["python", "-m", "pytest"]:
            for word in words:
                assert not word.startswith("tests/") or (ROOT / word).exists(), word
            continue
        with pytest.raises(BegunError) as begun:
            start(words)
        if words[1] == "train.py":
            num_parameters(begun.value.args[0])


def commands_with_variables(text: str) -> list[list[str]]:
    joined = text.replace("\\\n", " ")
    values = dict(re.findall(r'^ *(\w+)="([^"]*)"$', joined, re.M))
    found = []
    for line in lines_of_shell(text):
        for name, value in values.items():
            line = line.replace(f"${name}", value)
        words = stages(line)[-1]
        end = words.index(">") if ">" in words else None
        found.append([word for word in words[:end] if word[0] != "["])
    return found


def num_parameters(experiment) -> int:
    size = experiment.data.tokenizer.vocab_size
    tokenizers = types.SimpleNamespace(
        source=types.SimpleNamespace(size=size), target=types.SimpleNamespace(size=size)
    )
    example = Tokens(jnp.ones((1, 2), jnp.int32), jnp.ones((1, 2), bool))
    variables = jax.eval_shape(
        lambda: build_model(experiment, tokenizers).init(
            jax.random.key(0), example, example, train=False
        )
    )
    return sum(leaf.size for leaf in jax.tree.leaves(variables["params"]))


@pytest.mark.parametrize("config", CONFIGS, ids=lambda path: path.name)
def test_the_parameters_that_a_config_and_the_readme_name_are_counted(config):
    """Also the papers' numbers, for the full-size ones."""
    count = num_parameters(read_experiment(config)) / 1e6
    shown = f"{count:.1f}" if count < 10 else f"{count:.0f}"
    assert f"Cost: {shown} M parameters" in document_of(config)
    for number in re.findall(rf"`{config.stem}` \|[^|]*, ([\d.]+) M param", README):
        assert number == shown


def test_the_archives_of_the_readme_are_those_that_the_loader_checks():
    from tensorflow_datasets.translate.wmt14 import Wmt14Translate

    urls = re.findall(r"^http\S+\.tgz$", README, re.M)
    assert len(urls) == 4
    assert set(urls) <= set(Wmt14Translate.url_infos)


@pytest.mark.parametrize("extra", re.findall(r"'\.\[(\w+)\]'", README))
def test_extras_of_the_readme_exist(extra):
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert extra in settings["project"]["optional-dependencies"]
