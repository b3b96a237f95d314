"""Frames, as they travel from a capture thread to a lane."""

from __future__ import annotations

import msgspec

from detectors.port import Image
from lookout.messages import FrameClock


class FrameInfo(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Everything about a frame but its pixels.

    Attributes:
        source: id of the source.
        session: id of the connection it came over.
        seq: counter of the source's captured frames, from 0, over all sessions.
        pts: presentation time on the source's own timeline, ns, or None.
        captured_ns: monotonic, taken when the decoded picture was in hand.
        captured_at: UTC, ns.
        clock: what captured_at is.
        decode: ns spent decoding it and bringing it into the form lanes accept.
        width, height: pixels, upright.
        pixel_aspect: width of a pixel over its height.
        lateness: after its due time in a recording, or behind the camera's fastest frames, ns; 0 if unknown.
        corrupt: the decoder found errors in it.
        account: of the ledger, where there are several models; empty for that of the source itself.
    """

    source: str
    session: str
    seq: int
    pts: int | None
    captured_ns: int
    captured_at: int
    clock: FrameClock
    decode: int
    width: int
    height: int
    lateness: int = 0
    pixel_aspect: float = 1.0
    corrupt: bool = False
    account: str = ""


class Frame(msgspec.Struct, frozen=True, gc=False):
    """A captured picture and its metadata."""

    info: FrameInfo
    image: Image
