"""Kinds of mechanisms and selections on the command line."""

import dataclasses
from pathlib import Path

import pytest
import tyro

from attnjax.cli.configs import read_experiment
from attnjax.cli.kinds import choose_kinds, describe_kinds
from attnjax.config import Experiment, RNNConfig
from attnjax.ops.attend import Dense
from attnjax.ops.linear import Linear
from attnjax.ops.local import SlidingWindow
from attnjax.ops.local_global import LocalGlobal
from attnjax.ops.lsh import LSH
from attnjax.ops.selection import SELECTIONS, LocalM, LocalP

QUICKSTART = read_experiment(Path(__file__).parents[2] / "configs/quickstart.py")
ENCODER = "--model.encoder-attention"


def with_model(**fields):
    model = dataclasses.replace(QUICKSTART.model, **fields)
    return dataclasses.replace(QUICKSTART, model=model)


def read(command, default=QUICKSTART):
    """The model that a command line asks for, and what it leaves out of the config."""
    chosen = choose_kinds(default, command.split())
    experiment = tyro.cli(
        tyro.conf.AvoidSubcommands[Experiment],
        default=chosen.experiment,
        args=chosen.arguments,
    )
    return experiment.model, chosen.told


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("kind linear", Linear()),
        ("chunk 8 {0}.kind linear", Linear(chunk=8)),
        ("kind=lsh {0}.attend_to_self", LSH(attend_to_self=True)),
        ("kind lsh {0}.no-attend-to-self", LSH()),
        ("kind sliding_window,dense", (SlidingWindow(), Dense())),
        ("kind lsh dense {0}.0.rounds 3 --seed 1", (LSH(rounds=3), Dense())),
        (
            "kind sliding_window,local_global {0}.window 3 {0}.1.num-global=2",
            (SlidingWindow(window=3), LocalGlobal(window=3, num_global=2)),
        ),
        (  # the layers may come after the pattern that needs them
            "kind linear,linear,dense --model.encoder-layers 3",
            (Linear(), Linear(), Dense()),
        ),
    ],
)
def test_a_command_line_chooses_mechanisms_and_their_options(command, expected):
    model, told = read(f"{ENCODER}.{command.format(ENCODER)}")
    assert model.encoder_attention == expected
    assert told == []


def test_options_of_the_same_name_stay_and_others_are_left_out_and_said():
    before = with_model(encoder_attention=SlidingWindow(window=7, dilation=2))
    model, told = read(f"{ENCODER}.kind local_global,sliding_window", before)
    assert model.encoder_attention == (
        LocalGlobal(window=7),
        SlidingWindow(window=7, dilation=2),
    )
    assert told == []
    model, told = read(f"{ENCODER}.kind local_global", before)
    assert model.encoder_attention == LocalGlobal(window=7)
    assert told == [
        "model.encoder_attention.dilation=2 has no effect, because it needs kind "
        "sliding_window; kind local_global reads window, num_global: left out"
    ]


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (
            "kind slidng_window",
            r"'slidng_window' \(did you mean 'sliding_window'\?\); there",
        ),
        (
            "kind",
            "kind names no attention mechanism, and takes one of dense",
        ),
        (
            "kind linear {0}.window 7",
            "attention.window=7 has no effect, because it nee",
        ),
        ("0 linear", "attention.0=linear has no effect, because there is none"),
        ("kind linear {0} linear", "holds options; choose a kind by --model.encoder-"),
        ("kind linear {0}.windw 7", "there is none; kind linear reads chunk"),
        (
            "window 7",
            "sliding_window or local_global; kind dense reads no option. Leav",
        ),
        ("kind linear,dense {0}.1.chunk 7", "attention.1.chunk=7 has no effect"),
        ("kind linear,dense {0}.2.chunk 7", "2.chunk is of no mechanism: there is 2"),
        ("kind linear {0}.0.chunk 7", "0.chunk is of no mechanism: there is 1"),
    ],
)
def test_what_cannot_be_chosen_is_refused_in_a_sentence(command, message):
    with pytest.raises(ValueError, match=message):
        read(f"{ENCODER}.{command.format(ENCODER)}")


@pytest.mark.parametrize("kind", SELECTIONS.classes)
def test_the_selection_of_a_recurrent_decoder_is_chosen_in_the_same_way(kind):
    before = dataclasses.replace(
        QUICKSTART, model=RNNConfig(selection=LocalM(window=3))
    )
    model, told = read(f"--model.selection.kind {kind}", before)
    keeps_window = issubclass(SELECTIONS.find(kind), LocalM)
    assert model.selection == SELECTIONS.fill(kind, {"window": 3})
    assert len(told) == (not keeps_window)
    assert read("--model.selection.window 4", before)[0].selection == LocalM(window=4)
    with pytest.raises(ValueError, match="kind top_k reads top_k"):
        read("--model.selection.kind top_k --model.selection.window 3", before)
    with pytest.raises(
        ValueError, match="kind names 2 selection of keys, and takes one of"
    ):
        read("--model.selection.kind top_k,local_p", before)


def test_the_options_of_a_selection_that_inherits_are_its_own():
    before = dataclasses.replace(QUICKSTART, model=RNNConfig(selection=LocalP()))
    model, _ = read("--model.selection.window 4", before)
    assert model.selection == LocalP(window=4)


def test_help_lists_the_kinds(capsys):
    with pytest.raises(SystemExit):
        read(f"{ENCODER}.kind linear -h")
    assert f"{ENCODER}.chunk INT" in capsys.readouterr().out
    text = describe_kinds(QUICKSTART)
    assert "--model.encoder-attention.kind, --model.decoder-attention.kind" in text
    assert "one of dense, chunked" in text
    assert "--model.encoder-attention.0.OPTION" in text
    assert "soft, top_k" in describe_kinds(
        dataclasses.replace(QUICKSTART, model=RNNConfig())
    )
