"""What a process is told about the others of its run, and what it refuses to guess."""

import argparse

import pytest

from attnjax.cli import main
from attnjax.cli.launch import Launch, add_launch_options, chosen_launch

BY_HAND = "--coordinator 10.0.0.1:9876 --num-processes 4 --process-id 3"
STEP = {
    "SLURM_JOB_ID": "7",
    "SLURM_STEP_NODELIST": "node[1-4]",
    "SLURM_LOCALID": "0",
    "SLURM_NTASKS": "4",
}


@pytest.fixture(autouse=True)
def _nowhere(monkeypatch):
    for name in (*STEP, "OMPI_COMM_WORLD_SIZE", "TPU_WORKER_HOSTNAMES"):
        monkeypatch.delenv(name, raising=False)


def chosen(line):
    parser = argparse.ArgumentParser()
    add_launch_options(parser)
    return chosen_launch(parser.parse_args(line.split()))


def test_one_process_has_no_others():
    assert chosen("") is None
    assert chosen("--num-processes 1") is None


def test_by_hand_all_is_given():
    given = chosen(f"{BY_HAND} --peer-timeout-seconds 20")
    assert given == Launch(
        peer_timeout_seconds=20,
        coordinator="10.0.0.1:9876",
        num_processes=4,
        process_id=3,
    )
    assert chosen("--distributed") == Launch(peer_timeout_seconds=300)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--coordinator 10.0.0.1:9876", "are given together"),
        ("--num-processes 2 --process-id 0", "are given together"),
        (
            BY_HAND.replace("-id 3", "-id 4"),
            "from 0 to --num-processes - 1, got 4 of 4",
        ),
        (BY_HAND.replace("-id 3", "-id -1"), "got -1 of 4"),
        (BY_HAND.replace(":9876", ""), "got '10.0.0.1'"),
        (BY_HAND.replace("9876", "99999"), "a free port of it"),
        (BY_HAND.replace("9876", "http"), "a free port of it"),
        (f"{BY_HAND} --distributed", "leave it out, or"),
        ("--distributed --peer-timeout-seconds 0", "at least 1, got 0"),
        ("--peer-timeout-seconds 9", "no other processes are joined"),
        ("--num-processes 1 --peer-timeout-seconds 9", "no other processes are joined"),
    ],
)
def test_what_is_missing_or_contradicts_is_refused(line, message):
    with pytest.raises(ValueError, match=message):
        chosen(line)


@pytest.mark.parametrize(
    ("environment", "where"),
    [
        (STEP, "one of 4 tasks of a Slurm step"),
        ({"OMPI_COMM_WORLD_SIZE": "3"}, "one of 3 processes of an MPI job"),
        ({"TPU_WORKER_HOSTNAMES": "a,b"}, "on one of 2 hosts of a TPU slice"),
    ],
)
def test_one_of_several_is_to_say_what_it_is(environment, where, monkeypatch, capsys):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert main(["train", "--config", "none.py"]) == 1
    err = capsys.readouterr().err
    assert where in err
    assert "add --distributed" in err
    assert "--num-processes 1 if each trains its own" in err
    assert chosen("--num-processes 1") is None
    assert chosen("--distributed") is not None


@pytest.mark.parametrize("changes", [{"SLURM_NTASKS": "1"}, {"SLURM_LOCALID": None}])
def test_a_batch_script_or_a_single_task_is_alone(changes, monkeypatch):
    for name, value in {**STEP, **changes}.items():
        if value is not None:
            monkeypatch.setenv(name, value)
    assert chosen("") is None
