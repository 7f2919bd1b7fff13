"""A terminal sees a bar; a file sees plain lines."""

import io

import pytest
from rich.console import Console

from attnjax.training.hooks import RunStart
from attnjax.training.progress_bar import ProgressBar

TRAIN = {
    "event": "train",
    "step": 50,
    "loss": 2.34567,
    "timing": {
        "seconds": 9.0,
        "steps_per_second": 0.5,
        "target_tokens_per_second": 12345.6,
        "compilations": 3,
    },
}
VALIDATION = {
    "event": "validation",
    "step": 50,
    "bleu": 31.25,
    "timing": {"seconds": 9.0},
}


def show(*, terminal):
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=terminal, width=200)
    bar = ProgressBar(console)
    bar.start(RunStart(0, 80, "target tokens", False))
    bar.step(50)
    bar.log(TRAIN)
    bar.log(VALIDATION)
    bar.close()
    bar.close()
    return stream.getvalue()


def test_a_file_gets_plain_lines():
    assert show(terminal=False).splitlines() == [
        "step 50/80 train: loss 2.346, 0.5 steps/s, 12,345.6 target tokens/s, "
        "0:01:00 left",
        "step 50/80 validation: bleu 31.25",
    ]


@pytest.mark.parametrize(
    "part", ["50/80", "loss 2.346", "12,345.6 target tokens/s", "0:01:00 left"]
)
def test_a_terminal_gets_a_bar(part):
    assert part in show(terminal=True)


def test_a_terminal_keeps_validations_above_the_bar():
    shown = show(terminal=True)
    assert "step 50/80 validation: bleu 31.25" in shown
    assert "step 50/80 train" not in shown


def test_the_cursor_stays_visible():
    """A process that a second Ctrl-C ends cannot give the cursor back."""
    shown = show(terminal=True)
    hidden, visible = shown.rfind("\x1b[?25l"), shown.rfind("\x1b[?25h")
    assert hidden < visible
    assert shown.index("\x1b[?25h") < shown.index("50/80")


def test_standard_error_is_the_default(capsys):
    bar = ProgressBar()
    bar.start(RunStart(0, 80, "rows", False))
    bar.log(VALIDATION)
    bar.close()
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "bleu 31.25" in captured.err
