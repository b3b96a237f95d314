"""The clips of one daemon: those that are ready, and those that the wire has lost."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import structlog

from daemon.bridge.messages import Loss
from daemon.bridge.records import Entry
from daemon.clock import Clock
from lookout.messages import Clip

log = structlog.get_logger(__name__)


class ClipIntake:
    """One thread uses it.

    Attributes:
        count: that were passed on.
    """

    def __init__(self, daemon: str, clock: Clock) -> None:
        self._daemon, self._clock = daemon, clock
        self._next: dict[tuple[str, str], int] = {}  # index, by run of the daemon and source
        self.count = 0

    def take(self, clip: Clip) -> Iterator[Entry]:
        """A message about a clip. No journal has it, so what lies before it and did not come is lost. How many clips
        that are is not known: some messages tell of a beginning, and such a clip is told when it is ready."""
        key = clip.instance, clip.source
        expected = self._next.get(key, clip.index)
        self._next[key] = clip.index + 1
        if clip.index > expected:
            yield self._loss(clip, expected)
        if clip.state == "recording":
            return
        self.count += 1
        id = f"{clip.store}-{clip.id}-{clip.state}"
        yield Entry("clip", self._daemon, clip.source, id, clip.end, msgspec.json.encode(clip))

    def _loss(self, clip: Clip, first: int) -> Entry:
        id = f"{self._daemon}-{clip.instance}-clips-{clip.source}-{first}-{clip.index - 1}"
        now, missing = self._clock.utc_ns(), clip.index - first
        log.warning("messages about clips did not come", daemon=self._daemon, source=clip.source, messages=missing)
        loss = Loss(id=id, daemon=self._daemon, count=None, at=now, cause="wire")
        return Entry("loss", self._daemon, clip.source, id, now, msgspec.json.encode(loss))
