"""`lookout demo`: the whole daemon on synthetic streets, compared with their ground truth over its socket."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from shutil import which
from time import monotonic
from typing import Any

import msgspec
import numpy as np
from rich.console import Console
from rich.live import Live

from daemon.build import build
from daemon.commands.run import check_page_libraries, page_access, serve_page
from daemon.commands.watch import View
from daemon.config.http import DashboardConfig
from daemon.config.model import ModelConfig
from daemon.config.publisher import PublisherConfig
from daemon.config.root import Config, LogConfig, MonitorConfig
from daemon.config.sources import AvConfig, SourceConfig, SyntheticConfig
from daemon.daemon import Daemon
from daemon.errors import ConfigError, OutputError
from daemon.log import logging
from daemon.peers.access import new_token, with_access
from daemon.pipeline.ledger import Rows, percentiles
from daemon.redact import Secret, Url
from daemon.rule_config import LineConfig
from daemon.seams import Seams
from daemon.sources.synthetic import scene_of
from daemon.sources.synthetic_clip import synthetic_clip
from daemon.system.paths import demo_model
from daemon.system.signals import stopping_on_signals
from detectors.factory import Backend
from detectors.matching import match
from lookout.client import Subscriber
from lookout.messages import Detections

_MIN_SCORE = 0.9
_IOU = 0.5
_REFRESH_S = 0.25
_STREETS = (
    SyntheticConfig(id="street-1", seed=1001, fps=15),
    SyntheticConfig(id="street-2", seed=1002, fps=10, width=1280, height=720),
)


@dataclass
class Tally:
    """Numbers of boxes found, missed and invented."""

    found: int = 0
    missed: int = 0
    invented: int = 0

    @property
    def recall(self) -> float:
        return self.found / max(1, self.found + self.missed)

    @property
    def precision(self) -> float:
        return self.found / max(1, self.found + self.invented)


class Scorer:
    """Compares messages with the scenes' ground truth."""

    def __init__(self, streets: tuple[SyntheticConfig, ...], labels: tuple[str, ...]) -> None:
        self._scenes = {street.id: (scene_of(street), street.fps) for street in streets}
        self._labels = labels
        self.tally = Tally()

    def add(self, message: Detections) -> None:
        if message.source not in self._scenes:
            return
        scene, fps = self._scenes[message.source]
        truth = scene.truth(round((message.pts or 0) * fps / 1e9))
        known = np.array([box.xyxy for box in truth], dtype=np.float32).reshape(-1, 4)
        kinds = np.array([self._labels.index(box.label) for box in truth], dtype=np.int32)
        seen = np.array([found.box for found in message.detections], dtype=np.float32).reshape(-1, 4)
        seen_kinds = np.array([found.class_id for found in message.detections], dtype=np.int32)
        pairs = len(match(seen, seen_kinds, known, kinds, _IOU))
        self.tally.found += pairs
        self.tally.missed += len(known) - pairs
        self.tally.invented += len(seen) - pairs


def demo(seconds: float, backend: Backend = "auto", *, page: bool = False) -> int:
    """Run for some seconds and print a summary; 0 only if recall and precision are at least 0.9.

    Args:
        page: run until stopped, with the page. Otherwise the page is served while this runs, if its libraries are here.
    """
    console = Console()
    if page:
        check_page_libraries()
        seconds = float("inf")
    token = new_token() if page or _has_page() else None
    rows: list[Rows] = []
    stop = threading.Event()
    with ExitStack() as stack:
        stack.enter_context(logging(LogConfig(level="warning", format="console")))
        config = _config(backend, token, tracked=page)
        daemon = build(config, Seams(rows=[rows.append]))
        scorer = Scorer(_STREETS, daemon.parts.model.labels)
        subscriber = stack.enter_context(Subscriber(daemon.endpoint, kinds=("detections", "status", "metrics")))
        stack.enter_context(stopping_on_signals(stop.set))
        stack.enter_context(_running(daemon))
        if token:
            stack.callback(serve_page(daemon, config, token, lambda url: _tell(console, url, stays=page)).close)
        started = monotonic()
        received = _follow(daemon, subscriber, scorer, console, started + seconds, stop)
        took = monotonic() - started
    if received == 0 and stop.is_set():
        console.print("stopped before the first detections")
        return 0
    if received == 0:
        console.print("no detections arrived: run `lookout check -c config.yaml` to see why", style="red")
        return 1
    return _sum_up(console, scorer.tally, rows, received, took, sum(subscriber.lost.values()))


def _has_page() -> bool:
    """Whether the libraries of the page are installed."""
    try:
        check_page_libraries()
    except ConfigError:
        return False
    return True


def _tell(console: Console, url: str, *, stays: bool) -> None:
    more = "(until Ctrl-C)" if stays else f"while this runs; `{_command()} demo --dashboard` keeps it"
    with suppress(OutputError):  # the main thread says so
        console.print(f"the page: {url} {more}", soft_wrap=True)


def _command() -> str:
    """How this program is started here: in a checkout it is not on the path."""
    typed = Path(sys.argv[0])
    return str(typed) if typed.name == "lookout" and which(typed.name) is None else "lookout"


def _free_port(port: int) -> int:
    """The port, or 0 for any other if it is in use."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return 0
    return port


def _config(backend: Backend, token: Secret | None, *, tracked: bool) -> Config:
    rule = LineConfig(name="crossing", points=[(0.5, 0.0), (0.5, 1.0)])
    more: dict[str, Any] = {"tracking": True, "rules": [rule]} if tracked else {}
    recordings: list[SourceConfig] = []
    if tracked:  # drawn sources have no packets, so live video needs a recording
        recordings = [AvConfig(id="recording", url=Url(str(synthetic_clip())), loop=True, decode="cpu", **more)]
    config = Config(
        model=ModelConfig(path=demo_model(), backend=backend, confidence=0.4),
        sources=[msgspec.structs.replace(street, **more) for street in _STREETS] + recordings,
        publisher=PublisherConfig(endpoint="tcp://127.0.0.1:*", wait_for_subscriber_s=5.0),
        monitor=MonitorConfig(interval_s=2.0),
        dashboard=DashboardConfig(port=_free_port(DashboardConfig().port)),
        log=LogConfig(level="warning", format="console"),
    )
    return with_access(config, page_access(token)) if token else config


@contextmanager
def _running(daemon: Daemon) -> Iterator[None]:
    daemon.start()
    try:
        yield
    finally:
        daemon.stop()


def _follow(
    daemon: Daemon, subscriber: Subscriber, scorer: Scorer, console: Console, until: float, stop: threading.Event
) -> int:
    """Show and score messages until the time is over; returns the number of detections messages."""
    view, received, due = View(daemon.endpoint), 0, 0.0
    with Live(console=console, auto_refresh=False) as live:
        while monotonic() < until and not stop.is_set():
            message = subscriber.receive(_REFRESH_S)
            if message is not None:
                view.add(message)
            if isinstance(message, Detections):
                scorer.add(message)
                received += 1
            if monotonic() >= due:
                due = monotonic() + _REFRESH_S
                live.update(view.render(subscriber), refresh=True)
    return received


def _sum_up(console: Console, tally: Tally, rows: list[Rows], received: int, took: float, lost: int) -> int:
    console.print()
    stages = percentiles(np.concatenate(rows))
    p95 = stages["total"].p95 / 1e6 if stages else float("nan")
    console.print(
        f"{received} frames in {took:.1f} s ({received / took:.1f} frames/s, {lost} messages lost), "
        f"latency p95 {p95:.1f} ms from captured to sent; "
        f"recall {tally.recall:.3f}, precision {tally.precision:.3f} against {tally.found + tally.missed} known boxes",
        highlight=False,
        soft_wrap=True,
    )
    good = tally.recall >= _MIN_SCORE and tally.precision >= _MIN_SCORE
    summary = f"It works. Next, your own camera: {_command()} run rtsp://192.0.2.10/stream1 --dashboard"
    if not good:
        summary = f"recall and precision should both be at least {_MIN_SCORE}"
    console.print(summary, style="" if good else "red", highlight=False, soft_wrap=True)
    return 0 if good else 1
