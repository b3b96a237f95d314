"""NVTX ranges of a daemon. A small tool takes the place of Nsight Systems: NVTX loads it, as it would load that one."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest

from daemon.cli import invoke
from detectors.port import DetectorError
from detectors.ranges import NoRanges, wanted_ranges
from tests.support.daemon import DEMO_MODEL, PATIENCE_S, Lookout
from tests.support.driver import compiled

_STUB = Path(__file__).parents[1] / "support" / "nvtx_stub.cpp"
_FRAMES = 12


def _config() -> dict[str, object]:
    return {
        "model": {"backend": "cpu", "path": str(DEMO_MODEL), "threads": 1, "max_batch": 4},
        "sources": [
            {"id": "street", "type": "synthetic", "pace": "fast", "frames": _FRAMES, "width": 64, "height": 64}
        ],
        "board": {"mode": "lossless"},
    }


@pytest.mark.needs("nvtx", "g++")
def test_a_daemons_ranges_reach_a_profiler(tmp_path: Path) -> None:
    """Each range begins and ends, and none is left open."""
    tool, log = compiled(_STUB), tmp_path / "ranges"
    environment = {"LOOKOUT_NVTX": "1", "NVTX_INJECTION64_PATH": str(tool), "LOOKOUT_TEST_NVTX": str(log)}
    with Lookout(tmp_path, _config(), environment) as lookout:
        assert lookout.process.wait(PATIENCE_S) == 0, lookout.log()
    events = [line.split(" ", 2) for line in log.read_text().splitlines()]
    begun = Counter(name for what, _, name in events if what == "begin")
    assert len(events) == 2 * begun.total()
    batches = begun["lookout: lane-0 outbox"]
    assert 0 < batches <= _FRAMES
    for name in ("detect", "TrackerStage", "FilterStage", "RulesStage"):
        assert begun[f"lookout: lane-0 {name}"] == batches
    assert begun["lookout: publisher batch"] > 0


def test_without_the_variable_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    for value in ("", "0"):
        monkeypatch.setenv("LOOKOUT_NVTX", value)
        assert isinstance(wanted_ranges(), NoRanges)
    with NoRanges().named("a") as nothing, NoRanges().named("a"):
        assert nothing is None


def test_what_is_wrong_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("sources: [{id: a, type: synthetic}]\nmodel: {path: {}}\n".replace("{}", str(DEMO_MODEL)))
    monkeypatch.setitem(sys.modules, "nvtx", None)  # Python's sign for a module that cannot be imported
    monkeypatch.setenv("LOOKOUT_NVTX", "1")
    assert invoke(["run", "-c", str(file)]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "LOOKOUT_NVTX is 1, but nvtx does not load" in error
    assert "pip install 'lookoutd[nvtx]'" in error
    monkeypatch.setenv("LOOKOUT_NVTX", "yes")
    with pytest.raises(DetectorError, match="LOOKOUT_NVTX is 'yes': set 1 for ranges of a profiler, or 0"):
        wanted_ranges()
