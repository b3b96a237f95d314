"""`python -m tests.bench past`: every answer is whole, which the command itself looks at."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from daemon.cli import invoke
from tests.bench.__main__ import bench


def test_a_timeline_is_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "figures.json"
    sizes = ["--cameras", "2", "--hours", "0.1", "--fps", "1", "--step", "7", "--rounds", "1"]
    assert invoke(["past", *sizes, "--json", str(file)], bench) == 0
    found = json.loads(file.read_text())
    assert found["files"] == 6
    assert all(found[way]["one_ms"] > 0 for way in ("spans", "by_index", "by_files", "from_disk", "again"))
    assert "2 at once" in " ".join(capsys.readouterr().out.split())
