"""The answer: events as rules find them, and the times in which they could see nothing, in their order."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from daemon.recording.causes import Cause
from lookout import messages

Blind = Literal["dropped", "boxes_lost", "no_tracking", "no_tracks", "damaged", "other_video", "no_frames", "not_yet"]
"""Causes beside those of gaps of the recording."""
MEANINGS: Final[dict[str, str]] = {
    "dropped": "frames were dropped before they were analysed",
    "boxes_lost": "frames were analysed, and their boxes did not reach the disk",
    "no_tracking": "the source was not tracked",
    "no_tracks": "there are no boxes beside the video",
    "damaged": "the boxes were changed, or cannot be read",
    "other_video": "the boxes belong to another video",
    "no_frames": "no frame was analysed",
    "not_yet": "it is not written yet",
}


class Picture(msgspec.Struct, frozen=True, kw_only=True):
    """Where the picture of an event is.

    Attributes:
        file: id of the recording.
        at: UTC ns on the timeline of recordings.
        begin, end: UTC ns, a clip around the event.
        same_stream: it is the picture that was analysed; otherwise the one of that time in another stream.
    """

    file: str
    at: int
    begin: int = msgspec.field(name="from")
    end: int = msgspec.field(name="to")
    same_stream: bool


class PastEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event as it would have been sent, by the names of `lookout.messages.Event`.

    Attributes:
        instance: of the daemon that found the boxes; as far as it is known.
        partial: the track is older than what was read, or boxes of it were lost: the event may lack what was before,
            such as the time of a stay.
        picture: None where nothing is recorded.
    """

    instance: str
    source: str
    session: str
    kind: messages.EventKind
    phase: messages.EventPhase
    seq: int
    pts: int | None
    at: int
    confirmed_seq: int
    confirmed_at: int
    rule: str | None
    direction: messages.Direction | None
    track: int | None
    label: str | None
    box: tuple[float, float, float, float] | None
    dwell: int | None
    count: int | None
    reason: messages.EndReason | None
    unseen: messages.Unseen
    partial: bool
    picture: Picture | None


class Unseen(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A time that rules could not see.

    Attributes:
        begin, end: UTC ns.
        detail: what the cause alone does not say.
    """

    begin: int = msgspec.field(name="from")
    end: int = msgspec.field(name="to")
    cause: Cause | Blind
    detail: str | None = None


class Progress(msgspec.Struct, frozen=True):
    """
    Attributes:
        at: UTC ns up to which all is told.
    """

    at: int


class End(msgspec.Struct, frozen=True, kw_only=True):
    """
    Attributes:
        seen_s, unseen_s: together the time that was asked. Of a time in which frames were dropped, their share counts
            as unseen.
    """

    events: int
    seen_s: float
    unseen_s: float


Answer = PastEvent | Unseen | Progress | End
_KEYS: Final[dict[type, str]] = {PastEvent: "event", Unseen: "unseen", Progress: "progress", End: "end"}
_encode = msgspec.json.Encoder().encode


def line_of(answer: Answer) -> bytes:
    """An answer as a line of JSON."""
    return _encode({_KEYS[type(answer)]: answer}) + b"\n"


def error_line(reason: str) -> bytes:
    """The last line of a search that ends before its end."""
    return _encode({"error": reason}) + b"\n"
