"""`python -m tests.bench bridge`: what a daemon pays for a bridge beside it, and what the bridge itself costs.

The daemon of `python -m tests.bench python`, with tracks and rules and at a fixed rate, in turns: with one subscriber,
with two, and with one and a bridge. The bridge passes events and one message of detections a second of each source on
to a file, and holds the states of all sources.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

import psutil
import yaml

from daemon.bench.listener import listening
from tests.bench.overhead import OverheadOptions, overhead

_FIGURES_FPS = 1
_STOP_S = 10.0


@dataclass(frozen=True)
class BridgeLoad:
    """
    Attributes:
        fps: of each source.
        seconds: of each turn.
    """

    sources: int = 240
    fps: float = 5.0
    seconds: int = 20


@dataclass(frozen=True)
class BridgeCost:
    """The daemon's CPU for a frame, us, the median of the turns; and the bridge's, per cent of a core.

    Attributes:
        events, figures: that the bridge has passed on, in all turns.
    """

    sources: int
    fps: float
    alone_us: float
    subscriber_us: float
    bridge_us: float
    bridge_cpu_percent: float
    events: int
    figures: int


@dataclass
class _Bridge:
    cpu_s: float = 0.0
    events: int = 0
    figures: int = 0


def bridge_cost(load: BridgeLoad, turns: int) -> BridgeCost:
    """Run and measure."""
    frames = round(load.sources * load.fps * load.seconds)
    options = OverheadOptions(sources=load.sources, frames=frames, max_batch=32, analytics=True, fps=load.fps)
    bridge, us = _Bridge(), {"alone": [0.0] * 0, "subscriber": [0.0] * 0, "bridge": [0.0] * 0}
    for _ in range(turns):
        us["alone"].append(overhead(options).cpu_us_per_frame)
        us["subscriber"].append(overhead(options, listening).cpu_us_per_frame)
        us["bridge"].append(overhead(options, partial(_bridge, bridge)).cpu_us_per_frame)
    return BridgeCost(
        sources=load.sources,
        fps=load.fps,
        alone_us=round(median(us["alone"]), 1),
        subscriber_us=round(median(us["subscriber"]), 1),
        bridge_us=round(median(us["bridge"]), 1),
        bridge_cpu_percent=round(100 * bridge.cpu_s / (turns * load.seconds), 1),
        events=bridge.events,
        figures=bridge.figures,
    )


@contextmanager
def _bridge(account: _Bridge, endpoint: str) -> Iterator[None]:
    """A bridge beside a daemon."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        lines, config = folder / "lines.jsonl", folder / "bridge.yaml"
        target = {"name": "lines", "type": "file", "path": str(lines), "figures_fps": _FIGURES_FPS}
        bridge = {
            "spool": str(folder / "spool"),
            "daemons": [{"name": "here", "endpoint": endpoint}],
            "targets": [target],
        }
        config.write_text(yaml.safe_dump({"bridge": bridge}))
        command = [sys.executable, "-m", "lookoutd", "bridge", "-c", str(config)]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr is not None
            for line in process.stderr:
                if "the bridge runs" in line:
                    break
            times = psutil.Process(process.pid).cpu_times()
            begun = times.user + times.system
            try:
                yield
            finally:
                times = psutil.Process(process.pid).cpu_times()
                account.cpu_s += times.user + times.system - begun
                process.terminate()
                process.communicate(timeout=_STOP_S)
        for line in lines.read_text().splitlines():
            account.events += line.startswith('{"schema":"lookout.event/1"')
            account.figures += line.startswith('{"schema":"lookout.detections/1"')
