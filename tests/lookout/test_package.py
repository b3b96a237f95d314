"""What programs import beside Lookout's own packages, and without them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.daemon import ROOT

_ALONE = """
import sys
sys.modules.update(dict.fromkeys(("daemon", "detectors", "calibration")))  # an import of one fails
from lookout.client import Subscriber
from lookout.testing import Publisher
with Publisher() as publisher, Subscriber(publisher.endpoint) as subscriber:
    publisher.source("door").detections()
    print(subscriber.receive(30).source)
"""


def _python(*arguments: str, path: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        env={"PYTHONPATH": f"{path}:{ROOT}"},
        cwd=path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_a_subscriber_needs_nothing_of_the_daemon() -> None:
    found = _python("-c", _ALONE)
    assert (found.stdout, found.stderr) == ("door\n", "")


def test_a_client_that_is_not_there_is_named(tmp_path: Path) -> None:
    """The daemon's distribution asks for it, and pip may be told to leave it out."""
    (tmp_path / "lookout.py").touch()  # found first
    found = _python("-m", "lookoutd", "check", path=tmp_path)
    assert found.returncode == 2
    (line,) = found.stderr.splitlines()
    assert "No module named 'lookout." in line
    assert "install lookout-client" in line


def test_another_package_of_the_daemons_name_is_named(tmp_path: Path) -> None:
    """python-daemon installs a package `daemon`, which may be found first."""
    (tmp_path / "daemon").mkdir()
    (tmp_path / "daemon" / "__init__.py").touch()
    facts = tmp_path / "python_daemon-3.1.2.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: python-daemon\nVersion: 3.1.2\n")
    (facts / "top_level.txt").write_text("daemon\n")
    found = _python("-m", "lookoutd", "check", path=tmp_path)
    assert found.returncode == 2
    (line,) = found.stderr.splitlines()
    assert "python-daemon" in line
    assert "environment of its own" in line
