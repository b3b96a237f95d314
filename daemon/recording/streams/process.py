"""In the daemon's process: the process of streams that are recorded alone, and its successor when it dies."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from daemon.capture.processes.protocol import NoRecord, Record
from daemon.capture.processes.supervised import Link, SupervisedProcess
from daemon.config.sources import AvConfig
from daemon.recording.directory import RingDirectory
from daemon.recording.ring import Ring
from daemon.recording.streams.main import StreamsOrder
from daemon.recording.streams.protocol import Begin, End, Failed, FromStreams, Stop, StreamChanged
from daemon.redact import Url
from daemon.system.runtime import Runtime
from lookout.messages import State

_GRACE_S = 0.3  # for its end, in a stop


class StreamState(NamedTuple):
    """A stream's state.

    Attributes:
        session: empty before its first connection.
        state, reason, retry_in_s: as those of sources.
        utc: since when, ns.
    """

    source: str
    session: str
    state: State
    reason: str | None
    retry_in_s: float | None
    utc: int


def stream_of(source: AvConfig, url: Url) -> AvConfig:
    """The stream of `record.url`: as the source is, with its user name and password."""
    return AvConfig(
        id=source.id, url=url, user=source.user, password=source.password, kind="live", transport=source.transport,
        open_timeout_s=source.open_timeout_s, read_timeout_s=source.read_timeout_s, rotate=source.rotate,
        options=source.options,
    )  # fmt: skip


class StreamsProcess(SupervisedProcess):
    """Keeps the streams connected that are wanted, in a process that is started for the first of them.

    Their packets go into the rings of `RingDirectory.stream_rings`.

    Args:
        tell: called with each state of each stream, by the thread of this part.
    """

    def __init__(
        self, directory: RingDirectory, order: StreamsOrder, tell: Callable[[StreamState], None], runtime: Runtime
    ) -> None:
        super().__init__("record-streams", "daemon.recording.streams.main", FromStreams, _GRACE_S, runtime)
        self._directory, self._order, self._tell = directory, order, tell
        self._wanted: Mapping[str, AvConfig] = {}
        self._next_numbers = itertools.count()
        # As the process was told, by source.
        self._numbers: dict[str, int] = {}
        self._configs: dict[str, AvConfig] = {}
        self._rings: dict[str, tuple[Ring, ...]] = {}

    def want(self, streams: Mapping[str, AvConfig]) -> None:
        """Have these streams, by source, and no others; from any thread. One with another configuration connects
        anew."""
        self._wanted = dict(streams)
        self.ring_bell()

    @property
    def is_wanted(self) -> bool:
        return bool(self._wanted)

    @property
    def order(self) -> StreamsOrder:
        return self._order

    @property
    def farewell(self) -> Stop:
        return Stop()

    def on_begun(self, link: Link) -> None:  # noqa: ARG002 - it is told at the next turn
        self._numbers, self._configs, self._rings = {}, {}, {}

    def on_turn(self, link: Link, now_ns: int) -> None:
        self._tell_changes(link)
        limit = self._limits.worker_silence if link.has_spoken else self._limits.worker_start
        if now_ns - link.heard_ns > limit * 1e9:
            self.lose(link, f"no sign of life for {limit:.0f} s")

    def on_message(self, link: Link, message: Any) -> None:
        if isinstance(message, Failed):
            link.blame(message.reason)
        elif isinstance(message, StreamChanged):
            source = next((source for source, number in self._numbers.items() if number == message.stream), None)
            if source is not None:
                self._tell(
                    StreamState(source, message.session, message.state, message.reason, message.retry_in_s, message.utc)
                )

    def on_lost(self, reason: str, retry_in_s: float) -> None:
        for source in self._configs or self._wanted:
            self._tell(StreamState(source, "", "down", reason, retry_in_s, self._clock.utc_ns()))

    def _tell_changes(self, link: Link) -> None:
        wanted, rings = self._wanted, self._directory.stream_rings
        for source in [source for source, config in self._configs.items() if wanted.get(source) != config]:
            link.put(End(self._numbers.pop(source)))
            del self._configs[source]
            self._rings.pop(source, None)
        for source, config in wanted.items():
            if source not in self._configs:
                self._numbers[source], self._configs[source] = next(self._next_numbers), config
                link.put(Begin(self._numbers[source], pickle.dumps(config)))
            number, own = self._numbers[source], rings.get(source, ())
            if own == self._rings.get(source, ()):
                continue
            self._rings[source] = own
            record = Record(number, len(own), pickle.dumps(self._directory.make_tape))
            for ring in own:
                link.put(record, ring)
            if not own:
                link.put(NoRecord(number))
