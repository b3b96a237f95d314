"""`lookout demo`, beside what tests/test_readme.py sees of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from daemon.cli import invoke
from tests.support.daemon import PATIENCE_S, ROOT, wait_until


def test_ctrl_c_before_the_first_detections_is_no_fault(capfd: pytest.CaptureFixture[str]) -> None:
    before = signal.getsignal(signal.SIGINT)

    def interrupt() -> None:
        wait_until(lambda: signal.getsignal(signal.SIGINT) is not before, "it listens to signals")
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    code = invoke(["demo"])
    thread.join()
    said = capfd.readouterr()
    assert (code, "stopped before the first detections" in said.out, "Traceback" in said.err) == (0, True, False)


def test_a_full_disk_is_told_once() -> None:
    """The page's address comes from another thread."""
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([sys.executable, "-m", "daemon", "demo", "--seconds", "2"], cwd=ROOT, check=False,
                              stdout=full, stderr=subprocess.PIPE, text=True, timeout=PATIENCE_S)  # fmt: skip
    assert (done.returncode, done.stderr) == (
        1,
        "lookout: standard output cannot be written: No space left on device\n",
    )
