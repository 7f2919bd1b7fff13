"""What fails in one process fails in all; the first prepares what the others use."""

import jax
import pytest

from attnjax import processes
from attnjax.processes import (
    first_process_first,
    in_all_processes,
    in_first_process,
    lines_of_first_process,
)


@pytest.fixture
def one_of_two(monkeypatch):
    """Makes this process number 0 or 1 of two, and the other say something.

    Returns a function of both, which gives the texts that this one told.
    """

    def be(number, *others_say):
        told, say = [], iter(others_say)
        monkeypatch.setattr(jax, "process_count", lambda: 2)
        monkeypatch.setattr(jax, "process_index", lambda: number)
        monkeypatch.setattr(processes, "meet", lambda name, seconds: None)

        def texts_of_all(text):
            told.append(text)
            pair = [text, next(say, "")]
            return pair if number == 0 else pair[::-1]

        monkeypatch.setattr(processes, "_texts_of_all", texts_of_all)
        return told

    return be


def test_a_single_process_asks_nobody(monkeypatch):
    monkeypatch.setattr(processes, "meet", None)
    done = []
    in_first_process(lambda: done.append(1))
    assert first_process_first(lambda: 3) == in_all_processes(lambda: 3) == 3
    assert done == [1]


def test_work_of_the_first_is_not_done_by_the_second(one_of_two):
    done = []
    for number in (0, 1):
        one_of_two(number)
        in_first_process(lambda number=number: done.append(number))
    assert done == [0]


def test_processes_that_nobody_joined_are_refused(monkeypatch):
    monkeypatch.setattr(jax, "process_count", lambda: 4)
    with pytest.raises(ValueError, match="process 0 of 4, .* add --distributed"):
        in_first_process(lambda: None)


def test_a_failure_is_told_and_raised_as_it_is(one_of_two):
    told = one_of_two(0)
    with pytest.raises(ZeroDivisionError):
        in_all_processes(lambda: 1 / 0)
    assert told == ["division by zero"]
    told = one_of_two(0)
    with pytest.raises(KeyError):
        in_all_processes({}.popitem)
    assert "dictionary is empty" in told[0]
    told = one_of_two(0)
    with pytest.raises(StopIteration):
        in_all_processes(lambda: next(iter(())))
    assert told == ["StopIteration()"]  # a failure without a text is none the less one


def test_the_failure_of_another_is_raised_with_its_sentence(one_of_two):
    one_of_two(1, "the folder is in use")
    with pytest.raises(ValueError, match="process 0 of 2 refuses .*: the folder is in"):
        in_first_process(lambda: 1 / 0)  # not done here
    one_of_two(0, "no such corpus")
    with pytest.raises(ValueError, match="process 1 of 2 refuses .*: no such corpus"):
        in_all_processes(lambda: "fine here")


def test_the_others_work_when_the_first_has_prepared_it(one_of_two):
    order = []

    def prepare():
        order.append(len(told))
        return "corpus"

    for number in (0, 1):
        told = one_of_two(number)
        assert first_process_first(prepare) == "corpus"
        assert len(told) == 2
    assert order == [0, 1]  # how many texts were exchanged before
    told = one_of_two(1, "cannot download")
    with pytest.raises(ValueError, match="cannot download"):
        first_process_first(prepare)
    assert len(order) == 2


def test_a_long_text_is_cut_and_survives_the_way():
    text = "ß" * processes._MESSAGE_BYTES
    assert processes._decoded(processes._encoded("größer")) == "größer"
    assert len(processes._decoded(processes._encoded(text))) == 500


def test_lines_of_the_first_are_told_to_the_others(one_of_two, monkeypatch):
    assert lines_of_first_process(lambda: ["alone"]) == ["alone"]
    long = ["seed: 0 -> 7", "x" * 5_000]
    sent = []
    one_of_two(0)
    monkeypatch.setattr(
        processes,
        "text_of_first_process",
        lambda text: sent.append(text) or text[:1000],
    )
    assert lines_of_first_process(lambda: long) == long  # as long as they are
    monkeypatch.setattr(processes, "text_of_first_process", lambda text: sent[0][:1000])
    one_of_two(1)
    assert lines_of_first_process(lambda: 1 / 0) == [long[0], "x" * 987]
    monkeypatch.setattr(processes, "text_of_first_process", lambda text: "")
    assert lines_of_first_process(lambda: 1 / 0) == []
