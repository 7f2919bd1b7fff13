"""A small driver of Chromium: the DevTools protocol through two pipes.

Nothing but the browser is needed, no package and no driver of a matching version:
``--remote-debugging-pipe`` reads commands from descriptor 3 and answers on 4, each a
line of JSON that ends in a zero byte.
"""

import fcntl
import json
import os
import select
import shutil
import signal
import time
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--headless",
    "--remote-debugging-pipe",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
)
PATIENCE_SECONDS = 30.0
KEY_CODES = {"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}
KEY_CODES |= {"Tab": 9, "Enter": 13, "End": 35, "Home": 36}


def find_browser() -> str | None:
    """The variable CHROME, or the first browser on the path."""
    return os.environ.get("CHROME") or next(
        filter(None, map(shutil.which, NAMES)), None
    )


class Chromium:
    """One browser process with one page."""

    def __init__(self, binary: str, profile: Path):
        self.events: list[dict] = []
        self._number = 0
        self._unread = b""
        commands, self._commands = map(_lifted, os.pipe())
        self._answers, answers = map(_lifted, os.pipe())
        self._process = os.posix_spawn(
            binary,
            [binary, *FLAGS, f"--user-data-dir={profile}", "about:blank"],
            os.environ,
            file_actions=[
                (os.POSIX_SPAWN_DUP2, commands, 3),
                (os.POSIX_SPAWN_DUP2, answers, 4),
                (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0o600),
            ],
            setpgroup=0,
        )
        os.close(commands)
        os.close(answers)
        self._session: dict = {}
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = {"sessionId": attached["sessionId"]}
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def close(self) -> None:
        os.killpg(self._process, signal.SIGKILL)
        os.waitpid(self._process, 0)
        os.close(self._commands)
        os.close(self._answers)

    def call(self, method: str, **parameters) -> dict:
        """Sends a command and waits for its answer; events meanwhile are kept."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        os.write(self._commands, json.dumps(message | self._session).encode() + b"\0")
        while (answer := self._read()).get("id") != self._number:
            self.events.append(answer)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return answer["result"]

    def open(self, url: str, *, width: int = 1000, scheme: str = "light") -> None:
        """Loads a page in a window of that width and waits until it is drawn."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            **{"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": False},
        )
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.call("Emulation.setEmulatedMedia", features=[feature])
        self.events.clear()
        self.call("Page.navigate", url=url)
        while not self.happened("Page.loadEventFired"):
            self.events.append(self._read())
        self.evaluate(
            "new Promise((tell) => requestAnimationFrame(() => "
            "requestAnimationFrame(() => tell())))"
        )

    def happened(self, *methods: str) -> list[dict]:
        """Events of these kinds since the page was opened."""
        return [event for event in self.events if event.get("method") in methods]

    def evaluate(self, expression: str):
        """The value of a JavaScript expression, awaited if it is a promise."""
        answer = self.call(
            "Runtime.evaluate",
            **{"expression": expression, "returnByValue": True, "awaitPromise": True},
        )
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def hover(self, selector: str) -> None:
        """Moves the mouse to the middle of the first element that matches."""
        self._mouse("mouseMoved", *self._middle(selector))

    def click(self, selector: str) -> None:
        place = self._middle(selector)
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self._mouse(kind, *place)

    def press(self, key: str) -> None:
        code = {"key": key, "code": key, "windowsVirtualKeyCode": KEY_CODES[key]}
        self.call("Input.dispatchKeyEvent", type="rawKeyDown", **code)
        self.call("Input.dispatchKeyEvent", type="keyUp", **code)

    def _middle(self, selector: str) -> tuple[float, float]:
        return self.evaluate(
            f"(() => {{ const found = document.querySelector({json.dumps(selector)});"
            "found.scrollIntoView({block: 'center', behavior: 'instant'});"
            "const box = found.getBoundingClientRect();"
            "return [box.x + box.width / 2, box.y + box.height / 2]; })()"
        )

    def _mouse(self, kind: str, x: float, y: float) -> None:
        button = {"button": "none"} if kind == "mouseMoved" else {"button": "left"}
        parameters = {"type": kind, "x": x, "y": y, "clickCount": 1, **button}
        self.call("Input.dispatchMouseEvent", **parameters)

    def _read(self) -> dict:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while b"\0" not in self._unread:
            left = deadline - time.monotonic()
            ready, _, _ = select.select([self._answers], [], [], max(0.0, left))
            read = os.read(self._answers, 1 << 16) if ready else b""
            if not read:
                raise RuntimeError("the browser has ended or does not answer")
            self._unread += read
        message, _, self._unread = self._unread.partition(b"\0")
        return json.loads(message)


def _lifted(descriptor: int) -> int:
    """The same pipe under a number above 4, which the browser's own would overwrite."""
    lifted = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 10)
    os.close(descriptor)
    return lifted
