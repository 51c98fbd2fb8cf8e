"""Drives headless Chromium over its debugging pipe, for tests of the report; nothing to install but Chromium itself."""

from __future__ import annotations

import base64
import json
import os
import select
import shlex
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = (
    "--headless=new",
    "--no-sandbox",  # the tests may run as root, and open only pages that we wrote
    "--disable-gpu",  # software rendering, as on a machine without a graphics card
    "--hide-scrollbars",
    "--no-first-run",
    "--disable-extensions",
    "--disable-background-networking",
    "--disable-dev-shm-usage",
    "--remote-debugging-pipe",
)


def executable() -> str | None:
    """Where Chromium is; None where there is none."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class BrowserError(Exception):
    """Chromium refused a command, or a script threw."""


class Browser:
    """One Chromium with one page; use it in a `with` block."""

    def __init__(self) -> None:
        program = executable()
        assert program is not None
        self._folder = tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True)
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        flags = [*FLAGS, f"--user-data-dir={self._folder.name}", "about:blank"]
        # Chromium reads commands from descriptor 3 and answers on 4; a shell puts our pipes there.
        command = f"exec {shlex.join([program, *flags])} 3<&{theirs_in} 4>&{theirs_out}"
        self._process = subprocess.Popen(
            ["bash", "-c", command],
            pass_fds=(theirs_in, theirs_out),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._buffer = b""
        self._last = 0
        self.events: list[dict[str, Any]] = []
        self.session: str | None = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.session = None
            self.call("Browser.close", timeout=5)
        except (BrowserError, OSError):
            self._process.kill()
        self._process.wait(timeout=20)
        os.close(self._in)
        os.close(self._out)
        self._folder.cleanup()

    def call(self, method: str, timeout: float = 60, **parameters: Any) -> dict[str, Any]:
        """Sends a command and waits for its answer; events that come meanwhile are kept."""
        self._last += 1
        message = {"id": self._last, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._out, data) :]
        limit = time.monotonic() + timeout
        while True:
            answer = self._receive(limit)
            if answer.get("id") == self._last:
                if "error" in answer:
                    raise BrowserError(f"{method}: {answer['error']['message']}")
                return answer["result"]
            if "method" in answer:
                self.events.append(answer)

    def _receive(self, limit: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._in], [], [], max(0.0, limit - time.monotonic()))
            data = os.read(self._in, 1 << 20) if ready else b""
            if not data:
                raise BrowserError("Chromium does not answer")
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(line)

    def open(self, path: Path, width: int = 1280, height: int = 900, dark: bool = False, scripts: bool = True) -> float:
        """Opens a file and waits until its views are painted; the seconds that took."""
        self.size(width, height)
        self.prefer(dark)
        self.call("Emulation.setScriptExecutionDisabled", value=not scripts)
        self.events.clear()
        begun = time.monotonic()
        self.call("Page.navigate", url=path.resolve().as_uri())
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self.events.append(self._receive(time.monotonic() + 60))
        if scripts:
            self.until("document.documentElement.classList.contains('ready')")
        return time.monotonic() - begun

    def size(self, width: int, height: int) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )

    def prefer(self, dark: bool) -> None:
        """Light or dark; always without animations, so that things stay where they were found."""
        colours = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        motion = {"name": "prefers-reduced-motion", "value": "reduce"}
        self.call("Emulation.setEmulatedMedia", features=[colours, motion])

    def run(self, script: str) -> Any:
        """The value of an expression in the page; promises are awaited."""
        answer = self.call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True, userGesture=True
        )
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise BrowserError(details.get("exception", {}).get("description") or details["text"])
        return answer["result"].get("value")

    def until(self, condition: str, seconds: float = 20) -> None:
        """Waits until an expression is true."""
        limit = time.monotonic() + seconds
        while not self.run(f"!!({condition})"):  # only the answer is sent, however large the value
            if time.monotonic() > limit:
                raise BrowserError(f"still not true after {seconds} s: {condition}")
            time.sleep(0.01)

    def middle(self, selector: str) -> tuple[float, float]:
        """The middle of an element on the screen, after scrolling to it."""
        script = f"""(() => {{
            const element = document.querySelector({json.dumps(selector)});
            element.scrollIntoView({{ block: "center", behavior: "instant" }});
            const box = element.getBoundingClientRect();
            return [box.left + box.width / 2, box.top + box.height / 2];
        }})()"""
        x, y = self.run(script)
        return x, y

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def click(self, selector: str) -> None:
        """A real click in the middle of an element."""
        self.click_at(*self.middle(selector))

    def click_at(self, x: float, y: float) -> None:
        self.mouse("mouseMoved", x, y)
        self.mouse("mousePressed", x, y, button="left", clickCount=1)
        self.mouse("mouseReleased", x, y, button="left", clickCount=1)

    def drag(self, start: tuple[float, float], stop: tuple[float, float], steps: int = 8) -> None:
        self.mouse("mouseMoved", *start)
        self.mouse("mousePressed", *start, button="left", clickCount=1)
        for i in range(1, steps + 1):
            x, y = (a + (b - a) * i / steps for a, b in zip(start, stop, strict=True))
            self.mouse("mouseMoved", x, y, button="left", buttons=1)
        self.mouse("mouseReleased", *stop, button="left", clickCount=1)

    def press(self, key: str) -> None:
        """A real key stroke on whatever has the focus."""
        codes = {"Enter": 13, "Tab": 9, " ": 32, "Escape": 27, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39}
        code = codes.get(key, 40 if key == "ArrowDown" else ord(key[0].upper()))
        text = "\r" if key == "Enter" else key if len(key) == 1 else ""
        about = {"key": key, "code": "Space" if key == " " else key, "windowsVirtualKeyCode": code}
        self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **about)
        self.call("Input.dispatchKeyEvent", type="keyUp", **about)

    def focus(self, selector: str) -> None:
        self.run(f"document.querySelector({json.dumps(selector)}).focus()")

    def screenshot(self, path: Path, selector: str | None = None) -> Path:
        """A picture of the window, or of one element however tall."""
        clip: dict[str, Any] = {}
        if selector is not None:
            script = f"(() => {{ const b = document.querySelector({json.dumps(selector)}).getBoundingClientRect();"
            x, y, width, height = self.run(
                script + "return [b.left + scrollX, b.top + scrollY, b.width, b.height]; })()"
            )
            clip = {
                "clip": {"x": x, "y": y, "width": width, "height": height, "scale": 1},
                "captureBeyondViewport": True,
            }
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png", **clip)["data"]))
        return path

    def complaints(self) -> list[str]:
        """Errors that scripts threw or the browser logged since the page was opened."""
        self.run("0")  # whatever was logged so far arrives before this answer
        found = []
        for event in self.events:
            about = event.get("params", {})
            if event["method"] == "Runtime.exceptionThrown":
                found.append(about["exceptionDetails"].get("exception", {}).get("description", "an exception"))
            elif event["method"] == "Log.entryAdded" and about["entry"]["level"] in ("error", "warning"):
                found.append(about["entry"]["text"])
            elif event["method"] == "Runtime.consoleAPICalled" and about["type"] in ("error", "warning", "assert"):
                found.append(str(about["args"]))
        return found

    def requests(self) -> list[str]:
        """Every address asked for since the page was opened, but for the page and what lies in it."""
        sent = [e["params"]["request"]["url"] for e in self.events if e["method"] == "Network.requestWillBeSent"]
        return [url for url in sent if not url.startswith(("file:", "data:", "blob:"))]
