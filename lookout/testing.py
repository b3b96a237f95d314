"""For the tests of a subscriber: a publisher of made-up messages, and a subscriber that waits. Neither needs a daemon.

with Publisher() as publisher, WaitingSubscriber(publisher.endpoint) as subscriber:
    publisher.source("door").detections([Detection("person", 0, 0.9, (10.0, 20.0, 40.0, 90.0))])
    assert subscriber.wait_for(lambda message: isinstance(message, Detections)).source == "door"
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from time import monotonic
from typing import Any, TypeVar

import zmq
from msgspec.structs import replace

import lookout.messages as wire
from lookout.client import Subscriber

_BEGIN = 1_800_000_000_000_000_000  # UTC of the first frame, ns
_FRAME_NS = 40_000_000
_FORMAT = wire.VideoFormat("h264", 1280, 720, 25.0, "h264")
_MODEL = wire.Model("demo", "0" * 12, "fp32", "cpu")
_LATENCY = wire.Latency(200_000, 100_000, 400_000, 2_400_000, 60_000, 3_200_000)
M = TypeVar("M", bound=wire.Message)


class Publisher:
    """Sends messages as a daemon does. The first one waits for a subscriber.

    Args:
        timeout_s: a subscriber must have come by then.

    Attributes:
        endpoint: for the subscriber.
        instance: id of the run, as in the messages.
    """

    def __init__(self, *, encoding: wire.Encoding = "json", timeout_s: float = 10.0) -> None:
        self._timeout_s, self._encode = timeout_s, wire.encoder(encoding)
        self._runs, self._index = count(1), Counter[bytes]()  # the index by topic
        self._sources: dict[str, Source] = {}
        self._subscriptions: set[bytes] = set()
        self._is_losing = False
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.XPUB)
        self.endpoint = f"tcp://127.0.0.1:{self._socket.bind_to_random_port('tcp://127.0.0.1')}"
        self.restart()

    def __enter__(self) -> Publisher:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def source(self, id: str) -> Source:
        """The source of this id, which is made where there is none yet."""
        return self._sources.setdefault(id, Source(self, id))

    def send(self, message: M) -> M:
        """Send a message with this run's `instance` and the next `index` of its topic; returns it as it was sent.

        Raises:
            TimeoutError: nobody has subscribed.
        """
        name = wire.topic(wire.kind_of(message), getattr(message, "source", getattr(message, "store", "")))
        message = replace(message, instance=self.instance, index=self._index[name])
        self._index[name] += 1
        if not self._is_losing:
            self.send_raw(name, self._encode(message))
        return message

    def send_raw(self, name: bytes, payload: bytes) -> None:
        """Send any bytes on a topic, such as a malformed message.

        Raises:
            TimeoutError: nobody has subscribed.
        """
        if not self._subscriptions:
            self.wait_for_subscription()
        self._socket.send_multipart([name, payload])

    def wait_for_subscription(self, name: bytes = b"") -> None:
        """Wait for a subscription that covers a topic, or for any.

        Raises:
            TimeoutError: there is none in time.
        """
        until = monotonic() + self._timeout_s
        while not any(name.startswith(known) or not name for known in self._subscriptions):
            if not self._socket.poll(max(0, round((until - monotonic()) * 1000))):
                raise TimeoutError(f"nobody has subscribed to {name.decode() or 'anything'} in {self._timeout_s:g} s")
            request = self._socket.recv()
            (self._subscriptions.add if request[0] else self._subscriptions.discard)(request[1:])

    @contextmanager
    def losing(self) -> Iterator[None]:
        """Messages that are sent within do not arrive: the subscriber sees a gap in `index`."""
        self._is_losing = True
        try:
            yield
        finally:
            self._is_losing = False

    def restart(self) -> None:
        """Go on as a daemon that was started anew: another `instance`, and all numbers from 0."""
        self.instance = f"{next(self._runs):08x}"
        self._index.clear()
        for source in self._sources.values():
            source.restart()

    def close(self) -> None:
        self._context.destroy(linger=0)


class Source:
    """A source of a publisher. A message has the numbers that follow from those before; `changes` are other fields.

    Attributes:
        session: id of the connection, as in the messages.
        seq: number of the next frame.
    """

    def __init__(self, publisher: Publisher, id: str) -> None:
        self.id, self._publisher = id, publisher
        self._sessions, self._events = count(1), count(1)
        self.restart()

    def restart(self) -> None:
        """Begin anew, as in another run of a daemon."""
        self.session, self.seq, self._dropped = f"{next(self._sessions):08x}", 0, wire.Dropped()

    def detections(self, boxes: Sequence[wire.Detection] = (), **changes: Any) -> wire.Detections:
        """Send the next frame, 40 ms after the one before."""
        pts, clock, size = self.seq * _FRAME_NS, wire.FrameClock("arrival"), wire.ImageSize(1280, 720)
        fields = self._common() | {"session": self.session, "seq": self.seq, "pts": pts, "captured_at": _BEGIN + pts}
        fields |= {"clock": clock, "image": size, "model": _MODEL, "latency": _LATENCY, "dropped": self._dropped}
        self.seq += 1
        return self._publisher.send(wire.Detections(**{"detections": list(boxes), **fields, **changes}))

    def drop(self, cause: str = "superseded") -> None:
        """Drop the next frame: a gap in `seq`, and one more in `dropped` of the messages that follow."""
        self._dropped = replace(self._dropped, **{cause: getattr(self._dropped, cause) + 1})
        self.seq += 1

    def status(self, state: wire.State, **changes: Any) -> wire.Status:
        """Send a state; `up` has a format."""
        fields = self._common() | {"session": self.session, "at": _BEGIN + self.seq * _FRAME_NS, "state": state}
        return self._publisher.send(wire.Status(**fields | {"format": _FORMAT if state == "up" else None} | changes))

    def reconnect(self, reason: str = "the connection broke") -> None:
        """Lose the connection and get another one: three states, with a new `session` from the second on."""
        self.status("down", reason=reason, retry_in_s=0.5)
        self.session = f"{next(self._sessions):08x}"
        self.status("connecting")
        self.status("up")

    def event(self, kind: wire.EventKind, phase: wire.EventPhase, **changes: Any) -> wire.Event:
        """Send an event of the latest frame."""
        number, seq = next(self._events), max(0, self.seq - 1)
        id, pts = f"{self._publisher.instance}-{self.id}-{number}", seq * _FRAME_NS
        fields = self._common() | {"session": self.session, "id": id, "number": number, "kind": kind, "phase": phase}
        fields |= {"seq": seq, "pts": pts, "at": _BEGIN + pts, "confirmed_seq": seq, "confirmed_at": _BEGIN + pts}
        return self._publisher.send(wire.Event(**fields | changes))

    def counts(self, totals: Sequence[wire.Total] = (), **changes: Any) -> wire.Counts:
        """Send the numbers of events."""
        at = _BEGIN + self.seq * _FRAME_NS
        fields = self._common() | {"at": at, "since": _BEGIN, "totals": list(totals), "occupancy": []}
        return self._publisher.send(wire.Counts(**fields | changes))

    def _common(self) -> dict[str, Any]:
        return {"source": self.id, "instance": "", "index": 0}  # the publisher writes both


class WaitingSubscriber(Subscriber):
    """A subscriber whose waits have an end: a test that gets too little fails, and says how much came."""

    def wait_for(self, predicate: Callable[[wire.Message], bool], timeout_s: float = 10.0) -> Any:
        """The next message that the predicate takes; those before it are left out. TimeoutError if none comes."""
        until, others = monotonic() + timeout_s, 0
        while (message := self.receive(max(0.0, until - monotonic()))) is not None:
            if predicate(message):
                return message
            others += 1
        raise TimeoutError(f"no such message within {timeout_s:g} s, and {others} others")

    def collect(self, number: int, timeout_s: float = 10.0) -> list[wire.Message]:
        """So many messages. TimeoutError if fewer come."""
        until, found = monotonic() + timeout_s, list[wire.Message]()
        while len(found) < number:
            if (message := self.receive(max(0.0, until - monotonic()))) is None:
                raise TimeoutError(f"{len(found)} messages of {number} within {timeout_s:g} s")
            found.append(message)
        return found
