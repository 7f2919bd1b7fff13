"""A run killed anywhere, and run again, is the unbroken run, bit for bit.

The whole sweep (30 kills at random, 10 inside a save; 10 minutes on two cores):

    python -m pytest -m sweep -s tests/faults/test_kill_sweep.py
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
import pytest

from attnjax.data.corpus import load_corpora
from attnjax.data.pipeline import training_batches
from attnjax.data.tokenizers import load_tokenizers
from attnjax.experiment import RunFolder, read_config
from attnjax.storage.checkpoints import Checkpoints
from attnjax.storage.manifest import verified
from attnjax.storage.orbax_manager import load, open_manager
from attnjax.training.anomaly_report import fingerprint
from attnjax.training.metrics_log import read_metrics

ROOT = Path(__file__).parents[2]
DYING = Path(__file__).with_name("dying.py")
ENVIRONMENT = {
    **os.environ,
    "JAX_PLATFORMS": "cpu",
    "XLA_FLAGS": os.environ["XLA_FLAGS"].replace("device_count=8", "device_count=1"),
    "PYTHONPATH": str(ROOT),
    # Each start takes seconds; let none of them compile what another one has.
    "XDG_CACHE_HOME": str(ROOT / ".pytest_cache"),
}
CONFIG = '''"""Twelve words, translated one by one; dropout, average and patience."""

from pathlib import Path

from attnjax.config import *

here = Path(__file__).parent
experiment = Experiment(
    data=DataConfig(
        source=TextFilesSource(
            train=here / "train", valid=here / "valid", test=here / "valid"
        ),
        tokenizer=TokenizerConfig(kind="word", vocab_size=40),
        bucket_lengths=(8,),
        tokens_per_batch=128,
    ),
    model=TransformerConfig(
        width=32,
        num_heads=2,
        feed_forward_width=64,
        encoder_layers=1,
        decoder_layers=1,
        dropout=0.1,
        norm_position="pre",
    ),
    optimizer=OptimizerConfig(
        schedule=ScheduleConfig(kind="constant", peak=1e-2, warmup_steps=5)
    ),
    training=TrainingConfig(
        num_steps=60,
        log_every=1,
        evaluate_every=4,
        checkpoint_every=3,
        keep_checkpoints=2,
        label_smoothing=0.0,
        ema_decay=0.9,
    ),
    decoding=DecodingConfig(max_extra_tokens=2),
    evaluation=EvaluationConfig(beam_size=2),
)
'''
NUM_WORDS, NUM_BATCHES = 12, 50
SAVE_OPERATIONS, START_OPERATIONS = 36, 20  # about; `dying.py` counts them


class Kill(NamedTuple):
    """How a process of the public command meets SIGKILL.

    Attributes:
        how: ``step``: once ``number``, or a later one, is new in the log. ``time``:
            ``number`` seconds after its start. ``start``, ``save``: at operation
            ``number``; see `dying`.
        number: see there.
        seconds: that it is left to live on.
    """

    how: str
    number: float
    seconds: float


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    rng = np.random.default_rng(0)
    for name, count in (("train", 400), ("valid", 16)):
        lines = [rng.integers(NUM_WORDS, size=rng.integers(2, 7)) for _ in range(count)]
        for language in ("de", "en"):
            text = [" ".join(f"{language}{word}" for word in line) for line in lines]
            (folder / f"{name}.{language}").write_text("\n".join(text) + "\n")
    path = folder / "config.py"
    path.write_text(CONFIG)
    return path


class Runs:
    """Runs of one command line, each in a folder of its own."""

    def __init__(self, config, *options):
        self.arguments = ["--config", str(config), *options]

    def start(self, workdir, kill=None):
        command = [ROOT / "train.py"]
        if kill is not None and kill.how in ("start", "save"):
            command = [DYING, kill.how, kill.number, kill.seconds, workdir, "train"]
        command += [*self.arguments, "--workdir", workdir]
        with told(workdir).open("ab") as file:
            return subprocess.Popen(
                [sys.executable, *map(str, command)],
                stdout=subprocess.DEVNULL,
                stderr=file,
                env=ENVIRONMENT,
            )

    def finish(self, workdir):
        assert self.start(workdir).wait(400) == 0, told(workdir).read_text()

    def kill(self, workdir, kill):
        """Starts a process that must not end before it is killed."""
        begin, logged = time.monotonic(), last_step(workdir)
        process = self.start(workdir, kill)
        if kill.how == "time":
            time.sleep(kill.number)
        elif kill.how == "step":
            goal = max(kill.number, logged + 1)
            while process.poll() is None and last_step(workdir) < goal:
                time.sleep(0.002)
            time.sleep(kill.seconds)
        if kill.how in ("time", "step"):
            process.kill()
        assert process.wait(400) == -signal.SIGKILL, (kill, told(workdir).read_text())
        print(f"{kill}: after {time.monotonic() - begin:.1f} s, {standing(workdir)}")


def told(workdir):
    """What the processes of a run have written to their standard error."""
    return workdir.with_name(f"{workdir.name}.log")


def last_step(workdir):
    return max((record["step"] for record in read_metrics(workdir)), default=0)


def standing(workdir):
    """What the killed process has left, for the report of the sweep."""
    entries = workdir / "checkpoints"
    names = sorted(path.name for path in entries.glob("*"))
    return f"step {last_step(workdir)} logged, {' '.join(names)}"


def timeless(workdir):
    """The log without what depends on the clock."""
    return [
        {name: value for name, value in record.items() if name != "timing"}
        for record in read_metrics(workdir)
    ]


def contents(checkpoints):
    """Every bit of the checkpoints, but for the clocks of the progress."""
    manager = open_manager(checkpoints, None)
    found = {}
    for step in manager.all_steps():
        folder = checkpoints / str(step)
        with verified(folder, name=str(step)):
            stored = manager.item_metadata(step).state.tree
            target = jax.tree.map(
                lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), stored
            )
            state, extra = load(manager, folder, target)
        del extra["progress"]["seconds"], extra["progress"]["window_seconds"]
        leaves = jax.tree_util.tree_leaves_with_path(state)
        bits = {str(path): bits_of(leaf) for path, leaf in leaves}
        found[step] = bits, extra
    manager.close()
    return found


def bits_of(leaf):
    if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    return np.asarray(leaf).tobytes()


def next_batches(workdir, position, *, skipped=0):
    """Fingerprints of the batches that follow a stored position, or the beginning."""
    experiment = read_config(RunFolder(workdir))
    corpora = load_corpora(experiment.data)
    batches = training_batches(
        corpora["train"],
        load_tokenizers(RunFolder(workdir).tokenizer),
        experiment.data,
        seed=experiment.seed,
        validation=corpora["valid"],
    )
    if position is not None:
        batches.set_state(position)
    taken = [fingerprint(next(batches)) for _ in range(skipped + NUM_BATCHES)]
    batches.close()
    return taken[skipped:]


def outcome(workdir):
    """All that a run has come to: log, checkpoints, scores, what it would read next."""
    checkpoints = workdir / "checkpoints"
    found = contents(checkpoints)
    _, extra = found[max(found)]
    apart = ("tensorboard", "checkpoints")
    return {
        "log": timeless(workdir),
        "files": sorted(p.name for p in workdir.iterdir() if p.name not in apart),
        "entries": sorted(path.name for path in checkpoints.iterdir()),
        "scores": json.loads((checkpoints / "scores.json").read_text()),
        "checkpoints": found,
        "batches": next_batches(workdir, extra["batches"]),
    }


def assert_same(found, expected):
    for name, value in expected.items():
        assert found[name] == value, name


def survive(runs, workdir, kills, expected):
    """Kills a run again and again, lets it end, and compares it with the unbroken."""
    for kill in kills:
        runs.kill(workdir, kill)
        logged = timeless(workdir)
        assert logged == expected["log"][: len(logged)], kill
    runs.finish(workdir)
    assert "Going back to the one before" not in told(workdir).read_text()
    assert_same(outcome(workdir), expected)


def unbroken(runs, workdir):
    runs.finish(workdir)
    found = outcome(workdir)
    last = max(found["checkpoints"])
    assert found["batches"] == next_batches(workdir, None, skipped=last)
    trained = [each["step"] for each in found["log"] if each["event"] == "train"]
    assert trained == list(range(1, last + 1))
    parts = {path.split("'")[1] for path in found["checkpoints"][last][0]}
    assert parts == {"step", "params", "optimizer_state", "rng", "ema"}
    return found


def test_a_run_that_ends_by_patience_survives_kills_of_every_kind(config, tmp_path):
    runs = Runs(config, "--training.patience", "3")
    expected = unbroken(runs, tmp_path / "unbroken")
    progress = expected["checkpoints"][max(expected["checkpoints"])][1]["progress"]
    assert progress["stale_evaluations"] == 3
    assert 12 < max(expected["checkpoints"]) < 60
    kills = [Kill("start", 4, 0), Kill("save", 20, 0), Kill("step", 11, 0)]
    survive(runs, tmp_path / "killed", kills, expected)


NUM_CHAINS = 10


def chain(number):
    """Three kills at random and one inside a save, in any order."""
    rng = np.random.default_rng(number)
    steps = iter(sorted(rng.integers(1, 46, size=3)))
    order = rng.permutation(["step", "step", "save", "step"])
    if number % 2:
        order[list(order).index("step")] = "time"
    else:  # of a folder that is not yet a run
        order = ["start", *order[order != "step"], "step", "step"]
    kills = []
    for how in order:
        number, seconds = int(rng.integers(2, 3 * SAVE_OPERATIONS)), 0.0
        if how == "step":
            number, seconds = int(next(steps)), rng.uniform(0, 0.3)
        elif how == "time":
            number = rng.uniform(0, 8)
        elif how == "start":
            number = int(rng.integers(1, START_OPERATIONS))
        elif rng.random() < 0.5:
            seconds = rng.uniform(0, 0.02)
        kills.append(Kill(str(how), number, seconds))
    return kills


@pytest.fixture(scope="module")
def unbroken_sweep(config, tmp_path_factory):
    runs = Runs(config, "--training.patience", "6")
    return runs, unbroken(runs, tmp_path_factory.mktemp("unbroken") / "run")


@pytest.mark.slow
@pytest.mark.sweep
@pytest.mark.parametrize("number", range(NUM_CHAINS))
def test_the_whole_sweep(unbroken_sweep, tmp_path, number):
    runs, expected = unbroken_sweep
    survive(runs, tmp_path / "run", chain(number), expected)


def test_the_sweep_has_thirty_kills_at_random_and_ten_inside_a_save():
    kills = [kill.how for number in range(NUM_CHAINS) for kill in chain(number)]
    assert {how: kills.count(how) for how in kills} == {
        "step": 20,
        "time": 5,
        "start": 5,
        "save": 10,
    }


DIE_WHILE_SAVING = """
import sys
from pathlib import Path
import numpy as np
sys.path.insert(0, {tests!r})
from dying import die, path_of
from attnjax.storage.checkpoints import Checkpoints

folder, keep = Path(sys.argv[1]), int(sys.argv[2])
found = []

def watch(event, arguments):
    if {which}:
        found.append(event)
        if len(found) == {number}:
            die()

sys.addaudithook(watch)
with Checkpoints(folder, keep) as checkpoints:
    for step in (1, 2, 3, 4):
        checkpoints.save(step, {{"kernel": np.full(5, step, np.float32)}}, {{}})
"""


def die_while_saving(folder, keep, which, number):
    """Saves steps 1 to 4 in a process that dies at an audited file operation."""
    tests = str(DYING.parent)
    script = DIE_WHILE_SAVING.format(tests=tests, which=which, number=number)
    command = [sys.executable, "-c", script, str(folder), str(keep)]
    killed = subprocess.run(command, capture_output=True, env=ENVIRONMENT)
    assert killed.returncode == -signal.SIGKILL, killed.stderr


def test_after_a_death_before_the_rename_and_going_back_saving_works(tmp_path, caplog):
    """The temporary folder is whole, only not yet named; then two steps back."""
    folder = tmp_path / "checkpoints"
    die_while_saving(
        *(folder, 9, 'event == "os.rename" and arguments[1] == f"{folder}/4"', 1)
    )
    (temporary,) = folder.glob("4.*")
    assert (temporary / "manifest.json").is_file()
    target = {"kernel": np.zeros(5, np.float32)}
    with Checkpoints(folder, 9) as checkpoints:
        assert "the checkpoint of step 4" in caplog.text
        assert checkpoints.resume(target).step == 3
        checkpoints.discard_after(1)
        for step in (2, 3, 4):
            checkpoints.save(step, {"kernel": np.full(5, 10 * step, np.float32)}, {})
    with Checkpoints(folder, None) as checkpoints:
        found = {s: checkpoints.restore(s, target)[0] for s in checkpoints.steps()}
    values = {
        step: np.unique(state["kernel"]).tolist() for step, state in found.items()
    }
    assert values == {1: [1.0], 2: [20.0], 3: [30.0], 4: [40.0]}
    assert not list(folder.glob("*tmp*"))


@pytest.mark.parametrize("number", [2, 3, 6])
def test_what_was_half_removed_is_no_checkpoint_any_more(tmp_path, caplog, number):
    folder = tmp_path / "checkpoints"
    gone = 'event == "os.remove" and "/1/" in path_of(event, arguments)'
    die_while_saving(folder, 2, gone, number)
    assert (folder / "1").is_dir()
    with Checkpoints(folder, 2) as checkpoints:
        assert checkpoints.steps() == [2, 3]
    assert sorted(path.name for path in folder.iterdir()) == ["2", "3"]
    assert "step 1" in caplog.text
    assert "was being removed when the run ended" in caplog.text
