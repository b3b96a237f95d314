"""Child processes that end later than they are waited for."""

from __future__ import annotations

import subprocess
import sys

from daemon.system.children import reap
from tests.support.daemon import wait_until


def _until_told() -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)


def test_one_that_takes_long_is_reaped_when_it_ends() -> None:
    process = _until_told()
    assert process.stdin
    reap(process, 0)
    assert process.returncode is None
    process.stdin.close()
    wait_until(lambda: process.returncode is not None, "it is reaped")


def test_one_that_ends_is_waited_for() -> None:
    process = _until_told()
    assert process.stdin
    process.stdin.close()
    reap(process, 60)
    assert process.returncode is not None
