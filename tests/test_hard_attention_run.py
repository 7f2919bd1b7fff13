"""Hard attention through the public commands: its baseline is part of a checkpoint."""

import json
import shutil
from pathlib import Path

import jax
import numpy as np

from attnjax.cli import main
from attnjax.runs.opening import open_run
from attnjax.storage.checkpoints import Checkpoints

ROOT = Path(__file__).parents[1]
HARD = [
    *("--model.selection.kind", "hard", "--model.selection.entropy-weight", "0.1"),
    *("--model.embedding-width", "12", "--model.hidden-width", "16"),
    *("--model.attention-width", "8", "--data.bucket-lengths", "32"),
    *("--data.source.train-pairs", "300", "--data.source.valid-pairs", "8"),
    *("--data.source.test-pairs", "8", "--data.tokenizer.vocab-size", "400"),
    *("--data.tokens-per-batch", "256", "--decoding.max-extra-tokens", "4"),
    *("--decoding.max-source-tokens", "48", "--evaluation.beam-size", "2"),
    *("--optimizer.schedule.kind", "constant", "--training.log-every", "1"),
    *("--training.evaluate-every", "9", "--training.checkpoint-every", "2"),
]


def _train(workdir: Path):
    arguments = [
        *("train", "--config", str(ROOT / "configs" / "quickstart_rnn.py")),
        *("--workdir", str(workdir), "--training.num-steps", "4", *HARD),
    ]
    assert main(arguments) == 0
    return open_run(workdir, checkpoint="latest")


def test_a_resumed_run_is_the_unbroken_run_bit_for_bit(tmp_path):
    unbroken = _train(tmp_path / "unbroken")
    shutil.copytree(tmp_path / "unbroken", tmp_path / "resumed")
    with Checkpoints(tmp_path / "resumed" / "checkpoints", 99) as checkpoints:
        checkpoints.discard_after(2)
    halfway = open_run(tmp_path / "resumed", checkpoint="latest")
    assert halfway.step == 2
    resumed = _train(tmp_path / "resumed")
    assert resumed.step == unbroken.step == 4
    jax.tree.map(np.testing.assert_array_equal, resumed.variables, unbroken.variables)
    usual = unbroken.variables["baseline"]["cost"]
    assert 4.0 < usual.cost / usual.tokens < 8.0  # near the log of the vocabulary
    assert usual.cost != halfway.variables["baseline"]["cost"].cost
    lines = (tmp_path / "unbroken" / "metrics.jsonl").read_text().splitlines()
    entropies = [
        record["choice_entropy"]
        for record in map(json.loads, lines)
        if "choice_entropy" in record
    ]
    assert len(entropies) == 4
    assert all(0.5 < entropy < np.log(32) for entropy in entropies)
