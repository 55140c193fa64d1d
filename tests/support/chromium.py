"""A real Chromium, spoken to through a pipe as its own tools do: it opens pages, measures, takes pictures."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
MISSING = "there is no Chromium here: `apt-get install chromium` on Debian; Ubuntu has it as a snap alone"
_PATIENCE = 60.0
_FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-dev-shm-usage")


class Chromium:
    """One page of a browser, by its DevTools protocol."""

    def __init__(self, write: int, read: int) -> None:
        self._write, self._read, self._number = write, read, 0
        self._rest = b""
        self._events: list[dict[str, Any]] = []
        self._session: str | None = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        self.call("Performance.enable", timeDomain="threadTicks")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """What a command answers; an error of it is one here."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            said = self._next()
            if said.get("id") == self._number:
                assert "error" not in said, said
                result: dict[str, Any] = said["result"]
                return result
            self._events.append(said)

    def open(self, page: Path, *, width: int = 1200, dark: bool = False) -> None:
        """Open a page at this width, and wait until it is drawn."""
        mobile = width < 600
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=mobile)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self._events.clear()
        self.call("Page.navigate", url=page.as_uri())
        while not any(each.get("method") == "Page.loadEventFired" for each in self._events):
            self._events.append(self._next())
        # The response comes when a frame of it has been drawn.
        self.call("Page.captureScreenshot", format="jpeg", quality=10)

    def processor_seconds(self) -> float:
        """Return the processor time of the open page's main thread, which other programs do not lengthen."""
        metrics = self.call("Performance.getMetrics")["metrics"]
        return float(next(each["value"] for each in metrics if each["name"] == "TaskDuration"))

    def value(self, expression: str) -> Any:
        """What an expression of JavaScript is worth in the page."""
        said = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in said, said
        return said["result"].get("value")

    def told(self, method: str) -> list[dict[str, Any]]:
        """The events of this name since the page was opened."""
        return [each["params"] for each in self._events if each.get("method") == method]

    def picture(self, to: Path) -> None:
        """The whole page as a PNG, also what a browser draws only once it is looked at."""
        self.value("document.querySelectorAll('article').forEach(one => one.style.contentVisibility = 'visible')")
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": min(size["height"], 16_000), "scale": 1}
        shot = self.call("Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True)
        to.write_bytes(base64.b64decode(shot["data"]))

    def seen(self, box: Mapping[str, float]) -> bytes:
        """What is drawn in a rectangle of the page, as a PNG."""
        clip = {"x": box["x"], "y": box["y"], "width": box["width"], "height": box["height"], "scale": 1}
        shot = self.call("Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True)
        return base64.b64decode(shot["data"])

    def _next(self) -> dict[str, Any]:
        until = time.monotonic() + _PATIENCE
        while b"\0" not in self._rest:
            assert time.monotonic() < until, "Chromium says nothing"
            piece = os.read(self._read, 1 << 20)
            assert piece, "Chromium has ended"
            self._rest += piece
        said, _, self._rest = self._rest.partition(b"\0")
        found: dict[str, Any] = json.loads(said)
        return found


@contextmanager
def chromium() -> Iterator[Chromium]:
    """A browser with nothing in it, that is gone in the end."""
    assert PROGRAM, MISSING
    theirs_in, ours_out = os.pipe()
    ours_in, theirs_out = os.pipe()

    with TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        # It reads descriptor 3 and writes 4: a shell puts them there.
        redirected = f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}'
        words = [PROGRAM, *_FLAGS, f"--user-data-dir={profile}", "--remote-debugging-pipe", "about:blank"]
        started = subprocess.Popen(
            ["bash", "-c", redirected, "bash", *words],
            pass_fds=(theirs_in, theirs_out),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        try:
            yield Chromium(ours_out, ours_in)
        finally:
            os.close(ours_out)
            os.close(ours_in)
            started.terminate()
            started.wait(30)
