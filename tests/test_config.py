"""Configs are checked at birth, explained by --help, and survive JSON."""

import dataclasses
import json
import math
import re
import runpy
import subprocess
import sys
import typing
from pathlib import Path
from typing import Annotated

import pytest

from attnjax import config, config_json
from attnjax.cli import main
from attnjax.cli.configs import read_experiment
from attnjax.config import (
    CLDRSource,
    DataConfig,
    DecodingConfig,
    Experiment,
    OptimizerConfig,
    RNNConfig,
    ScheduleConfig,
    TokenizerConfig,
    TrainingConfig,
    TransformerConfig,
)
from attnjax.config.decoding import READ_BY
from attnjax.fields import Within, annotated
from attnjax.ops.attend import Dense
from attnjax.ops.catalog import MECHANISMS
from attnjax.ops.hard import HardChoice
from attnjax.ops.local import SlidingWindow
from attnjax.ops.selection import SELECTIONS

ROOT = Path(__file__).parents[1]
CONFIGS = sorted((ROOT / "configs").glob("*.py"))


def experiment(**changes) -> Experiment:
    fields = {
        "data": DataConfig(source=CLDRSource()),
        "model": RNNConfig(),
        **changes,
    }
    return Experiment(**fields)


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_every_config_is_an_experiment_with_a_full_docstring(path):
    made = read_experiment(path)
    assert made.workdir == Path("runs") / path.stem
    document = runpy.run_path(str(path))["__doc__"]
    for heading in ("Paper:", "Command:", "Cost:", "Expected score:"):
        assert heading in document, heading
    assert f"configs/{path.name}" in document


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_every_config_survives_json(path):
    made = read_experiment(path)
    text = config_json.to_json(made)
    assert config_json.from_json(text, origin="config.json") == made


OLD_MECHANISM = {
    **{"type": "MechanismConfig", "window": 7, "dilation": 1, "block": 64},
    **{"num_global": 1, "num_random": 2, "rank": 64, "stride": 0, "chunk": 9},
    **{"clusters": 0, "top_k": 32, "rounds": 2, "features": 128, "rows": 0},
    **{"temperature": 0.5, "redraw_every": 1_000, "seed": 3, "attend_to_self": True},
}
OLD_SELECTION = {
    **{"type": "SelectionConfig", "top_k": 5, "window": 6, "temperature": 0.5},
    **{"test_choice": "sample", "seed": 3, "soft_rate": 0.25, "cost_weight": 1.0},
    **{"entropy_weight": 0.5, "baseline_decay": 0.75},
}


@pytest.mark.parametrize(
    ("kinds", "old"), [(MECHANISMS, OLD_MECHANISM), (SELECTIONS, OLD_SELECTION)]
)
def test_one_class_with_the_options_of_all_kinds_opens_as_those_of_its_kind(kinds, old):
    """So runs wrote them before each kind had a class of its own."""
    name = "encoder_attention" if kinds is MECHANISMS else "selection"
    model = TransformerConfig() if kinds is MECHANISMS else RNNConfig()
    assert {*old} - {"type"} >= {n for c in kinds.classes.values() for n in c.names()}
    for kind in kinds.classes:
        stored = config_json.encode(model)
        stored[name] = {**old, "kind": kind}
        opened = config_json.decode_section(stored, "model")
        assert getattr(opened, name) == kinds.fill(kind, old)
        again = config_json.decode_section(config_json.encode(opened), "model")
        assert again == opened
    for wrong, message in (
        ({"kind": "lineer"}, f"there is no {kinds.noun} 'lineer'"),
        ({"kind": ["linear"]}, "there is no"),
        ({"kind": kind, "evil": 1}, f"{name} has no field 'evil'"),
        ({"kind": kind, "window": -1}, "window must be greater than 0"),
    ):
        stored[name] = {**old, **wrong}
        with pytest.raises(ValueError, match=message):
            config_json.decode_section(stored, "model")


def test_several_mechanisms_survive_json_and_are_no_more_than_the_layers():
    pattern = SlidingWindow(window=3), Dense()
    made = TransformerConfig(encoder_attention=pattern, encoder_layers=3)
    stored = json.loads(json.dumps(config_json.encode(made)))
    assert config_json.decode_section(stored, "model") == made
    chosen = [made.mechanism("encoder", layer) for layer in range(3)]
    assert chosen == [SlidingWindow(window=3), Dense(), SlidingWindow(window=3)]
    assert made.mechanism("cross", 2) == Dense()
    for wrong in ((Dense(),) * 4, ()):
        with pytest.raises(
            ValueError, match="encoder_attention takes one mechanism, or"
        ):
            dataclasses.replace(made, encoder_attention=wrong)
    with pytest.raises(ValueError, match="attention must be the options of one attent"):
        TransformerConfig(encoder_attention="linear")
    with pytest.raises(ValueError, match="or a tuple of them"):
        TransformerConfig(encoder_attention=(Dense(), "linear"))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"beam_size"', '"beam_sise"', "did you mean 'beam_size'"),
        ('"adam"', '"adm"', "must be one of"),
        ('"patience": null', '"patience": "soon"', "must be a"),
        ('"RNNConfig"', '"CNNConfig"', "must be one of"),
        ('"data": {', '"date": {', "did you mean 'data'"),
        ("{", "", "not valid JSON"),
        ('"hidden_width": 256', '"hidden_width": -1', "greater than 0"),
    ],
)
def test_a_damaged_config_is_refused_with_its_field(old, new, message):
    text = config_json.to_json(experiment())
    damaged = text.replace(old, new, 1)
    assert damaged != text
    with pytest.raises(ValueError, match="config.json") as error:
        config_json.from_json(damaged, origin="config.json")
    assert message in str(error.value)


def test_each_method_reads_its_own_fields():
    fields = {field.name for field in dataclasses.fields(DecodingConfig)}
    assert set().union(*READ_BY.values()) == fields
    changed = {"beam_size": 7, "length_penalty": 3.0, "temperature": 2.0, "seed": 4}
    for method, read in READ_BY.items():
        for name, value in changed.items():
            if name in read:
                assert getattr(DecodingConfig(method=method, **{name: value}), name)
                continue
            with pytest.raises(
                ValueError, match=f"{name} cannot .* is {method}, which"
            ):
                DecodingConfig().searching(method=method, **{name: value})


def test_another_method_forgets_what_it_does_not_read():
    beam = DecodingConfig(beam_size=7, length_penalty=3.0, min_tokens=2)
    drawn = beam.searching(method="sampling", temperature=0.5)
    assert drawn == DecodingConfig(method="sampling", temperature=0.5, min_tokens=2)
    with pytest.raises(ValueError, match=r"beam_size and length_penalty cannot be set"):
        drawn.searching(method="mbr", beam_size=2, length_penalty=1.0)


def test_what_came_later_may_be_absent_and_what_has_no_default_may_not():
    made = experiment()
    stored = json.loads(config_json.to_json(made))
    del stored["seed"], stored["decoding"]["top_k"], stored["evaluation"]
    assert config_json.from_json(json.dumps(stored), origin="config.json") == made
    del stored["data"]
    with pytest.raises(ValueError, match=r"lacks the fields \['data'\]"):
        config_json.from_json(json.dumps(stored), origin="config.json")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TransformerConfig(width=10, num_heads=3), "width=9 would fit"),
        (lambda: TransformerConfig(dropout=1.0), "0 or more and less than 1"),
        (lambda: TrainingConfig(ema_decay=1.0), "less than 1 or None"),
        (lambda: TrainingConfig(ema_decay=0.0), r"ema_decay must be greater than 0"),
        (lambda: RNNConfig(input_feeding=True), "query='current'"),
        (
            lambda: RNNConfig(input_feeding=True, query="current", attention="none"),
            "needs an attention",
        ),
        (lambda: DataConfig(source=CLDRSource(), bucket_lengths=(8, 4)), "rising"),
        (
            lambda: DataConfig(source=CLDRSource(), tokens_per_batch=10),
            "1024 would do",
        ),
        (
            lambda: DataConfig(source=CLDRSource(), target_language="de"),
            "two languages",
        ),
        (
            lambda: experiment(data=DataConfig(source=CLDRSource(), packing=True)),
            "packing",
        ),
        (
            lambda: experiment(
                data=DataConfig(
                    source=CLDRSource(), tokenizer=TokenizerConfig(joint=False)
                ),
                model=TransformerConfig(),
            ),
            "one vocabulary",
        ),
    ],
)
def test_an_impossible_config_is_refused_at_birth(make, message):
    with pytest.raises(ValueError, match=message):
        make()


SECTIONS = [
    value
    for value in vars(config).values()
    if dataclasses.is_dataclass(value) and value is not Experiment
]


def ranges(annotation):
    """The ranges of all numbers in an annotation; a number without one is an error."""
    parts = typing.get_args(annotation)
    if typing.get_origin(annotation) is Annotated:
        own = [part for part in parts if isinstance(part, Within)]
        return own if own and parts[0] in (int, float) else ranges(parts[0])
    assert annotation not in (int, float), "which numbers may it hold?"
    return [found for part in parts for found in ranges(part)]


def outside(within, kind):
    """Numbers that no field of the range may hold."""
    beyond = {
        within.above: 0,
        within.least: -1,
        within.below: 0,
        within.most: 1,
    }
    ends = [end + step for end, step in beyond.items() if end is not None]
    return [*ends, *((10**30, -(10**30), 1.5) if kind is int else (1e39, 1e-46))]


def numbers():
    for section in SECTIONS:
        for name, annotation in annotated(section).items():
            for within in ranges(annotation):
                yield section, name, within, annotation


@pytest.mark.parametrize("name", [section.__name__ for section in SECTIONS])
def test_every_number_is_checked_at_birth(name):
    (section,) = (each for each in SECTIONS if each.__name__ == name)
    fields = {"source": CLDRSource(), **dict.fromkeys(("train", "valid", "test"), "a")}
    required = {
        field.name: Path("a") if section is not DataConfig else fields[field.name]
        for field in dataclasses.fields(section)
        if field.default is dataclasses.MISSING
    }
    for of, field, within, annotation in numbers():
        if of is not section:
            continue
        kind = int if "int" in str(annotation).split("Within")[0] else float
        nobody = [math.nan, math.inf, -math.inf, "1", True]
        for value in (*nobody, *outside(within, kind)):
            is_tuple = isinstance(getattr(section, field), tuple)
            given = {**required, field: (value,) if is_tuple else value}
            with pytest.raises(
                ValueError, match=rf"{name}\.{field} must be"
            ) as refused:
                section(**given)
            assert "got" in str(refused.value)


def test_what_a_field_may_hold_survives_json():
    """The largest and smallest numbers too: nobody is to blame config.json for them."""
    made = experiment(
        seed=(1 << 31) - 1,
        optimizer=OptimizerConfig(
            epsilon=1e-37, schedule=ScheduleConfig(peak=3.4e38, warmup_steps=0)
        ),
    )
    assert config_json.from_json(config_json.to_json(made), origin="") == made


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1\n\n1 / 0\n", "line 3, fails to run: ZeroDivisionError: division"),
        ("x = (\n", "fails to run: SyntaxError: .* line 1"),
        ("import sys\nsys.exit(0)\n", "line 2, fails to run: SystemExit: 0"),
        ("import nowhere_at_all\n", "line 1, fails to run: ModuleNotFoundError"),
        ("experiment = {}\n", "must bind `experiment` .* got dict"),
    ],
)
def test_a_config_that_makes_no_experiment_is_refused(text, message, tmp_path):
    (tmp_path / "mine.py").write_text(text)
    with pytest.raises(ValueError, match=rf"mine\.py.*{message}"):
        read_experiment(tmp_path / "mine.py")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: OptimizerConfig(kind="adm"), "kind must be one of .*'adam'"),
        (lambda: RNNConfig(bidirectional=1), "bidirectional must be a bool, got 1"),
        (lambda: DataConfig(source=CLDRSource(), bucket_lengths=[8]), "be a tuple"),
        (lambda: experiment(workdir="runs"), "workdir must be a path, got 'runs'"),
        (lambda: experiment(seed=-1), "seed must be 0 or more, got -1"),
        (lambda: ScheduleConfig(final=math.nan), "final must be a finite number"),
    ],
)
def test_a_value_of_another_type_is_refused_at_birth(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_help_explains_every_field(capsys):
    for name in ("quickstart", "quickstart_rnn", "wmt_big", "text_files"):
        with pytest.raises(SystemExit) as stop:
            main(["train", "--config", str(ROOT / f"configs/{name}.py"), "--help"])
        assert stop.value.code == 0
        lines = [line.strip("│ ") for line in capsys.readouterr().out.split("\n")]
        options = [  # a line that ends in a comma goes on with the option's other name
            i
            for i, line in enumerate(lines)
            if re.match(r"--\w", line) and not line.endswith(",")
        ]
        assert len(options) > 30
        for index in options:
            help_line = lines[index + 1]
            assert not help_line.startswith(("(default", "--")), lines[index]


def test_a_typo_names_the_nearest_field(capsys):
    config_file = str(ROOT / "configs/quickstart.py")
    with pytest.raises(SystemExit) as stop:
        main(["train", "--config", config_file, "--training.num-stps", "3"])
    assert stop.value.code != 0
    assert "--training.num-steps" in capsys.readouterr().err


def test_defaults_that_are_a_paper_s_are_that_paper_s():
    """Vaswani et al. 2017, table 3, 5.3, 5.4 and 6.1; Xu et al. 2015, section 4.1."""
    model, optimizer = TransformerConfig(), OptimizerConfig()
    stacks = model.encoder_layers, model.decoder_layers, model.num_heads
    assert (model.width, model.feed_forward_width, *stacks) == (512, 2048, 6, 6, 8)
    assert (model.dropout, TrainingConfig().label_smoothing) == (0.1, 0.1)
    assert (model.attention_dropout, model.feed_forward_dropout) == (0.0, 0.0)
    assert (optimizer.beta1, optimizer.beta2, optimizer.epsilon) == (0.9, 0.98, 1e-9)
    assert DecodingConfig().beam_size == 4
    assert DecodingConfig().length_penalty == 0.6
    assert HardChoice().baseline_decay == 0.9
    assert HardChoice().soft_rate == 0.5


def test_every_dataclass_is_frozen_and_keyword_only():
    sections = [
        value for value in vars(config).values() if dataclasses.is_dataclass(value)
    ]
    assert len(sections) >= 12
    for section in sections:
        assert section.__dataclass_params__.frozen, section
        assert all(field.kw_only for field in dataclasses.fields(section)), section


def test_importing_attnjax_does_not_import_tensorflow_or_touch_jax_settings():
    program = (
        "import sys, jax\n"
        "before = dict(jax.config.values)\n"
        "import attnjax.experiment, attnjax.runs.evaluation, attnjax.cli\n"
        "assert dict(jax.config.values) == before\n"
        "assert 'tensorflow' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
