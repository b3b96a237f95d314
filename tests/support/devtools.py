"""A Chromium whose memory is its own: for Playwright a tab keeps the bodies of what it has loaded, and so it grows."""

from __future__ import annotations

import json
import subprocess
import urllib.request
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import psutil

from tests.support.browsing import CHROMIUM
from tests.support.daemon import PATIENCE_S, wait_until
from tests.support.websocket import WebSocketClient

_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-extensions", "--mute-audio",
    "--disable-background-networking", "--disable-component-extensions-with-background-pages", "--window-size=1280,900",
    "--remote-debugging-port=0",
)  # fmt: skip


class _Session(WebSocketClient):
    """Commands to a tab and their answers."""

    def _say(self) -> None:
        pass


class BareTab:
    """The only tab of a Chromium of its own.

    Args:
        folder: of its profile, which does not exist yet.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._ids = folder, count(1)
        self._log = folder.with_suffix(".log").open("wb")
        command = [CHROMIUM, *_FLAGS, f"--user-data-dir={folder}", "about:blank"]
        self._process = subprocess.Popen(command, stdout=self._log, stderr=self._log)
        self._session: _Session | None = None
        try:
            wait_until(lambda: self._address() is not None, "Chromium answers")
            port, path = self._address() or (0, "")
            self._session = _Session(port, path, origin="")
        except BaseException:
            self.close()
            raise

    def send(self, method: str, **parameters: object) -> dict[str, Any]:
        """The answer to a command."""
        assert self._session is not None
        number = next(self._ids)
        self._session.send({"id": number, "method": method, "params": parameters})
        while True:
            answer = json.loads(self._session.next(PATIENCE_S))
            if answer.get("id") == number:
                assert "error" not in answer, (method, answer)
                found: dict[str, Any] = answer["result"]
                return found

    def evaluate(self, script: str) -> Any:
        """The value of an expression in the page."""
        answer = self.send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def goto(self, url: str) -> None:
        self.send("Page.navigate", url=url)

    def wait(self, condition: str) -> None:
        """Until an expression is true."""
        wait_until(lambda: self.evaluate(condition), condition)

    def heap(self) -> int:
        """Bytes of objects of JavaScript that are in use."""
        self.send("HeapProfiler.collectGarbage")
        return int(self.send("Runtime.getHeapUsage")["usedSize"])

    def relieve(self) -> None:
        """Ask for memory as the system does when it has none, and let the tab answer."""
        self.send("Memory.simulatePressureNotification", level="critical")
        self.send("HeapProfiler.collectGarbage")
        self.evaluate("new Promise((resolve) => setTimeout(resolve, 3000))")

    def resident(self) -> int:
        """Bytes that the process of the tab has for itself. Others are in reserve, and do nothing."""
        found = [(0.0, 0)]
        for child in self._children():
            with suppress(psutil.Error):  # it ends meanwhile
                if "--type=renderer" in child.cmdline():
                    memory = child.memory_info()
                    found.append((child.cpu_times().user, memory.rss - memory.shared))
        return max(found)[1]

    def close(self) -> None:
        if self._session is not None:
            self._session.close()
        children = self._children()
        self._process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(10)
        for one in children:
            with suppress(psutil.Error):
                one.kill()
        self._process.kill()
        self._process.wait(10)
        self._log.close()

    def _children(self) -> list[psutil.Process]:
        with suppress(psutil.Error):
            return list(psutil.Process(self._process.pid).children(recursive=True))
        return []

    def _address(self) -> tuple[int, str] | None:
        assert self._process.poll() is None, self._folder.with_suffix(".log").read_text()
        try:
            port = int((self._folder / "DevToolsActivePort").read_text().split()[0])
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/list", timeout=5) as answer:
                pages = [row for row in json.load(answer) if row["type"] == "page"]
            return port, "/" + pages[0]["webSocketDebuggerUrl"].split("/", 3)[3]
        except (OSError, IndexError, ValueError):
            return None
