"""`python -m tests.bench tracing`: it measures what it says."""

from __future__ import annotations

import json
from pathlib import Path

from daemon.cli import invoke
from tests.bench.__main__ import bench


def test_each_part_has_a_figure(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    assert invoke(["tracing", "--frames", "1000", "--traces", "100", "--rounds", "1", "--json", str(file)], bench) == 0
    found = json.loads(file.read_text())
    assert found["sent_us"] > 0
    assert 50 < found["bytes"] < 2_000
