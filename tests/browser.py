"""Chromium without a window, driven through a pipe by its DevTools protocol. Needs no package and no port."""

import base64
import fcntl
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
]


def chromium() -> str:
    """The path of the browser."""
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert found, "this test needs Chromium (Debian's package chromium)"
    return found


@contextmanager
def open_page(path: Path, folder: Path, width: int = 1280, height: int = 900) -> Iterator["Page"]:
    """A file in a new browser, whose profile is in a folder."""
    # The browser reads commands from its file 3, and writes events to its file 4.
    (read_end, commands), (events, write_end) = os.pipe(), os.pipe()
    to_read, to_write = (fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (read_end, write_end))
    arguments = [chromium(), *FLAGS, "--remote-debugging-pipe", f"--user-data-dir={folder}/browser", "about:blank"]
    script = f'exec "$@" 3<&{to_read} 4>&{to_write} {to_read}<&- {to_write}>&-'
    browser = subprocess.Popen(
        ["bash", "-c", script, "chromium", *arguments],
        pass_fds=(to_read, to_write),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    for end in (to_read, to_write, read_end, write_end):
        os.close(end)
    page = Page(commands, events)
    try:
        page.attach(width, height)
        page.go(path)
        yield page
    finally:
        page.close()
        try:
            browser.wait(30)
        except subprocess.TimeoutExpired:
            browser.kill()
            browser.wait()


class Page:
    """One tab. ``problems`` are errors of its console, ``requests`` the addresses that it has asked for."""

    def __init__(self, commands: int, events: int) -> None:
        self._commands, self._events = os.fdopen(commands, "wb"), os.fdopen(events, "rb")
        self._session: str | None = None
        self._number = 0
        self._rest = b""
        self.problems: list[str] = []
        self.requests: list[str] = []
        self._loaded = False

    def attach(self, width: int, height: int) -> None:
        """Open a tab of this size."""
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.send(f"{domain}.enable")
        self.resize(width, height)

    def go(self, path: Path) -> None:
        """Open a file and wait until it is loaded."""
        self._loaded = False
        self.requests.clear()
        self.send("Page.navigate", url=path.resolve().as_uri())
        while not self._loaded:
            self._take(self._next())

    def resize(self, width: int, height: int, *, mobile: bool = False) -> None:
        """Change the size of the screen."""
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile)

    def emulate(self, *, dark: bool = False, media: str = "") -> None:
        """Prefer light or dark colours; or be a printer (media "print")."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", media=media, features=[scheme])

    def run(self, expression: str) -> Any:
        """The value of a JavaScript expression; waits for it if it is a promise."""
        found = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def press(self, key: str, code: int) -> None:
        """Press a key, such as ArrowRight."""
        for kind in ("keyDown", "keyUp"):
            self.send("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code)

    def drag(self, x: float, y: float, to_x: float, steps: int = 10) -> None:
        """Drag with the mouse along a line."""
        self._mouse("mousePressed", x, y)
        for step in range(1, steps + 1):
            self._mouse("mouseMoved", x + (to_x - x) * step / steps, y)
        self._mouse("mouseReleased", to_x, y)

    def click(self, x: float, y: float) -> None:
        """Click with the mouse."""
        self._mouse("mouseMoved", x, y)
        self._mouse("mousePressed", x, y)
        self._mouse("mouseReleased", x, y)

    def _mouse(self, kind: str, x: float, y: float) -> None:
        pressed = 0 if kind == "mouseReleased" else 1
        self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", buttons=pressed, clickCount=1)

    def screenshot(self, path: Path, *, whole: bool = True) -> None:
        """Save a picture of the whole page, or of the screen."""
        found = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(found["data"]))

    def send(self, method: str, **arguments: Any) -> dict[str, Any]:
        """Send a command and return its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": arguments}
        if self._session is not None:
            message["sessionId"] = self._session
        self._commands.write(json.dumps(message).encode() + b"\0")
        self._commands.flush()
        while True:
            answer = self._next()
            if answer.get("id") == message["id"]:
                assert "error" not in answer, answer["error"]
                return dict(answer["result"])
            self._take(answer)

    def close(self) -> None:
        """Close the browser."""
        self._session = None
        with suppress(OSError, EOFError):  # it may be gone already
            self.send("Browser.close")
        for end in (self._commands, self._events):
            with suppress(OSError):  # what was not written will never be
                end.close()

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            part = os.read(self._events.fileno(), 1 << 20)
            if not part:
                raise EOFError("the browser has closed its pipe")
            self._rest += part
        message, _, self._rest = self._rest.partition(b"\0")
        return dict(json.loads(message))

    def _take(self, event: dict[str, Any]) -> None:
        """Note an event."""
        method, what = event.get("method"), event.get("params", {})
        if method == "Page.loadEventFired":
            self._loaded = True
        elif method == "Network.requestWillBeSent":
            self.requests.append(what["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            details = what["exceptionDetails"]
            self.problems.append(str(details.get("exception", {}).get("description") or details["text"]))
        elif method == "Log.entryAdded" and what["entry"]["level"] in ("error", "warning"):
            self.problems.append(what["entry"]["text"])
        elif method == "Runtime.consoleAPICalled" and what["type"] in ("error", "assert", "warning"):
            self.problems.append(str(what["args"]))
