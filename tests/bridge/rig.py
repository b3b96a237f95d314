"""A bridge with targets that a test holds in its hand."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import msgspec

from daemon.bridge.bridge import Bridge
from daemon.bridge.port import AwayError, Connection
from daemon.bridge.records import Delivery, Figure, Record
from daemon.bridge.report import TargetReport
from daemon.bridge.states import StateBoard
from daemon.bridge.targets.opening import TargetContext
from daemon.clock import Clock, SystemClock
from daemon.config.bridge import BridgeConfig, check_bridge
from daemon.config.http import HttpConfig
from daemon.config.targets import TargetConfig
from daemon.config.text import hook
from daemon.peers.addresses import DaemonAddress
from daemon.redact import Secret
from daemon.validation import convert
from lookout.messages import Event
from tests.bridge.publisher import TOKEN, EventSource
from tests.support.daemon import PATIENCE_S


class Receiver:
    """Implements the port: what a broker would have, and how it behaves.

    Attributes:
        records: that were confirmed, in order, repeated ones as well.
        away: refuses connections and deliveries with this reason.
        refuse: a function that says why a record is refused, or None.
        is_deaf: what hangs is not ended by `close`.
        hung_in: the thread whose delivery hangs.
        interrupted_by: other threads that have closed its connection meanwhile.
        takes: deliveries that are confirmed before the connection breaks; None for all.
    """

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.deliveries: list[Delivery] = []
        self.figures: list[Figure] = []
        self.connections = 0
        self.hung_in: int | None = None
        self.interrupted_by: list[int] = []
        self.away: str | None = None
        self.refuse: Callable[[Record], str | None] = lambda _: None
        self.takes: int | None = None
        self.hangs, self.is_deaf = threading.Event(), False

    @property
    def numbers(self) -> list[int]:
        """Of the events, in order."""
        return [row.message.number for row in self.records if isinstance(row.message, Event)]

    def connect(self) -> Connection:
        if self.away is not None:
            raise AwayError(self.away)
        self.connections += 1
        return _Open(self)


class DigestReceiver(Receiver):
    """One that takes many records as one message.

    Attributes:
        digests: the records of each.
    """

    def __init__(self) -> None:
        super().__init__()
        self.digests: list[list[Record]] = []

    def connect(self) -> Connection:
        super().connect()
        return _Digesting(self)


class _Open:
    def __init__(self, receiver: Receiver) -> None:
        self._to, self._closed = receiver, threading.Event()

    def deliver(self, batch: Sequence[Delivery]) -> Sequence[str | None]:
        settled: list[str | None] = []
        for delivery in batch:
            self._to.hung_in = threading.get_ident() if self._to.hangs.is_set() else None
            while self._to.hangs.is_set() and (not self._closed.wait(0.01) or self._to.is_deaf):
                self._closed.wait(0.01)
            if self._closed.is_set() and not self._to.is_deaf:
                raise AwayError("closed", settled=settled)
            if self._to.away is not None or self._to.takes == 0:
                self._to.takes = None
                raise AwayError(self._to.away or "it broke", settled=settled)
            reason = self._to.refuse(delivery.record)
            if reason is None:
                self._to.records.append(delivery.record)
                self._to.deliveries.append(delivery)
            if self._to.takes is not None:
                self._to.takes -= 1
            settled.append(reason)
        return settled

    def show(self, figures: Sequence[Figure]) -> int:
        self._to.figures.extend(figures)
        return len(figures)

    def tend(self, states: StateBoard) -> None:
        if self._to.away is not None:
            raise AwayError(self._to.away)

    def close(self) -> None:
        if self._to.hangs.is_set() and self._to.hung_in not in (None, threading.get_ident()):
            self._to.interrupted_by.append(threading.get_ident())
        self._closed.set()


class _Digesting(_Open):
    def __init__(self, receiver: DigestReceiver) -> None:
        super().__init__(receiver)
        self._digests = receiver.digests

    def digest(self, batch: Sequence[Delivery]) -> str | None:
        self._digests.append([delivery.record for delivery in batch])
        return None


class Rig:
    """
    Args:
        targets: rows of `bridge.targets`; each is a Receiver in truth, whatever its type says.
    """

    def __init__(
        self,
        folder: Path,
        source: EventSource,
        targets: Sequence[dict[str, Any]],
        clock: Clock | None = None,
        **keys: Any,
    ) -> None:
        self.receivers: dict[str, Receiver] = {}
        self.folder, self._source, self._clock, self._keys = folder, source, clock or SystemClock(), keys
        self.config = self.config_of(targets)
        self.bridge = self._made()

    def config_of(self, targets: Sequence[dict[str, Any]]) -> BridgeConfig:
        rows = [{"type": "file", "path": "unused", **row} for row in targets]
        raw = {"spool": str(self.folder / "spool.sqlite"), "targets": rows, **self._keys}
        config: BridgeConfig = convert(raw, BridgeConfig, hook)
        check_bridge(config, HttpConfig())
        for target in config.targets:
            self.receivers.setdefault(target.name, Receiver())
        return config

    def __enter__(self) -> Rig:
        self.bridge.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bridge.stop()

    def restart(self) -> None:
        """Another bridge on the same spool."""
        self.bridge.stop()
        self.wait_until(lambda: not self.bridge._spool._thread.is_alive())  # a busy disk takes longer
        self.bridge = self._made()
        self.bridge.start()

    def account(self, name: str) -> TargetReport:
        """The account of a target, which must add up."""
        (found,) = [row for row in self.bridge.report().targets if row.name == name]
        told = found.delivered + found.filtered + found.thinned + sum(found.dropped.values()) + found.spooled
        assert found.received == told, found
        return found

    def wait_until(self, condition: Callable[[], object]) -> None:
        until = monotonic() + PATIENCE_S
        while not condition():
            assert monotonic() < until, msgspec.to_builtins(self.bridge.report())
            sleep(0.01)

    def is_following(self) -> bool:
        """Whether the next event is not before the bridge's time."""
        feed = self.bridge.report().feeds[0]
        return feed.state == "up" and self.bridge._feeds[0]._intake.place is not None

    def _made(self) -> Bridge:
        address = DaemonAddress("here", self._source.endpoint, self._source.http, Secret(TOKEN))
        return Bridge(self.config, [address], self._clock, self._connect)

    def _connect(self, target: TargetConfig, context: TargetContext) -> Connection:
        return self.receivers[target.name].connect()
