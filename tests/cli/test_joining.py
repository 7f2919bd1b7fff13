"""Joining the other processes, and what becomes of an error if one is lost."""

import logging
import signal

import jax
import pytest

from attnjax.cli.joining import joined
from attnjax.cli.launch import Launch
from attnjax.cli.lost_peer import LostPeerError

BY_HAND = Launch(
    peer_timeout_seconds=20, coordinator="10.0.0.1:9876", num_processes=4, process_id=3
)


class Distributed:
    def __init__(self, error=None):
        self.error, self.calls = error, []

    def initialize(self, *arguments, **options):
        self.calls.append((arguments, options))
        if self.error:
            raise self.error


def test_the_timeout_holds_for_the_start_and_for_silence(monkeypatch):
    distributed = Distributed()
    monkeypatch.setattr(jax, "distributed", distributed)
    with joined(None):
        assert distributed.calls == []
    with joined(BY_HAND):
        ((arguments, options),) = distributed.calls
        assert arguments == ("10.0.0.1:9876", 4, 3)
        assert set(options.values()) == {20}


def test_sigterm_ends_a_process_that_has_not_begun(monkeypatch):
    def catch(*_, **__):
        signal.signal(signal.SIGTERM, lambda number, frame: None)

    before = signal.getsignal(signal.SIGTERM)
    distributed = Distributed()
    distributed.initialize = catch
    monkeypatch.setattr(jax, "distributed", distributed)
    try:
        with joined(BY_HAND):
            assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize(("number", "level"), [(0, "INFO"), (1, "WARNING")])
def test_only_the_first_process_talks(monkeypatch, number, level):
    root = logging.getLogger()
    before = root.level
    root.setLevel("INFO")
    monkeypatch.setattr(jax, "distributed", Distributed())
    monkeypatch.setattr(jax, "process_index", lambda: number)
    try:
        with joined(BY_HAND):
            assert logging.getLevelName(root.level) == level
    finally:
        root.setLevel(before)


def test_where_jax_finds_nobody_the_user_names_them(monkeypatch):
    error = ValueError("coordinator_address should be defined.")
    monkeypatch.setattr(jax, "distributed", Distributed(error))
    with pytest.raises(ValueError, match="finds no TPU slice.*name the processes with"):
        joined(Launch(peer_timeout_seconds=20)).__enter__()


@pytest.mark.parametrize("kind", [ValueError, jax.errors.JaxRuntimeError])
def test_a_broken_connection_is_a_lost_peer_whatever_it_is_raised_as(monkeypatch, kind):
    monkeypatch.setattr(jax, "distributed", Distributed())

    def fails():
        try:
            raise kind(
                "UNKNOWN: Gloo all-reduce failed: pair.cc:547] Connection closed"
            )
        except kind:
            raise OSError("cannot save") from None

    with (
        pytest.raises(LostPeerError, match="another process of 4 has ended"),
        joined(BY_HAND),
    ):
        fails()
    with pytest.raises(OSError, match="disk"), joined(BY_HAND):
        raise OSError("disk full")
