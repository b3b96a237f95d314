"""`python -m tests.bench analytics`: it measures what the daemon does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from daemon.cli import invoke
from tests.bench.__main__ import bench


def test_the_cost_of_tracking_by_objects(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "figures.json"
    sizes = ["--objects", "1", "--objects", "30", "--sources", "3", "--frames", "5"]
    assert invoke(["analytics", *sizes, "--json", str(file)], bench) == 0
    figures = json.loads(file.read_text())
    assert [row["objects"] for row in figures["tracking"]] == [1, 30]
    assert all(row["compiled"] > 0 and row["numpy"] > 0 for row in figures["tracking"])
    assert "a frame of each of 3 sources" in " ".join(capsys.readouterr().out.split())
