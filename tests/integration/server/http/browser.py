# SPDX-License-Identifier: Apache-2.0
"""A headless Chromium, spoken to over its debugging pipe."""

from __future__ import annotations

import fcntl
import json
import os
import select
import subprocess
import time
from pathlib import Path
from typing import Any

LIMIT_S = 60


class Browser:
    """One page of a browser of its own, as wide as is wanted."""

    def __init__(self, program: str, folder: Path) -> None:
        (read, self._to), (self._from, write) = os.pipe(), os.pipe()
        self._number = 0
        self._rest = b""
        command = [program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe",
                   f"--user-data-dir={folder}", "about:blank"]  # fmt: skip

        def give() -> None:  # Chromium reads from descriptor 3 and writes to 4
            (high_read, high_write) = (fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (read, write))
            os.dup2(high_read, 3)
            os.dup2(high_write, 4)

        self._process = subprocess.Popen(
            command, preexec_fn=give, close_fds=False, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(read)
        os.close(write)
        try:
            target = self.call("Target.createTarget", url="about:blank")["targetId"]
            self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        except BaseException:
            self.close()
            raise

    def call(self, method: str, **parameters: Any) -> dict:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if hasattr(self, "_session"):
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + LIMIT_S
        while True:
            while b"\0" not in self._rest:
                assert select.select([self._from], [], [], max(deadline - time.monotonic(), 0))[0], f"no answer to {method}"
                data = os.read(self._from, 1 << 20)
                assert data, "the browser has ended"
                self._rest += data
            one, _, self._rest = self._rest.partition(b"\0")
            answer = json.loads(one)
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]

    def show(self, url: str, width: int, scheme: str) -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=width < 600)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.call("Page.navigate", url=url)

    def evaluate(self, expression: str) -> Any:
        return self.call("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def close(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._to)
        os.close(self._from)
