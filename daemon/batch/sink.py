"""The sink that sorts messages by clip, in the publisher's thread, and tells when a clip has ended."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from daemon.batch.folder import FolderError
from daemon.batch.writer import IncompleteError, ResultWriter
from daemon.pipeline.ledger import Counts
from lookout.messages import Detections, Event, Message, Status, VideoFormat


@dataclass(frozen=True)
class Ended:
    """A clip is over.

    Attributes:
        source: id of the source that played it.
        fault: why there is no result; None if the writer has written all of it.
        is_fatal: no other result can be written either.
    """

    source: str
    fault: str | None = None
    is_fatal: bool = False


class ResultSink:
    """Implements `daemon.publish.port.Sink`.

    Args:
        wake: called when a clip has ended.
        counts_of: gives the accounts of a source, by model.
    """

    subscriptions = 0

    def __init__(self, wake: Callable[[], None], counts_of: Callable[[str], Mapping[str, Counts]]) -> None:
        self._wake, self._counts_of = wake, counts_of
        self._writers: dict[str, ResultWriter] = {}
        self._formats: dict[str, VideoFormat] = {}
        self._ended: deque[Ended] = deque()
        self._lock = threading.Lock()

    def expect(self, source: str, writer: ResultWriter) -> None:
        """Write the messages of a source from now on."""
        with self._lock:
            self._writers[source] = writer

    def forget(self, source: str) -> None:
        """Write no more messages of a source; returns when none is being written."""
        with self._lock:
            self._writers.pop(source, None)
            self._formats.pop(source, None)

    def take_ended(self) -> list[Ended]:
        """The clips that have ended since the last call."""
        ended = []
        while self._ended:
            ended.append(self._ended.popleft())
        return ended

    def send(self, topic: bytes, message: Message) -> None:  # noqa: ARG002 - the message names its source
        if not isinstance(message, Detections | Event | Status):
            return
        with self._lock:
            writer = self._writers.get(message.source)
            if writer is None:
                return
            try:
                self._write(writer, message)
            except FolderError as error:
                self._end(Ended(message.source, str(error), is_fatal=True))

    def flush(self) -> None:
        """Files are flushed when they are whole."""

    def newcomers(self) -> Collection[bytes]:
        return ()

    def close(self) -> None:
        """Writers belong to the worker."""

    def _write(self, writer: ResultWriter, message: Detections | Event | Status) -> None:
        if isinstance(message, Detections):
            writer.detections(message)
        elif isinstance(message, Event):
            writer.event(message)
        elif message.state == "up" and message.format is not None:
            self._formats[message.source] = message.format
        elif message.state == "down":
            self._end(Ended(message.source, message.reason or "it cannot be played"))
        elif message.state == "ended":
            self._end(self._finished(writer, message))

    def _finished(self, writer: ResultWriter, last: Status) -> Ended:
        try:
            writer.finish(last.reason, self._formats.get(last.source), self._counts_of(last.source))
        except IncompleteError as error:
            return Ended(last.source, str(error))
        return Ended(last.source)

    def _end(self, ended: Ended) -> None:
        self._writers.pop(ended.source, None)
        self._formats.pop(ended.source, None)
        self._ended.append(ended)
        self._wake()
