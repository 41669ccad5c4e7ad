"""A real browser, driven by its own protocol: Chromium, if it is on PATH. Without it, tests are skipped by name."""

import asyncio
import base64
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from tornado.websocket import WebSocketClientConnection, websocket_connect

PROGRAMS = "chromium", "chromium-browser", "google-chrome"
START_SECONDS, ANSWER_SECONDS = 60.0, 30.0
_MESSAGE_BYTES = 100 << 20  # a screenshot is one message


class Tab:
    """A tab of the browser. `requests` are the addresses that its page asked for, `problems` what it complained of."""

    def __init__(self, runner: asyncio.Runner, address: str) -> None:
        self._runner = runner
        self._socket: WebSocketClientConnection = runner.run(_connected(address))
        self._number = 0
        self.requests: list[str] = []
        self.problems: list[str] = []
        for domain in ("Page", "Network", "Log", "Runtime"):
            self._call(f"{domain}.enable")

    def open(self, page: Path, width: int, *, dark: bool = False) -> None:
        """Show a file in a window so wide, in light or dark mode."""
        self._call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._call("Emulation.setEmulatedMedia", features=[scheme])
        self.requests.clear()
        self.problems.clear()
        self._call("Page.navigate", url=page.absolute().as_uri())
        end = time.monotonic() + ANSWER_SECONDS
        while self.value("document.readyState") != "complete" or not self.value("document.body !== null"):
            assert time.monotonic() < end, "the page is not shown"
            time.sleep(0.05)

    def value(self, expression: str) -> Any:
        """The value of an expression of JavaScript in the page."""
        answer = self._call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def screenshot(self, to: Path) -> None:
        """Save a picture of the whole page."""
        answer = self._call("Page.captureScreenshot", captureBeyondViewport=True)
        to.write_bytes(base64.b64decode(answer["data"]))

    def close(self) -> None:
        """End the connection to the browser."""

        async def ended() -> None:
            self._socket.close()
            while await self._socket.read_message() is not None:
                pass

        self._runner.run(asyncio.wait_for(ended(), ANSWER_SECONDS))

    def _call(self, method: str, **params: Any) -> dict[str, Any]:
        return self._runner.run(asyncio.wait_for(self._answer(method, params), ANSWER_SECONDS))

    async def _answer(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        self._number += 1
        await self._socket.write_message(json.dumps({"id": self._number, "method": method, "params": params}))
        while True:
            text = await self._socket.read_message()
            assert text is not None, "the browser has ended"
            message = json.loads(text)
            if message.get("id") == self._number:
                assert "error" not in message, message
                return dict(message["result"])
            self._note(message)

    def _note(self, message: dict[str, Any]) -> None:
        match message.get("method"):
            case "Network.requestWillBeSent":
                self.requests.append(message["params"]["request"]["url"])
            case "Log.entryAdded":
                self.problems.append(message["params"]["entry"]["text"])
            case "Runtime.exceptionThrown":
                self.problems.append(str(message["params"]["exceptionDetails"]))


async def _connected(address: str) -> WebSocketClientConnection:
    return await websocket_connect(address, max_message_size=_MESSAGE_BYTES)


@contextmanager
def browser() -> Iterator[Tab]:
    """A tab of a browser of its own; skips where there is no browser."""
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        pytest.skip("there is no Chromium on PATH (apt-get install chromium)")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
        flags = ["--headless=new", "--remote-debugging-port=0", "--no-first-run", "--disable-gpu"]
        flags += ["--no-sandbox"] if os.getuid() == 0 else []  # which root cannot have
        command = [program, *flags, "--disable-dev-shm-usage", f"--user-data-dir={home}", "about:blank"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            port = _port(Path(home) / "DevToolsActivePort", process)
            with urlopen(f"http://127.0.0.1:{port}/json/list", timeout=ANSWER_SECONDS) as answer:
                tabs = [tab for tab in json.load(answer) if tab["type"] == "page"]
            with asyncio.Runner() as runner:
                tab = Tab(runner, tabs[0]["webSocketDebuggerUrl"])
                yield tab
                tab.close()
        finally:
            process.terminate()
            process.wait(timeout=START_SECONDS)


def _port(file: Path, process: "subprocess.Popen[bytes]") -> int:
    """The port at which the browser answers, once it has written it."""
    end = time.monotonic() + START_SECONDS
    while not file.exists() or "\n" not in file.read_text():
        assert process.poll() is None, "the browser has ended"
        assert time.monotonic() < end, "the browser does not answer"
        time.sleep(0.1)
    return int(file.read_text().splitlines()[0])
