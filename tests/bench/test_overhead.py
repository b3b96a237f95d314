"""`python -m tests.bench python`: every frame passes all parts except decoder and detector, to the subscriber."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from daemon.cli import invoke
from tests.bench.__main__ import bench


@pytest.mark.needs("ffmpeg")
def test_a_replay_is_compared_with_bare_inference(clip: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    assert invoke(["python", str(clip), "--rounds", "1", "--json", str(out)], bench) == 0
    figures = json.loads(out.read_text())
    assert figures["ratio"] > 0
    assert figures["frames"] == 45


def test_every_frame_is_received(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "figures.json"
    size = ["--sources", "20", "--frames", "2000", "--max-batch", "8"]
    assert invoke(["python", *size, "--json", str(file)], bench) == 0
    figures = json.loads(file.read_text())
    assert figures["published"] == figures["received"] == 2000
    assert figures["cpu_us_per_frame"] > 0
    assert "frames/s" in capsys.readouterr().out
