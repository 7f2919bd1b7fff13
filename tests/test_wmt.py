"""The WMT configs: full-size models counted, small ones trained on fake archives."""

import logging
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from attnjax.cli import main
from attnjax.cli.configs import read_experiment
from attnjax.models.rnn import RNNSeq2Seq
from attnjax.models.transformer import Transformer
from attnjax.runs.opening import open_run
from attnjax.types import Tokens

CONFIGS = Path(__file__).parents[1] / "configs"
SMALL = [
    *("--data.tokenizer.vocab-size", "300", "--data.bucket-lengths", "32"),
    *("--data.tokens-per-batch", "256"),
    *("--model.width", "32", "--model.feed-forward-width", "48"),
    *("--model.encoder-layers", "1", "--model.decoder-layers", "2"),
    *("--training.evaluate-every", "2", "--training.checkpoint-every", "1"),
    *("--decoding.max-extra-tokens", "5", "--decoding.max-source-tokens", "24"),
    *("--decoding.beam-size", "2", "--evaluation.beam-size", "2"),
]


@pytest.mark.parametrize("languages", [("en", "de"), ("de", "en")])
def test_wmt_big_starts_checkpoints_and_resumes(
    languages, fake_wmt, tmp_path, caplog, capsys
):
    workdir = tmp_path / "run"
    source, target = languages

    def train(steps: int) -> int:
        return main(
            [
                *("train", "--config", str(CONFIGS / "wmt_big.py")),
                *("--workdir", str(workdir), "--training.num-steps", str(steps)),
                *("--data.source.manual-dir", str(fake_wmt)),
                *("--data.source.data-dir", str(tmp_path / "prepared")),
                *("--data.source-language", source),
                *("--data.target-language", target),
                *SMALL,
            ]
        )

    steps = 1
    with caplog.at_level(logging.INFO):
        assert train(steps) == 0
        assert "parameters" in caplog.text
        if source == "en":
            steps = 3
            assert train(steps) == 0
            assert "going on from step 1" in caplog.text
    run = open_run(workdir, checkpoint="latest")
    assert run.step == steps
    assert run.translator.model.dtype == jnp.bfloat16
    assert {leaf.dtype for leaf in jax.tree.leaves(run.variables)} == {
        jnp.dtype("float32")
    }
    if source == "de":
        capsys.readouterr()
        assert main(["evaluate", "--workdir", str(workdir), "--pictures", "0"]) == 0
        assert '"lines": 4' in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "millions"),
    [("wmt_base", 63), ("wmt_big", 214), ("wmt_bahdanau", 86), ("wmt_luong", 167)],
)
def test_full_size_models_have_the_papers_number_of_parameters(name, millions):
    experiment = read_experiment(CONFIGS / f"{name}.py")
    size = experiment.data.tokenizer.vocab_size
    family = (
        Transformer if "Transformer" in type(experiment.model).__name__ else RNNSeq2Seq
    )
    model = family(experiment.model, size, size)
    example = Tokens(jnp.ones((1, 2), jnp.int32), jnp.ones((1, 2), bool))
    variables = jax.eval_shape(
        lambda: model.init(jax.random.key(0), example, example, train=False)
    )
    count = sum(leaf.size for leaf in jax.tree.leaves(variables))
    assert round(count / 1e6) == millions
