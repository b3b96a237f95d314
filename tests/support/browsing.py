"""A `lookout dashboard` process for tests, and what a browser in it is asked."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from tests.support.daemon import PATIENCE_S, ROOT, wait_until
from tests.support.ports import free_port

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Playwright

CHROMIUM, FIREFOX = "/usr/bin/chromium", "/usr/bin/firefox-esr"
VIEW, OPERATE = "viewers-token-0123456789", "operators-token-0123456789"
ROLES = {"view": VIEW, "operate": OPERATE}
PATIENCE_MS = 1000 * PATIENCE_S


class Dashboard:
    """`lookout dashboard` over some daemons.

    Args:
        daemons: rows of `dashboard.daemons`.
        roles: that people may have, with their tokens; without any, all may do everything.
        keys: further ones of `dashboard`.
    """

    def __init__(
        self,
        folder: Path,
        daemons: list[dict[str, str]],
        roles: Mapping[str, str] = ROLES,
        keys: Mapping[str, Any] | None = None,
    ) -> None:
        port = self.port = free_port()
        tokens = [{"name": role, "role": role, "token": token} for role, token in roles.items()]
        page = {"port": port, "tokens": tokens, "daemons": daemons, **(keys or {})}
        config = {"dashboard": page, "log": {"format": "json"}}
        path = folder / "dashboard.yaml"
        path.write_text(yaml.safe_dump(config))
        self.url = f"http://127.0.0.1:{port}"
        self._log = (folder / "dashboard.log").open("w+")
        self._command = [sys.executable, "-m", "daemon", "dashboard", "-c", str(path)]
        self.restart()

    def restart(self) -> None:
        """Begin, at first or after the process has ended."""
        self.process = subprocess.Popen(self._command, stderr=self._log, cwd=ROOT, env={**os.environ})
        wait_until(self._answers, "the page answers")

    def log(self) -> str:
        self._log.flush()
        return Path(self._log.name).read_text()

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self._log.close()

    def _answers(self) -> bool:
        assert self.process.poll() is None, self.log()
        try:
            with urllib.request.urlopen(f"{self.url}/api/session", timeout=5) as answer:  # noqa: S310 - http of this host
                return bool(answer.status == 200)
        except OSError:
            return False


def chromium(playwright: Playwright) -> Browser:
    """Debian's Chromium, which plays H.264; it may not use its sandbox in containers, and does not play a GPU."""
    return playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])


def firefox(playwright: Playwright) -> Browser:
    """Debian's Firefox, which plays HEVC as well."""
    return playwright.firefox.launch(channel="moz-firefox", executable_path=FIREFOX)


def login(page: Page, url: str, token: str = OPERATE) -> None:
    page.goto(f"{url}/login")
    page.get_by_label("Token").fill(token)
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("heading", name="Wall").wait_for()


def violations(page: Page, rules: Sequence[str] | None = None) -> list[str]:
    """What axe finds wrong with the page, by all of its rules or by some."""
    if not page.evaluate("() => Boolean(window.axe)"):
        page.evaluate((files("axe_playwright_python") / "axe.min.js").read_text())
    options = {"resultTypes": ["violations"], "selectors": False} | ({"runOnly": list(rules)} if rules else {})
    found = page.evaluate("(options) => axe.run(document, options)", options)
    return [f"{row['id']}: {row['help']}: {[one['html'][:200] for one in row['nodes']]}" for row in found["violations"]]


def answer_of(page: Page, path: str) -> Any:
    """The JSON that the page's server answers to the browser."""
    return json.loads(page.request.get(re.sub(r"(//[^/]*).*", r"\1", page.url) + path).text())
