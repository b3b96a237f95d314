"""Events for tests, and a process that writes them until it is killed.

    python -m tests.support.events JOURNAL

prints the number of each event after it was given to the journal, and its instance first.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import structlog
from structlog.testing import capture_logs
from structlog.typing import EventDict

from daemon.analytics.event import Event
from daemon.analytics.event_message import Identity
from daemon.analytics.event_publisher import EventPublisher, Stores
from daemon.analytics.journal import Journal
from daemon.analytics.snapshots import EventSnapshots
from daemon.clock import Clock, SystemClock
from daemon.config.events import EventsConfig
from daemon.pipeline.frames import FrameInfo
from daemon.pipeline.ledger import Ledger
from daemon.pipeline.outbox import Outbox, Report
from daemon.system.runtime import Runtime
from daemon.system.watchdog import Watchdog
from lookout.messages import FrameClock, Owner


def frame(seq: int = 0, source: str = "street") -> FrameInfo:
    at = 1_700_000_000_000_000_000 + seq * 100_000_000
    return FrameInfo(source, "session", seq, seq * 100_000_000, seq, at, FrameClock("file"), 5, 640, 480)


def crossing(seq: int = 0, source: str = "street", **more: Any) -> Event:
    """A car over the line `door`, which is confirmed two frames later."""
    fields: dict[str, Any] = {"kind": "line", "phase": "crossed", "rule": "door", "direction": "forward"}
    fields |= {"track": 7, "label": "car", "box": (1.234, 2.0, 30.0, 40.0), **more}
    return Event(source=source, began=frame(seq, source), confirmed=frame(seq + 2, source), **fields)


def runtime(clock: Clock) -> Runtime:
    return Runtime(clock, Watchdog(30.0, clock, lambda _: None), _fail)


@contextmanager
def logged() -> Iterator[list[EventDict]]:
    """The lines that are logged meanwhile."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(20))
    with capture_logs() as lines:
        yield lines


class Rig:
    """An event publisher with a journal, or without, and what it has reported.

    Args:
        path: of the journal.
        owner: of a source, in a fleet.
    """

    def __init__(
        self,
        path: Path | None,
        clock: Clock,
        instance: str = "run-1",
        owner: Callable[[str], Owner | None] | None = None,
        **config: Any,
    ) -> None:
        self.config = EventsConfig(**config)
        self.outbox = Outbox(10, Ledger(["street"]), lossless=False)
        self.journal = Journal(path, self.config, runtime(clock)) if path else None
        snapshots = self.config.snapshots
        self.snapshots = EventSnapshots(snapshots, runtime(clock)) if snapshots else None
        stores = Stores(self.journal, self.snapshots)
        self.events = EventPublisher(
            Identity(instance, owner), self.outbox, stores, self.config.counts_interval_s, clock
        )

    def reports(self) -> list[Any]:
        """The messages since the last call."""
        return [item.message for item in self.outbox.get(1_000_000, 0.0) if isinstance(item, Report)]

    def write(self) -> None:
        """What the journal's thread does, in this thread."""
        assert self.journal is not None
        self.journal.run_once()

    def close(self) -> None:
        if self.journal:
            self.journal.stop(30.0)

    def __enter__(self) -> Rig:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _fail(reason: str) -> None:
    raise AssertionError(reason)


def main() -> None:
    clock = SystemClock()
    rig = Rig(Path(sys.argv[1]), clock, instance=sys.argv[2])
    assert rig.journal is not None
    rig.journal.start()
    for seq in range(1 << 40):
        rig.events.on_event(crossing(seq))
        (message,) = rig.reports()
        sys.stdout.write(f"{message.number} {message.id}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
