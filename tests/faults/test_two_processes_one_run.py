"""Two processes train together through the public command, and lose each other."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest

from attnjax.cli import main
from attnjax.runs.opening import open_run
from attnjax.storage.run_lock import hold_run_folder

ROOT = Path(__file__).parents[2]
STEPS = 20
CONFIG = f"""
from pathlib import Path
from attnjax.config import *

corpus = Path(__file__).parent / "corpus"
experiment = Experiment(
    workdir=Path("never"),
    data=DataConfig(
        source=TextFilesSource(
            train=corpus / "train", valid=corpus / "valid", test=corpus / "valid"
        ),
        tokenizer=TokenizerConfig(kind="word", vocab_size=40),
        bucket_lengths=(8,),
        tokens_per_batch=64,
        rows_multiple=2,
    ),
    model=TransformerConfig(
        width=8, num_heads=2, feed_forward_width=16, encoder_layers=1, decoder_layers=1
    ),
    decoding=DecodingConfig(max_extra_tokens=2),
    evaluation=EvaluationConfig(beam_size=1),
    training=TrainingConfig(
        num_steps={STEPS}, log_every=1, evaluate_every={STEPS}, checkpoint_every=5
    ),
)
"""
WORDS = "eins zwei drei vier fünf sechs sieben acht neun".split()


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    folder = tmp_path_factory.mktemp("experiment")
    (folder / "corpus").mkdir()
    draw = np.random.default_rng(3)
    for name, lines in (("train", 50), ("valid", 5)):
        texts = [
            " ".join(draw.choice(WORDS, draw.integers(1, 7))) for _ in range(lines)
        ]
        (folder / f"corpus/{name}.de").write_text("\n".join(texts) + "\n")
        (folder / f"corpus/{name}.en").write_text("\n".join(texts).upper() + "\n")
    (folder / "config.py").write_text(CONFIG)
    return folder / "config.py"


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    cache = tmp_path_factory.mktemp("cache")
    flags = os.environ["XLA_FLAGS"].replace("device_count=8", "device_count=1")
    return {**os.environ, "XLA_FLAGS": flags, "XDG_CACHE_HOME": str(cache)}


class Pair:
    """The two processes of a run, each under its parent, or one of them alone."""

    def __init__(self, config, environment, workdir, *options, numbers=(0, 1)):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        self.workdir = workdir
        command = [
            *(sys.executable, str(ROOT / "train.py"), "--config", str(config)),
            *("--workdir", str(workdir), "--coordinator", self.address),
            *("--num-processes", "2", *options),
        ]
        self.errors = [workdir.with_name(f"{workdir.name}.{n}.err") for n in numbers]
        self.processes = []
        for number, errors in zip(numbers, self.errors, strict=True):
            with errors.open("w") as stderr:
                self.processes.append(
                    subprocess.Popen(
                        [*command, "--process-id", str(number)],
                        stdout=subprocess.DEVNULL,
                        stderr=stderr,
                        env=environment,
                        cwd=config.parent,
                    )
                )

    def at_step(self, step):
        """Waits until the log has a step, and returns self."""
        log, end = self.workdir / "metrics.jsonl", time.monotonic() + 400
        while f'"step": {step},' not in (log.read_text() if log.exists() else ""):
            assert time.monotonic() < end, self.told()
            assert all(process.poll() is None for process in self.processes), (
                self.told()
            )
            time.sleep(0.02)
        return self

    def ended(self, seconds=400):
        """The exit codes."""
        try:
            return [process.wait(seconds) for process in self.processes]
        finally:
            for process in self.processes:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()

    def told(self):
        return [errors.read_text() for errors in self.errors]


def losses(workdir):
    records = map(json.loads, (workdir / "metrics.jsonl").read_text().splitlines())
    return [(r["step"], r["loss"]) for r in records if r["event"] == "train"]


def sentences(errors):
    return [line for line in errors.splitlines() if line.startswith("attnjax: ")]


@pytest.mark.slow
def test_killed_resumed_and_stopped_it_is_the_unbroken_run(
    config, environment, tmp_path, capfd
):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    every = ("--training.checkpoint-every", "1", "--training.keep-checkpoints", "99")
    unbroken = Pair(config, environment, whole, *every)
    assert unbroken.ended() == [0, 0], unbroken.told()
    first, second = unbroken.told()
    assert f"step {STEPS}/{STEPS} validation" in first
    assert "step " not in second  # only the first one reports
    assert [step for step, _ in losses(whole)] == list(range(1, STEPS + 1))

    # One is killed, and with it dies the other, in the middle of a step.
    left = Pair(config, environment, broken, "--peer-timeout-seconds", "10").at_step(7)
    left.processes[1].kill()
    moment = time.monotonic()
    assert left.ended() == [75, -signal.SIGKILL], left.told()
    assert time.monotonic() - moment < 25  # and not the minutes of a collective
    (sentence,) = sentences(left.told()[0])
    assert "process 1 of 2 " in sentence
    assert left.address in sentence
    assert "***" not in left.told()[0], left.told()[0]

    stopped = Pair(config, environment, broken).at_step(12)
    stopped.processes[1].send_signal(signal.SIGTERM)
    assert stopped.ended() == [143, 143], stopped.told()
    assert "going on from step 5" in stopped.told()[0]
    end, _ = losses(broken)[-1]
    assert 12 <= end < STEPS
    assert losses(broken) == losses(whole)[:end]
    one, other = open_run(whole, checkpoint=end), open_run(broken, checkpoint="latest")
    assert other.step == end
    jax.tree.map(np.testing.assert_array_equal, one.variables, other.variables)
    capfd.readouterr()
    assert main(["evaluate", "--workdir", str(broken), "--pictures", "0"]) == 0
    assert json.loads(capfd.readouterr().out)["lines"] == 5


@pytest.mark.slow
def test_one_that_is_alone_ends_with_a_sentence(config, environment, tmp_path):
    pairs = [
        Pair(
            *(config, environment, tmp_path / f"alone_{number}"),
            *("--peer-timeout-seconds", "4"),
            numbers=(number,),
        )
        for number in (0, 1)
    ]
    for number, pair in enumerate(pairs):
        assert pair.ended() == [75]
        (told,) = pair.told()
        what = f"process {1 - number} of 2 did not answer at {pair.address} within 4 s"
        (sentence,) = sentences(told)
        assert what in sentence
        assert len(told.splitlines()) == 2, told  # after the line that it waits
        assert not pair.workdir.exists()


@pytest.mark.slow
def test_all_end_with_what_the_first_one_refuses(config, environment, tmp_path):
    workdir = tmp_path / "in_use"
    with hold_run_folder(workdir):
        pair = Pair(config, environment, workdir)
        assert pair.ended() == [1, 1]
    first, second = (sentences(told)[0] for told in pair.told())
    assert f"{workdir} is in use" in first
    assert f"process 0 of 2 refuses to go on: {workdir} is in use" in second
