"""A frame that is traced, as it waits to be sent."""

from __future__ import annotations

import os
from hashlib import blake2b
from struct import Struct
from typing import Literal

import msgspec

from daemon.pipeline.outbox import Served, Work
from detectors.port import StageTimes
from lookout.messages import Latency

Reason = Literal["sampled", "slow", "dropped"]
_PACK = Struct("qqq?").pack
_LAST_ID = (1 << 64) - 1


class TraceIds(msgspec.Struct, frozen=True, gc=False):
    """Attributes:
    trace: hexadecimal, 32 digits.
    first: number of the first span; the others follow it.
    """

    trace: str
    first: int

    def span(self, number: int) -> str:
        """The id of a span of the trace, hexadecimal, 16 digits; never all zeros."""
        return f"{(self.first + number) % _LAST_ID + 1:016x}"


class IdMaker:
    """Ids that nobody can guess, one for each frame and fate of an account."""

    def __init__(self) -> None:
        self._key = os.urandom(32)

    def ids(self, account: str, seq: int, captured_ns: int, *, is_sent: bool) -> TraceIds:
        text = account.encode() + _PACK(len(account), seq, captured_ns, is_sent)
        digest = blake2b(text, digest_size=24, key=self._key).digest()
        return TraceIds(digest[:16].hex(), int.from_bytes(digest[16:], "big"))


class SentFrame(msgspec.Struct, frozen=True, gc=False):
    """A frame whose message is sent, with its times by the monotonic clock, ns.

    Attributes:
        offset_ns: added to monotonic times gives UTC.
        taken: a lane has taken it.
        work: of its batch.
    """

    ids: TraceIds
    reason: Reason
    offset_ns: int
    source: str
    session: str
    seq: int
    captured_ns: int
    taken: int
    times: StageTimes
    latency: Latency
    served: Served
    work: Work | None


class LostFrame(msgspec.Struct, frozen=True, gc=False):
    """A frame that was dropped.

    Attributes:
        offset_ns: added to monotonic times gives UTC.
        model: whose account it is in, where there are several.
        captured_ns: monotonic; when it was found where that is not known.
        decode: ns.
        cause: of `daemon.pipeline.drop_causes`.
    """

    ids: TraceIds
    offset_ns: int
    source: str
    model: str
    seq: int
    captured_ns: int
    decode: int
    cause: str


Record = SentFrame | LostFrame
