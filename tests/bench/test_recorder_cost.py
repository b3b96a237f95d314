"""`python -m tests.bench recorder`: it counts what it has put in."""

from __future__ import annotations

import json
from pathlib import Path

from daemon.cli import invoke
from tests.bench.__main__ import bench


def test_packets_are_counted_after_the_warm_up(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    sizes = ["--sources", "2", "--seconds", "1", "--packet-bytes", "500", "--folder", str(tmp_path)]
    assert invoke(["recorder", *sizes, "--json", str(file)], bench) == 0
    assert json.loads(file.read_text())["packets"] == 2 * 30
