"""A headless Chromium that is driven by its DevTools protocol: no library but Tornado."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import json
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from tornado.websocket import websocket_connect

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
    "--remote-debugging-port=0",
)


def find_chromium() -> str | None:
    """Return the program, or None where there is none."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Browser:
    """One tab, and the requests that it makes."""

    def __init__(self, width: int = 1400, height: int = 900) -> None:
        self.size = width, height
        self.requests: list[str] = []
        self.errors: list[str] = []
        self._numbers = itertools.count(1)

    def __enter__(self) -> Browser:
        self._loop = asyncio.new_event_loop()
        self._folder = tempfile.mkdtemp()
        program = find_chromium()
        assert program is not None
        width, height = self.size
        self._process = subprocess.Popen(
            [
                program,
                *FLAGS,
                f"--window-size={width},{height}",
                f"--user-data-dir={self._folder}",
                "about:blank",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            self._connect()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _connect(self) -> None:
        port = Path(self._folder, "DevToolsActivePort")
        ends = time.monotonic() + 60
        while not (port.exists() and port.read_text().count("\n")):
            assert time.monotonic() < ends, "Chromium does not start"
            time.sleep(0.1)
        number, path = port.read_text().split("\n")[:2]

        async def connect() -> Any:
            return await websocket_connect(f"ws://127.0.0.1:{number}{path}", max_message_size=2**27)

        self._socket = self._loop.run_until_complete(connect())
        self._session: str | None = None
        targets = self.send("Target.getTargets")["targetInfos"]
        page = next(one["targetId"] for one in targets if one["type"] == "page")
        self._session = self.send("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network"):
            self.send(f"{domain}.enable")

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(10)
        self._process.kill()
        self._process.wait()
        self._loop.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        """Call a method of the protocol, and return its result."""
        number = next(self._numbers)
        message: dict[str, Any] = {"id": number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session

        async def call() -> dict[str, Any]:
            await self._socket.write_message(json.dumps(message))
            while True:
                text = await asyncio.wait_for(self._socket.read_message(), 60)
                assert text is not None, "Chromium has ended"
                found = json.loads(text)
                self._note(found)
                if found.get("id") == number:
                    return found

        found = self._loop.run_until_complete(call())
        assert "error" not in found, found
        return dict(found["result"])

    def _note(self, found: dict[str, Any]) -> None:
        params = found.get("params", {})
        if found.get("method") == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif found.get("method") == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(params["exceptionDetails"])[:500])

    def open(self, url: str) -> None:
        """Go to a page."""
        self.send("Page.navigate", url=url)
        self.wait("document.readyState === 'complete'")

    def run(self, script: str) -> Any:
        """Return the value of an expression; promises are awaited."""
        found = self.send(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def wait(self, script: str, seconds: float = 60.0) -> Any:
        """Wait until an expression is true, and return its value."""
        ends = time.monotonic() + seconds
        while not (found := self.run(script)):
            assert time.monotonic() < ends, f"not within {seconds} s: {script}"
            time.sleep(0.05)
        return found

    def text(self, selector: str) -> str:
        """Return the text of an element."""
        return str(self.run(f"document.querySelector({json.dumps(selector)}).textContent"))

    def click(self, selector: str) -> None:
        """Click the middle of an element, as a mouse does."""
        script = (
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            "e.scrollIntoView({block: 'center'}); const b = e.getBoundingClientRect();"
            "return [b.x + b.width / 2, b.y + b.height / 2, Boolean(e.disabled)]; })()"
        )
        x, y, disabled = self.run(script)
        assert not disabled, f"{selector} is disabled"
        self.click_at(x, y)

    def click_at(self, x: float, y: float) -> None:
        """Click a place in the window."""
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def press(self, key: str, code: int | None = None) -> None:
        """Press a key."""
        text = {"text": key} if len(key) == 1 else {"text": "\r"} if key == "Enter" else {}
        number = {} if code is None else {"windowsVirtualKeyCode": code}
        self.send("Input.dispatchKeyEvent", type="keyDown", key=key, **text, **number)
        self.send("Input.dispatchKeyEvent", type="keyUp", key=key, **number)

    def picture(self, path: str | Path) -> None:
        """Write what the window shows as PNG."""
        found = self.send("Page.captureScreenshot", format="png")
        Path(path).write_bytes(base64.b64decode(found["data"]))
