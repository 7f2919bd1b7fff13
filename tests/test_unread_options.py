"""Options that nobody reads are refused, or left out where the kind was changed."""

import dataclasses
from pathlib import Path

import pytest

from attnjax.cli import main
from attnjax.config import (
    DecodingConfig,
    OptimizerConfig,
    RNNConfig,
    ScheduleConfig,
    TokenizerConfig,
    TrainingConfig,
    TransformerConfig,
)
from attnjax.ops.attend import Dense
from attnjax.ops.catalog import CATALOG
from attnjax.ops.entry import Sizes
from attnjax.ops.hard import GumbelChoice, HardChoice
from attnjax.ops.linear import Linear
from attnjax.ops.lsh import LSH
from attnjax.unread_options import (
    require_read,
    settled,
    unread_options,
    without_unread,
)

CONFIG = str(Path(__file__).parents[1] / "configs/quickstart.py")
UNREAD = [
    (ScheduleConfig(kind="constant", final=0.1), "kind cosine", "peak, warmup_steps"),
    (ScheduleConfig(kind="rsqrt", width=8), "kind noam", "peak, warmup_steps"),
    (OptimizerConfig(weight_decay=0.1), "kind adamw", "adam reads beta1, beta2"),
    (OptimizerConfig(kind="adafactor", beta1=0.5), "kind adam or adamw", "reads clip"),
    (HardChoice(seed=3), "test_choice sample", ""),
    (RNNConfig(selection=GumbelChoice(seed=3)), "selection.seed=3", ""),
    (RNNConfig(attention="dot", attention_width=9), "attention additive or conc", ""),
    (RNNConfig(max_source_tokens=9), "attention location", ""),
    (TransformerConfig(max_positions=9), "positions learned or scorer location", ""),
    (
        TransformerConfig(max_positions=9, encoder_attention=Linear()),
        "encoder_attention.kind linformer or routing or strided",
        "",
    ),
    (
        TransformerConfig(
            attention_dropout=0.1,
            encoder_attention=(Linear(), LSH()),
            decoder_attention=Linear(),
            cross_attention=Linear(),
        ),
        "encoder_attention.kind dense",
        "",
    ),
    (TokenizerConfig(kind="word", byte_fallback=False), "kind bpe or unigram", "joint"),
    (TrainingConfig(max_bad_steps=3), "on_bad_step skip or rollback", ""),
    (TrainingConfig(spike_warmup_steps=3), "needs spike_factor a value", ""),
    (
        DecodingConfig(method="sampling", length_penalty=3.0),
        "needs method beam",
        "method sampling reads n_best",
    ),
]


@pytest.mark.parametrize(("section", "needs", "reads"), UNREAD)
def test_what_nobody_reads_is_refused_with_what_is_read(section, needs, reads):
    with pytest.raises(ValueError, match="has no effect") as refused:
        require_read(section)
    assert needs in str(refused.value)
    assert reads in str(refused.value)
    require_read(without_unread(section))


@pytest.mark.parametrize("kind", CATALOG)
def test_max_positions_is_read_where_shapes_or_options_depend_on_it(kind):
    def made(max_keys):
        sizes = Sizes(num_heads=2, key_width=4, value_width=4, max_keys=max_keys)
        chosen = line.chosen(sizes=sizes)
        arrays = [
            make(sizes, **chosen) for make in (line.parameters, line.buffers) if make
        ]
        return chosen, [{n: a.shape for n, a in owned.items()} for owned in arrays]

    line = CATALOG[kind]
    attention = Dense(), line.options()  # one of several is enough
    config = TransformerConfig(max_positions=9, encoder_attention=attention)
    is_read = made(100) != made(10_000)
    assert (not list(unread_options(config))) == is_read
    assert (line.max_keys != "unread") == is_read
    assert (config.longest.source == 9) == (line.max_keys == "limit")


def test_options_that_the_new_kind_does_not_read_are_left_out_and_said():
    before = ScheduleConfig(kind="cosine", final=0.1)
    found, told = settled(dataclasses.replace(before, kind="rsqrt"), before)
    assert found == ScheduleConfig(kind="rsqrt")
    assert len(told) == 1
    assert told[0].startswith("final=0.1 has no effect")
    assert told[0].endswith(": left out")
    with pytest.raises(ValueError, match=r"final=0\.2"):
        settled(dataclasses.replace(before, kind="rsqrt", final=0.2), before)


def test_the_command_line_may_replace_the_kind_of_a_config(capsys, caplog, tmp_path):
    config = tmp_path / "mine.py"
    config.write_text(
        "import dataclasses, runpy\n"
        "from attnjax.config import OptimizerConfig, ScheduleConfig\n"
        f"made = runpy.run_path({CONFIG!r})['experiment']\n"
        "schedule = ScheduleConfig(kind='cosine', final=1e-5)\n"
        "optimizer = OptimizerConfig(schedule=schedule)\n"
        "experiment = dataclasses.replace(made, optimizer=optimizer)\n"
    )
    command = ["train", "--config", str(config), "--workdir", str(tmp_path / "run")]
    kind = ["--optimizer.schedule.kind", "constant"]
    with caplog.at_level("INFO"):  # it goes on to the next thing that is wrong
        assert main([*command, *kind, "--model.encoder-attention.kind", "linear"]) == 1
    assert "rotary" in capsys.readouterr().err
    assert "optimizer.schedule.final=1e-05 has no effect" in caplog.text
    assert main([*command, *kind, "--optimizer.schedule.final", "2e-5"]) == 1
    error = capsys.readouterr().err
    assert "optimizer.schedule.final=2e-05 has no effect" in error
    assert "kind constant reads peak, warmup_steps" in error
    config.write_text(config.read_text().replace("cosine", "rsqrt"))
    assert main(command) == 1
    assert f"{config}: optimizer.schedule.final=1e-05" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
