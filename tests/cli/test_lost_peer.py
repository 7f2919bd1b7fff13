"""Which process was lost, from texts that JAX 0.10.2 and 0.12.0 have printed."""

import pytest

from attnjax.cli.launch import Launch
from attnjax.cli.lost_peer import lost_peer

FATAL = (
    "F1130 05:56:18.122685    4039 client.h:80] Terminating process because the JAX "
    "distributed service detected fatal errors. This most likely indicates that "
    "another task died; see the other task logs for more details. absl::Status: "
)
REGISTER = (
    FATAL
    + """DEADLINE_EXCEEDED: Deadline Exceeded

RPC: /xla.coordination.CoordinationService/RegisterTask
*** Check failure stack trace: ***
"""
)
HEARTBEATS = (
    FATAL
    + """UNAVAILABLE: The following tasks are unhealthy (stopped sending heartbeats):
2
The tasks have crashed. Check the task logs for an earlier error, or scheduler events.
"""
)
LEADER = (
    FATAL
    + """UNAVAILABLE: Failed to send RPC to coordination service. Either the leader task
was preempted/died/restarted unexpectedly or this task is experiencing network issues.
:UNKNOWN:Error received from peer  {grpc_status:14, grpc_message:"Socket closed"}
"""
)
BARRIER = """INTERNAL: Barrier failed because: task is set to ERROR: UNAVAILABLE: Task 1
heartbeat timeout. This indicates that the remote task has failed.
RPC: /xla.coordination.CoordinationService/Barrier"""
LATE = """DEADLINE_EXCEEDED: Barrier timed out. Id: x::0.
# of tasks that reached the barrier: 2/3.
The first task at the barrier: 0. Some timed out task names:
2

RPC: /xla.coordination.CoordinationService/Barrier"""
GLOO = (
    "UNKNOWN: Gloo all-reduce failed: [external/gloo/gloo/transport/tcp/pair.cc:538] "
    "Read error [127.0.0.1]:48540: Connection reset by peer"
)
NCCL = "INTERNAL: NCCL operation failed: remote process exited or a network error"


def launch(count, mine, coordinator="h:1"):
    return Launch(
        peer_timeout_seconds=20,
        coordinator=coordinator,
        num_processes=count,
        process_id=mine,
    )


@pytest.mark.parametrize(
    ("text", "count", "mine", "expected"),
    [
        (REGISTER, 2, 0, "process 1 of 2 did not answer at h:1 within 20 s"),
        (REGISTER, 2, 1, "process 0 of 2 did not answer at h:1 within 20 s"),
        (REGISTER, 4, 1, "another process of 4 did not answer at h:1 within 20 s"),
        (HEARTBEATS, 4, 1, "process 2 of 4 did not answer"),
        (HEARTBEATS, None, None, "process 2 did not answer"),
        (LATE, 3, 0, "process 2 of 3 did not answer"),
        (BARRIER, 2, 0, "process 1 of 2 did not answer"),
        (LEADER, 2, 1, "process 0 of 2 has ended"),
        (GLOO, 2, 0, "process 1 of 2 has ended, or its connection at h:1 is broken"),
        (GLOO, 3, 0, "another process of 3 has ended"),
        (NCCL, None, None, "another process has ended"),
    ],
)
def test_the_sentence_names_the_process_and_what_to_do(text, count, mine, expected):
    sentence = lost_peer(text, launch(count, mine))
    assert sentence.startswith(expected)
    assert "run the same command again in every process" in sentence
    assert "\n" not in sentence


@pytest.mark.parametrize(
    "text",
    [
        "RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes",
        "disk quota exceeded",
        "ConnectionResetError(104, 'Connection reset by peer')",  # of a download
        "the loss is NaN",
        "F1130 05:56:18.122685 4039 cuda.cc:80] Check failed: driver != nullptr",
    ],
)
def test_another_failure_is_no_lost_peer(text):
    assert lost_peer(text, launch(2, 0)) is None


def test_an_unknown_coordinator_is_not_named():
    sentence = lost_peer(REGISTER, launch(None, None, coordinator=None))
    assert sentence.startswith("another process did not answer within 20 s")
