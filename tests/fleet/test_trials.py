"""Random histories of a fleet; their witnesses find a planted defect. `python -m tests.fleet.trials` tries more."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.daemon import ROOT

pytestmark = [pytest.mark.needs("etcd-server", "etcd-client", "g++"), pytest.mark.long, pytest.mark.timeout(1200)]


@pytest.mark.parametrize(
    "arguments",
    [
        ("--histories", "20", "--servers", "3"),
        ("--histories", "10", "--on-loss", "keep"),
        ("--histories", "6", "--only", "added"),
        ("--histories", "2", "--only", "swallowed", "--late"),
    ],
    ids=["stop", "keep", "members are added", "a planted defect"],
)
def test_histories(arguments: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "tests.fleet.trials", "--sources", "60", "--seed", "3", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1000, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
