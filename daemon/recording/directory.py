"""All rings of a daemon."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Literal

import structlog

from daemon.capture.sinks import PacketTape
from daemon.recording.ring import Ring
from daemon.recording.ring_layout import RingError
from daemon.recording.tap import RingTape
from daemon.sources.port import PacketInfo

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

log = structlog.get_logger(__name__)
_PAST_SESSIONS = 16
Feed = Literal["capture", "stream"]
"""The writer of a source's rings: its capture, or the process of streams that are recorded alone."""
Rings = Mapping[str, tuple[Ring, ...]]
"""By source, one for each of its stores."""


class RingDirectory:
    """Makes rings, and says where they are needed. Any thread may use it.

    It implements `daemon.capture.sinks.RecordedPackets`: captures in the daemon's own process put their packets here.
    A ring that is dropped exists until nobody uses it.

    Attributes:
        rings: that captures write into; another mapping whenever they change.
        stream_rings: likewise, those of the process of streams.
    """

    make_tape: Callable[[], PacketTape] | None = RingTape

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._all: dict[tuple[str, str], Ring] = {}  # by source and store
        self._feeds: dict[str, Feed] = {}
        self._tapes: dict[str, RingTape] = {}  # of captures in this process
        self._past: dict[str, deque[str]] = {}  # sessions of such captures that others have followed
        self._broken: set[str] = set()  # sources whose rings cannot be used here, which is told once
        self.rings: Rings = {}
        self.stream_rings: Rings = {}

    def keep(self, source: str, store: str, size: int, feed: Feed = "capture") -> Ring:
        """The ring of a source and a store, which is made if there is none.

        Args:
            size: bytes of a new one, a multiple of `ring.UNIT_BYTES`; one that exists stays as it is.
            feed: of all rings of the source, from now on.

        Raises:
            OSError: no memory or no descriptor for it.
        """
        with self._lock:
            ring = self._all.get((source, store))
            if ring is None:
                ring = self._all[source, store] = Ring(f"recording {source} {store}", size)
            elif self._feeds[source] == feed:
                return ring
            self._feeds[source] = feed
            self._tell_locked(source)
            return ring

    def drop(self, source: str, store: str | None = None) -> None:
        """Forget the ring of a source and a store, or all of a source; what waits in it can still be read."""
        with self._lock:
            for key in [key for key in self._all if key[0] == source and store in (key[1], None)]:
                del self._all[key]
            self._tell_locked(source)

    def ring(self, source: str, store: str) -> Ring | None:
        return self._all.get((source, store))

    def rings_of(self, source: str) -> tuple[Ring, ...]:
        """All of a source, whatever feeds them."""
        return self.rings.get(source) or self.stream_rings.get(source, ())

    def of_store(self, store: str) -> Mapping[str, Ring]:
        """The rings of a store, by source."""
        with self._lock:
            return {source: ring for (source, own), ring in self._all.items() if own == store}

    def close(self) -> None:
        """Forget all, and close them here."""
        with self._lock:
            rings = [*self._all.values()]
        for source in [*self._feeds]:
            self.drop(source)
        for ring in rings:
            ring.close()

    # --- for captures in this process --------------------------------------------------------------------------------

    def is_recorded(self, source: str) -> bool:
        return source in self.rings

    def record(self, source: str, session: str, info: PacketInfo, data: ReadableBuffer) -> None:
        tape = self._tapes.get(source)
        if tape is None or tape.session != session:
            tape = self._begun(source, session)
        if tape:
            tape.put(session, info, data)

    def _begun(self, source: str, session: str) -> RingTape | None:
        """The tape of a connection; None if another has followed it."""
        with self._lock:
            if source not in self.rings or source in self._broken:
                return None
            if source not in self._tapes:
                self._use_locked(source, RingTape())
            tape = self._tapes.get(source)
            past = self._past.setdefault(source, deque(maxlen=_PAST_SESSIONS))
            if tape is None or session in past:
                return None
            past.append(tape.session)
            tape.begin(session)
            return tape

    # -----------------------------------------------------------------------------------------------------------------

    def _tell_locked(self, source: str) -> None:
        """The rings of a source have changed."""
        rings = tuple(ring for (own, _), ring in sorted(self._all.items()) if own == source)
        if not rings:
            self._feeds.pop(source, None)
            self._past.pop(source, None)
        feed = self._feeds.get(source)
        self.rings = _with(self.rings, source, rings if feed == "capture" else ())
        self.stream_rings = _with(self.stream_rings, source, rings if feed == "stream" else ())
        self._broken.discard(source)
        if tape := self._tapes.get(source):
            self._use_locked(source, tape)

    def _use_locked(self, source: str, tape: RingTape) -> None:
        """Let a tape have the rings of captures of a source."""
        rings = self.rings.get(source, ())
        try:
            tape.use([ring.fd for ring in rings])
        except (OSError, RingError) as error:
            log.error("packets cannot be recorded", source=source, reason=str(error))
            self._broken.add(source)
            rings = ()
            tape.close()
        if rings:
            self._tapes[source] = tape
        else:
            self._tapes.pop(source, None)


def _with(rings: Rings, source: str, own: tuple[Ring, ...]) -> Rings:
    """The same mapping if nothing changes."""
    if rings.get(source, ()) == own:
        return rings
    return {**{other: theirs for other, theirs in rings.items() if other != source}, **({source: own} if own else {})}
