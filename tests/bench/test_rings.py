"""`python -m tests.bench rings`: all that is written is read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from daemon.cli import invoke
from tests.bench.__main__ import bench


def test_nothing_is_lost(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "figures.json"
    sizes = ["--rings", "6", "--seconds", "0.4", "--packet-bytes", "4000", "--ring-mib", "2"]
    assert invoke(["rings", *sizes, "--json", str(file)], bench) == 0
    found = json.loads(file.read_text())
    assert found["lost"] == 0
    assert found["read"] == found["packets"] == round(6 * 30 * 0.4)
    assert "6 rings" in " ".join(capsys.readouterr().out.split())
