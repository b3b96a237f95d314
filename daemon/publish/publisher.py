"""The publisher thread: results and reports from the bounded outbox become messages, and go to the sinks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence

import structlog

from daemon.lifecycle import ThreadPart
from daemon.pipeline.frames import FrameInfo
from daemon.pipeline.ledger import Ledger
from daemon.pipeline.outbox import Item, Note, Outbox, Report, Result
from daemon.publish.build import BoxEncoder, Boxes, MessageBuilder
from daemon.publish.ownership_fence import Fence, Grants, may_send, owner_of_frame
from daemon.publish.port import Sink
from daemon.redact import scrub
from daemon.system.runtime import Runtime
from daemon.system.watchdog import Pulse
from lookout.messages import (
    Latency,
    Message,
    Metrics,
    Packets,
    PublisherMetrics,
    State,
    Status,
    Store,
    VideoFormat,
    topic,
    watched_source,
)

log = structlog.get_logger(__name__)
_IDLE_S = 0.1
_MAX_ITEMS = 256  # messages at a time
_EVERY_S = 0.002  # live: pause between batches of messages, so that this thread wakes less often
_NEWCOMERS_NS = 20_000_000  # between two polls for new subscriptions


class Publisher(ThreadPart):
    """Sends the items of the outbox in order, and accounts for them.

    Told to end it sends the rest first.

    Args:
        sinks: closed by this thread when it ends.
        boxes: of results.
        build: makes the messages.
        fence: asked before messages are sent.
        answer: gives the message for a new subscription to exactly `packets/<source>/`; None if nobody publishes them.

    Attributes:
        has_subscribers: set while there is a subscription.
    """

    def __init__(
        self,
        sinks: Sequence[Sink],
        outbox: Outbox,
        ledger: Ledger,
        boxes: BoxEncoder,
        build: MessageBuilder,
        fence: Fence,
        answer: Callable[[str], Packets] | None,
        runtime: Runtime,
    ) -> None:
        super().__init__("publisher", runtime)
        self._sinks, self._outbox, self._ledger = sinks, outbox, ledger
        self._boxes, self._build = boxes, build
        self._fence, self._answer = fence, answer
        self._looked_ns = 0  # for newcomers
        self._sending = runtime.ranges.named(f"{self.name} batch")
        self.has_subscribers = threading.Event()
        self._forgotten: list[str] = []  # since the last flush
        self._fenced = 0  # reports
        self._unsent: set[bytes] = set()  # topics of statuses

    def metrics(self) -> PublisherMetrics:
        subscriptions = sum(sink.subscriptions for sink in self._sinks)
        return PublisherMetrics(len(self._outbox), self._outbox.limit, subscriptions, self._fenced)

    def announcement(
        self,
        source: str,
        session: str | None,
        state: State,
        reason: str | None = None,
        retry_in_s: float | None = None,
        format: VideoFormat | None = None,
    ) -> Callable[[], None]:
        """A function that queues a status message and logs it; any thread may call it. The status is of now, and so is
        its owner."""
        status = Status(
            instance=self._build.instance,
            source=source,
            session=session,
            index=0,
            at=self._clock.utc_ns(),
            state=state,
            reason=scrub(reason) if reason else None,
            retry_in_s=None if retry_in_s is None else round(retry_in_s, 3),
            format=format,
            owner=self._fence.owner(source),
        )

        def tell() -> None:
            level = log.warning if state in ("down", "stalled") else log.info
            fields = {"retry_in_s": status.retry_in_s, "reason": reason}
            level(
                f"source {state}", source=source, **{key: value for key, value in fields.items() if value is not None}
            )
            self._outbox.report(Report(topic("status", source), status))

        return tell

    def note(self, source: str, text: str | None) -> None:
        """Say something of a source in its status, while it is up; any thread may call it."""
        self._outbox.report(Note(topic("status", source), text))

    def forget(self, source: str) -> None:
        """Forget the status of a removed source."""
        self._outbox.report(Report(topic("status", source), None, source))

    def work(self, pulse: Pulse) -> None:
        while not self.ending.is_set:
            if self.run_once(_IDLE_S) and not self._outbox.lossless:
                self._clock.wait(self.ending, _EVERY_S)
            pulse.beat()
        while self.run_once(0.0):
            pulse.beat()  # the rest

    def run_once(self, timeout_s: float) -> int:
        """Send the waiting items; returns their number."""
        items = self._outbox.get(_MAX_ITEMS, timeout_s)
        now = self._clock.monotonic_ns()
        if not items or now - self._looked_ns >= _NEWCOMERS_NS:
            self._looked_ns = now
            self._look_for_newcomers()
        if items:
            with self._sending:
                self._send_items(items)
        for sink in self._sinks:
            sink.flush()
        while self._forgotten:
            self._fence.on_forgotten(self._forgotten.pop())
        return len(items)

    def _send_items(self, items: Sequence[Item]) -> None:
        """Send the items of the outbox's last `get`."""
        grants = self._fence.grants()
        boxes = self._boxes.boxes_of([item for item in items if isinstance(item, Result)])
        sent: list[tuple[int, FrameInfo, Latency]] = []
        try:
            for item in self._outbox.sending():
                if isinstance(item, Result):
                    latency = self._send_result(item, boxes, grants)
                    if latency is not None:
                        frame = item.frame
                        sent.append((self._ledger.published(frame.account or frame.source), frame, latency))
                elif isinstance(item, Note):
                    self._send_note(item, grants)
                elif (
                    grants is None
                    or item.message is None
                    or isinstance(item.message, Metrics | Store)
                    or may_send(grants, item.message)
                ):
                    self._send_report(item)
                else:
                    self._keep_unsent(item, item.message)
        finally:
            self._ledger.add_rows(sent)

    def _send_report(self, report: Report) -> None:
        name = report.topic
        if self._unsent:
            self._unsent.discard(name)
        if report.message is None:
            self._forgotten.append(report.source)
        if (message := self._build.report(report)) is not None:
            for sink in self._sinks:
                sink.send(name, message)

    def _send_note(self, note: Note, grants: Grants | None) -> None:
        """Send the last status of a source again, if it is up."""
        status = self._build.noted(note)
        if status is not None and may_send(grants, status):
            self._send(note.topic, self._build.numbered(note.topic, status))

    def _keep_unsent(self, report: Report, message: Message) -> None:
        """Count a report that may not be sent. A status is sent when its source may be published for again."""
        self._fenced += 1
        if isinstance(message, Status):
            self._build.hold_back(report.topic, message)
            self._unsent.add(report.topic)

    def _send_again(self, grants: Grants | None) -> None:
        for name, message in self._build.last_statuses(self._unsent, grants):
            self._send(name, message)
            self._unsent.discard(name)

    def _send_result(self, result: Result, boxes: Iterator[Boxes], grants: Grants | None) -> Latency | None:
        """Send a result with the next boxes; returns its latency, or None if it is fenced. A result that breaks the
        publisher is counted as dropped."""
        try:
            found = next(boxes)
            owner = None if grants is None else owner_of_frame(grants, result.frame)
            if owner is not None or grants is None:
                name, message = self._build.detections(result, found, owner)
                for sink in self._sinks:
                    sink.send(name, message)
                return message.latency
        except Exception:
            self._ledger.drop(result.frame, "shutdown")
            raise
        self._ledger.drop(result.frame, "fenced")
        return None

    def _send(self, name: bytes, message: Message) -> None:
        for sink in self._sinks:
            sink.send(name, message)

    def _look_for_newcomers(self) -> None:
        """Repeat the last status of each source with a new subscriber."""
        prefixes = {prefix for sink in self._sinks for prefix in sink.newcomers()}
        if any(sink.subscriptions for sink in self._sinks):
            self.has_subscribers.set()
        else:
            self.has_subscribers.clear()
        if self._unsent:
            self._send_again(self._fence.grants())
        if prefixes:
            for name, message in self._build.last_statuses(prefixes, self._fence.grants()):
                self._send(name, message)
            for prefix in prefixes:
                source = watched_source(prefix)
                if source is not None and self._answer is not None:
                    self._send(prefix, self._build.numbered(prefix, self._answer(source)))

    def close(self) -> None:
        for sink in self._sinks:
            sink.close()
