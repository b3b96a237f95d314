"""A daemon with the fake detector for one test: started, changed, and always stopped."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import structlog
from structlog.testing import capture_logs

from daemon.build import build
from daemon.config.model import ModelConfig
from daemon.config.publisher import PublisherConfig
from daemon.config.root import Config, MonitorConfig
from daemon.config.sources import SourceConfig, SyntheticConfig
from daemon.daemon import Daemon
from daemon.seams import Seams
from detectors.fake.detector import FakeDetector
from tests.lifetimes.cameras import make
from tests.lifetimes.rig import wait_until

STREET = SyntheticConfig(id="street", fps=50, width=16, height=16, objects=1)


def config_of(*sources: SourceConfig, **more: Any) -> Config:
    """The fake detector, no subscriber, no stall detection."""
    return Config(
        model=ModelConfig(path=Path("none"), backend="fake", max_batch=4),
        sources=list(sources),
        publisher=PublisherConfig(endpoint="tcp://127.0.0.1:*"),
        **{"monitor": MonitorConfig(stall_after_s=60), **more},
    )


@contextmanager
def running(
    folder: Path,
    *sources: SourceConfig,
    config: dict[str, Any] | None = None,
    read: Callable[[], Config] | None = None,
    **seams: Any,
) -> Iterator[Daemon]:
    """A running daemon."""
    parts = {
        "open_detector": lambda _, options: FakeDetector(options),
        "make_source": partial(make, folder=folder),
        **seams,
    }
    app = build(config_of(*sources, **(config or {})), Seams(**parts), read=read)
    try:
        app.start()
        yield app
    finally:
        app.stop()


@contextmanager
def warned() -> Iterator[list[MutableMapping[str, Any]]]:
    """Warnings and errors that are logged within."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    with capture_logs() as lines:
        yield lines


def edit(app: Daemon, change: Callable[[list[SourceConfig]], Sequence[SourceConfig]]) -> Future[Any]:
    """Change the sources."""
    return app.changes.submit(lambda now: msgspec.structs.replace(now, sources=list(change(list(now.sources)))))


def only(app: Daemon, *sources: SourceConfig) -> None:
    """Change to these sources, and wait for it."""
    edit(app, lambda _: sources).result(60)


def state_of(app: Daemon, id: str) -> str | None:
    """A source's state; None if it does not exist."""
    return next((capture.state for capture in app.sources.captures if capture.id == id), None)


def wait_up(app: Daemon, *ids: str) -> None:
    """Wait until these sources are up, and each has given one more frame."""
    before = {id: app.ledger.counts()[id].captured for id in ids}

    def are_up() -> bool:
        counts = app.ledger.counts()
        return all(state_of(app, id) == "up" and counts[id].captured > before[id] for id in ids)

    wait_until(are_up, f"{', '.join(ids)} up", lambda: [(row.id, row.state) for row in app.sources.captures])
