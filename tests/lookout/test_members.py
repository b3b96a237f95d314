"""Who can follow a fleet for a subscriber: an installed distribution says so, and without one there is one line."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from daemon.fleet.endpoints import follow as of_the_daemon
from lookout.client import Subscriber
from lookout.errors import ConfigError
from lookout.testing import Publisher
from tests.support.daemon import PATIENCE_S, ROOT

_FOLLOWER = """
import os
from types import SimpleNamespace

class Members:
    failure = None
    def __init__(self, address):
        self.fd, self._waker = os.pipe()
        os.write(self._waker, b".")
        self._row = SimpleNamespace(messages=address.partition("//")[2], server_key=None)
        self.closed = 0
        made.append(self)
    def read(self):
        os.read(self.fd, 1)
        return {"one": self._row}
    def close(self):
        self.closed += 1

made = []
follow = Members
"""


def _installed(folder: Path, entry: str) -> None:
    """A distribution that has this entry point, and nothing else that is installed."""
    facts = folder / "follower-1.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: follower\nVersion: 1\n")
    (facts / "entry_points.txt").write_text(f"[lookout.members]\nmine = {entry}\n")


def test_without_the_daemons_distribution_it_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    with pytest.raises(ConfigError, match=r"^Subscriber\(fleet=\.\.\.\) needs lookoutd: pip install lookoutd; "):
        Subscriber(fleet="etcd://127.0.0.1:2379/lookout")


def test_a_daemon_that_cannot_be_imported_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As beside python-daemon, whose package has the same name."""
    _installed(tmp_path, "no_such_package.fleet:follow")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    with pytest.raises(ConfigError, match=r"cannot be imported here .*no_such_package.*environment of its own$"):
        Subscriber(fleet="etcd://127.0.0.1:2379/lookout")


def test_what_is_installed_tells_where_members_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lookout_follower.py").write_text(_FOLLOWER)
    _installed(tmp_path, "lookout_follower:follow")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *(row for row in sys.path if not row.endswith("site-packages"))])
    with Publisher(timeout_s=PATIENCE_S) as publisher:
        with Subscriber(fleet=f"mine://{publisher.endpoint}") as subscriber:
            while not subscriber._connections:
                assert subscriber.receive(0) is None
            publisher.source("door").detections()
            assert subscriber.receive(PATIENCE_S) is not None
        (members,) = sys.modules.pop("lookout_follower").made
    assert members.closed == 1
    os.close(members.fd)
    os.close(members._waker)


def test_the_daemons_distribution_names_what_it_has() -> None:
    """As pyproject.toml has it: what is installed may be older than this tree."""
    (named,) = re.findall(
        r'^\[project\.entry-points\."lookout\.members"\]\n\w+ = "([\w.]+):(\w+)"$',
        (ROOT / "pyproject.toml").read_text(),
        re.MULTILINE,
    )
    assert named == (of_the_daemon.__module__, of_the_daemon.__name__)
