"""Sources that break and come back among others, by the command that GPUs are tried with."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.daemon import ROOT

pytestmark = [pytest.mark.needs("ffmpeg"), pytest.mark.slow]


@pytest.mark.long
def test_churn_breaks_what_it_should_and_finds_it_back(clip: Path, tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    command = [sys.executable, "-m", "tests.gpu.churn", str(clip), "--backend", "fake", "--sources", "3"]
    command += ["--victims", "1", "--drops", "20", "--seconds", "1", "--warm-up", "0", "--json", str(file)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(file.read_text())
    settled, ended = found["settled"], found["ended"]
    assert found["victims"] == 1
    assert settled["drops"] >= 2  # as many as were asked for; one more may be on its way when it is told to stop
    assert ended["drops"] >= 20
    assert ended["threads"] <= settled["threads"]
    assert ended["open_files"] <= settled["open_files"]
    assert found["churning_fps"] > 0
    assert "open_files" in done.stdout
