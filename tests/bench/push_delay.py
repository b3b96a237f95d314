"""`python -m tests.bench push`: from the message of an event to the push with its picture, at a server on loopback.

A daemon and a bridge as users run them, each a process of its own: synthetic sources, the demo model on the CPU, an
event whenever somebody crosses a line, pictures on disk, and a signed webhook. The time of an event is that at which a
subscriber has its message; that of a push, when the server has the whole request.
"""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from threading import Lock
from time import monotonic

from lookout.messages import Event
from tests.support.daemon import Lookout
from tests.support.ports import free_port
from tests.support.pushes import Asked, PushServer, Reply

_TOKEN = "a-token-of-the-measurement"  # noqa: S105 - of these processes
_PATIENCE_S = 600.0
_STOP_S = 20.0


@dataclass(frozen=True)
class PushLoad:
    """
    Attributes:
        fps: of each source.
        events: that are waited for.
    """

    sources: int = 4
    fps: float = 5.0
    events: int = 200


@dataclass(frozen=True)
class PushDelay:
    """
    Attributes:
        events: that were pushed, each with the picture or with the reason why there is none.
        with_picture: of them.
        p50_ms, p95_ms, max_ms: from message to request.
    """

    sources: int
    events: int
    with_picture: int
    p50_ms: float
    p95_ms: float
    max_ms: float


class _Arrivals:
    """The stand-in: when each event came, and whether with a picture."""

    def __init__(self) -> None:
        self._lock = Lock()
        self.at: dict[str, tuple[float, bool]] = {}

    def __call__(self, asked: Asked) -> Reply:
        body = json.loads(asked.body)
        with self._lock:
            self.at.setdefault(str(body.get("id")), (monotonic(), bool((body.get("picture") or {}).get("jpeg"))))
        return Reply(204)


def push_delay(load: PushLoad) -> PushDelay:
    """Run and measure."""
    arrivals, told = _Arrivals(), dict[str, float]()
    with tempfile.TemporaryDirectory() as name, PushServer(arrivals) as server:
        folder = Path(name)
        with Lookout(folder, _config(folder, load, server)) as lookout, lookout.subscribe("events") as subscriber:
            command = [sys.executable, "-m", "lookoutd", "bridge", "-c", str(lookout.config)]
            with subprocess.Popen(command, stderr=subprocess.DEVNULL) as bridge:
                until = monotonic() + _PATIENCE_S
                while len(arrivals.at.keys() & told.keys()) < load.events and monotonic() < until:
                    message = subscriber.receive(0.1)
                    if isinstance(message, Event):
                        told[message.id] = monotonic()
                bridge.terminate()
                bridge.wait(_STOP_S)
    first = min((at for at, _ in arrivals.at.values()), default=0.0)
    rows = [(arrivals.at[id], at) for id, at in told.items() if id in arrivals.at and at > first]  # not of the start
    delays = sorted(1000 * max(0.0, came - at) for (came, _), at in rows)
    if not delays:
        raise RuntimeError("no event was pushed")
    return PushDelay(
        sources=load.sources,
        events=len(rows),
        with_picture=sum(pictured for (_, pictured), _ in rows),
        p50_ms=round(median(delays), 1),
        p95_ms=round(delays[min(len(delays) - 1, int(0.95 * len(delays)))], 1),
        max_ms=round(delays[-1], 1),
    )


def _config(folder: Path, load: PushLoad, server: PushServer) -> dict[str, object]:
    line = {"name": "middle", "type": "line", "points": [[0.5, 0.0], [0.5, 1.0]]}
    source = {"type": "synthetic", "width": 1280, "height": 720, "fps": load.fps, "rules": [line]}
    secret = f"whsec_{base64.b64encode(bytes(32)).decode()}"
    hook = {"name": "hook", "type": "webhook", "url": server.url(), "allow": ["127.0.0.0/8"], "picture": True,
            "secrets": [secret]}  # fmt: skip
    return {
        "sources": [{"id": f"street-{number}", **source} for number in range(load.sources)],
        "tracking": {"enabled": True},
        "events": {"journal": str(folder / "events.sqlite"), "snapshots": {"folder": str(folder), "min_free_mib": 0}},
        "http": {"enabled": True, "port": free_port(), "token": _TOKEN},
        "bridge": {"spool": str(folder / "spool.sqlite"), "targets": [hook]},
    }
