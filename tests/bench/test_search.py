"""`python -m tests.bench search`: rules find something in what is measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from daemon.cli import invoke
from tests.bench.__main__ import bench


def test_the_cost_of_asking_the_past(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "figures.json"
    assert invoke(["search", "--minutes", "1", "--fps", "5", "--objects", "3", "--json", str(file)], bench) == 0
    rows = json.loads(file.read_text())
    assert [row["rule"] for row in rows] == ["zone", "line"]
    assert all(row["events"] > 0 and row["frame_us"] > 0 for row in rows)
    assert "3 objects, 300 frames" in capsys.readouterr().out
