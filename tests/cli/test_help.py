"""What the command says of itself."""

import dataclasses
import re

import pytest

from attnjax import __version__
from attnjax.cli import main
from attnjax.cli.configs import shipped_configs
from attnjax.config import DecodingConfig


def output_of(capsys, *arguments, code=0):
    with pytest.raises(SystemExit) as left:
        raise SystemExit(main(arguments))
    assert left.value.code == code
    return capsys.readouterr()


def search_options(text):
    options = re.findall(r"^  --([a-z-]+)", text.partition("\nsearch (")[2], re.M)
    return {option.replace("-", "_") for option in options}


def test_the_version_is_that_of_the_package(capsys):
    assert output_of(capsys, "--version").out == f"attnjax {__version__}\n"


def test_every_command_explains_itself(capsys):
    listed = output_of(capsys, "--help").out
    commands = re.findall(r"^    ([a-z]+)(?: |$)", listed, re.M)
    assert {"train", "translate", "compare", "bench"} <= set(commands)
    for command in [*commands, "bench attention"]:
        text = output_of(capsys, *command.split(), "--help").out
        assert f"usage: attnjax {command}" in text
        assert "%%" not in text
        assert "%(" not in text
    assert "--lengths" in text


@pytest.mark.parametrize(
    ("command", "unread"),
    [
        ("translate", set()),
        ("evaluate", {"n_best"}),
        ("draw", {"n_best"}),
        ("score", {"beam_size", "n_best", "temperature", "seed"}),
        ("align", {"beam_size", "n_best", "length_penalty", "seed"}),
    ],
)
def test_a_command_lists_the_search_settings_that_it_reads(command, unread, capsys):
    listed = search_options(output_of(capsys, command, "--help").out)
    fields = {field.name for field in dataclasses.fields(DecodingConfig)}
    assert "max_source_tokens" in listed
    assert listed <= fields
    assert not listed & unread
    if not unread:
        assert listed == fields


def test_without_a_config_those_that_there_are_are_listed(capsys):
    text = output_of(capsys, "train", "--help").out
    assert output_of(capsys, "train", code=2).err == text
    assert set(shipped_configs()) >= {"quickstart", "wmt_base"}
    for name in shipped_configs():
        assert re.search(rf"^  {name} +\w.*\.$", text, re.M)


def test_a_config_is_found_by_its_name_and_an_unknown_one_is_a_sentence(capsys):
    text = output_of(capsys, "train", "--config", "quickstart_rnn", "--help").out
    assert "Bahdanau, Cho and Bengio" in text
    error = output_of(capsys, "train", "--config", "quickstrat", code=1).err
    assert error.count("\n") == 1
    assert "quickstart, quickstart_rnn" in error
