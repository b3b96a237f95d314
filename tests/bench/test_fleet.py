"""`python -m tests.bench fleet`: its fleet is placed whole, and a loss moves what was lost."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from daemon.cli import invoke
from tests.bench.__main__ import bench


def test_the_time_of_placements(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "figures.json"
    sizes = ["--sources", "400", "--members", "10", "--lost", "1", "--rounds", "2"]
    assert invoke(["fleet", *sizes, "--json", str(file)], bench) == 0
    first, idle, lost, *short, rebalanced = json.loads(file.read_text())["times"]
    assert (first["moved"], first["waiting"]) == (400, 0)
    assert (idle["moved"], idle["waiting"]) == (0, 0)
    assert 20 < lost["moved"] + lost["waiting"] < 60
    assert all(row["waiting"] > 0 for row in short)
    assert 0 < rebalanced["moved"] < 100
    assert "Placement of 400 sources on 10 members" in " ".join(capsys.readouterr().out.split())
