"""`python -m tests.bench python`: every frame passes all parts except decoder and detector, to the subscriber."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from daemon.cli import invoke
from tests.bench.__main__ import bench


def test_every_frame_is_received(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "figures.json"
    size = ["--sources", "20", "--frames", "2000", "--max-batch", "8"]
    assert invoke(["python", *size, "--json", str(file)], bench) == 0
    figures = json.loads(file.read_text())
    assert figures["published"] == figures["received"] == 2000
    assert figures["cpu_us_per_frame"] > 0
    assert "frames/s" in capsys.readouterr().out
