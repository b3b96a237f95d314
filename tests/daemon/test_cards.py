"""The command that measures all GPUs of a host, as far as it can be tried without one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.daemon import ROOT

pytestmark = [pytest.mark.needs("ffmpeg", "g++", "nvcuvid"), pytest.mark.long]
PARTS = ("alone", "together", "live", "starts", "beside", "storm")


def test_a_dry_run_has_a_row_for_each_part(clip: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.gpu.cards", "--dry", "--hevc", str(clip), "--camera", str(clip)]
    command += ["--cache", str(tmp_path / "cache"), "--out", str(tmp_path / "out")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = done.stdout.partition("2 cards: [0, 1]\n")[2].splitlines()
    assert {row.split()[0] for row in rows} == set(PARTS)
    assert "failed" not in done.stdout
