"""A headless Chromium on a pipe, spoken to in its DevTools protocol: JSON messages that end in 0.

It gets a new, empty profile, fetches nothing by itself, and is ended by its process id.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-component-update",
    "--disable-background-networking", "--disable-sync", "--disable-dev-shm-usage",
    "--remote-debugging-pipe",
)  # fmt: skip
#: How long the browser may take for one answer, in s.
PATIENCE_S = 600.0
#: The end of a debugging pipe that Chromium reads, and the one it writes: fixed by Chromium.
READS, WRITES = 3, 4
Message = dict[str, Any]


class Browser:
    """One page; `events` holds what it said unasked."""

    def __init__(self, to: int, back: int) -> None:
        self.to, self.back = to, back
        self.number = 0
        self.unread = b""
        self.events: list[Message] = []
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        attached = self.ask("Target.attachToTarget", targetId=target, flatten=True)
        self.session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")

    session: str | None = None

    def ask(self, method: str, **parameters: object) -> Message:
        """Call a method of the protocol and wait for its result."""
        self.number += 1
        message: Message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        while True:
            said = self.read()
            if said.get("id") == self.number:
                assert "error" not in said, f"{method}: {said['error']}"
                return said["result"]
            self.events.append(said)

    def read(self) -> Message:
        """The next message."""
        deadline = time.monotonic() + PATIENCE_S
        while b"\0" not in self.unread:
            left = deadline - time.monotonic()
            ready, _, _ = select.select([self.back], [], [], max(left, 0))
            assert ready, f"Chromium said nothing for {PATIENCE_S:.0f} s"
            more = os.read(self.back, 1 << 20)
            assert more, "Chromium ended"
            self.unread += more
        message, _, self.unread = self.unread.partition(b"\0")
        return json.loads(message)

    def show(self, page: Path, width: int, scheme: str = "light", height: int = 900) -> None:
        """Open a file as on a screen of this width, in the `light` or `dark` scheme."""
        self.ask(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        media = [{"name": "prefers-color-scheme", "value": scheme}]
        self.ask("Emulation.setEmulatedMedia", features=media)
        self.events.clear()
        self.ask("Page.navigate", url=page.as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self.read())

    def value(self, expression: str) -> Any:  # noqa: ANN401 (whatever the page computes)
        """What an expression of JavaScript comes to."""
        found = self.ask("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def press(self, key: str) -> None:
        """Press a key and let it go."""
        code, text = {"Tab": (9, ""), "Enter": (13, "\r")}[key]
        for kind in ("keyDown", "keyUp"):
            said = {"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code}
            self.ask("Input.dispatchKeyEvent", **said, text=text if kind == "keyDown" else "")

    def said(self, method: str) -> list[Message]:
        """The parameters of all events of a kind since the page was opened."""
        return [event["params"] for event in self.events if event.get("method") == method]

    def picture(self, file: Path) -> None:
        """Save a picture of the whole page."""
        found = self.ask("Page.captureScreenshot", captureBeyondViewport=True)
        file.write_bytes(base64.b64decode(found["data"]))


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser that lives as long as the block."""
    program = shutil.which("chromium")
    assert program, "there is no chromium"
    reads, to = os.pipe()
    back, writes = os.pipe()
    # Its helpers may still write while the folder is removed: what is left is in /tmp.
    cleaned = tempfile.TemporaryDirectory(prefix="tailscope-browser-", ignore_cleanup_errors=True)
    with cleaned as profile:
        # The shell puts the pipes where Chromium looks for them, and becomes Chromium.
        command = f'exec "$0" "$@" {READS}<&{reads} {WRITES}>&{writes}'
        child = subprocess.Popen(
            ["bash", "-c", command, program, *FLAGS, f"--user-data-dir={profile}"],
            pass_fds=(reads, writes),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(reads)
        os.close(writes)
        try:
            yield Browser(to, back)
        finally:
            os.close(to)
            os.close(back)
            child.terminate()
            try:
                child.wait(20)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)  # its helpers
