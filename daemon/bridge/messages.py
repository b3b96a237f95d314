"""The bridge's own messages, beside those of the wire: changes of state that last, and losses."""

from __future__ import annotations

from typing import Literal

import msgspec

Subject = Literal["source", "store", "daemon", "recording"]
Condition = Literal["down", "up"]


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """Something is down for as long as `bridge.status` says, or is up again after such a notice.

    Attributes:
        id: unique, and the same when it is told again.
        daemon: its name in the bridge.
        about: a source, a store of recordings, a daemon that does not answer, or the recordings of a source.
        name: of the source or the store; empty for a daemon.
        condition: recordings are `down` where they lack more than `bridge.status.gap_s`.
        since: UTC ns; of `up`, since when it was down.
        at: UTC ns.
        reason: in words; of `up`, why it was down.
    """

    schema: Literal["lookout.notice/1"] = "lookout.notice/1"
    id: str
    daemon: str
    about: Subject
    name: str
    condition: Condition
    since: int
    at: int
    reason: str | None = None


class Loss(msgspec.Struct, frozen=True, kw_only=True):
    """Events or clips that will not come: nobody has them any more, or this target could not be told.

    Attributes:
        id: unique, and the same when it is told again.
        daemon: its name in the bridge; empty where records of several are lost.
        count: their number; null where it is not known. It never is of clips: their beginnings are lost alike.
        first, last: numbers of the events between which they are; null where they are not known.
        at: UTC ns, when it was found.
        cause: wire (not received and not in the journal), journal (the journal lost or removed them), spool_full, disk.
    """

    schema: Literal["lookout.loss/1"] = "lookout.loss/1"
    id: str
    daemon: str
    count: int | None
    first: int | None = None
    last: int | None = None
    at: int
    cause: Literal["wire", "journal", "spool_full", "disk"]

    @property
    def is_of_clips(self) -> bool:
        """The number of events that the wire has lost is known."""
        return self.cause == "wire" and self.count is None and self.first is None
