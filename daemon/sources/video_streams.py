"""The video streams of a container: which one is read, and whether others have appeared."""

from __future__ import annotations

from av.container import InputContainer
from av.stream import Disposition
from av.video.stream import VideoStream

_PICTURES = Disposition.attached_pic | Disposition.timed_thumbnails
_UNRATED = Disposition.visual_impaired  # FFmpeg prefers every stream without it
# Their streams are one video in several qualities, and one that is not discarded is fetched.
_QUALITIES = {"hls", "dash"}


def is_attached(stream: VideoStream) -> bool:
    """Whether its packets are covers or thumbnails."""
    return bool(stream.disposition & _PICTURES)


def can_be_decoded(stream: VideoStream) -> bool:
    """Whether this FFmpeg knows the codec. PyAV crashes when it decodes a stream without (PyAV #2344)."""
    return getattr(stream, "codec_context", None) is not None


def choose(container: InputContainer) -> VideoStream | None:
    """The video stream to read; None if there is none that can be decoded.

    It is the first, unless that looks empty, or the container says that another is the default: then it is the one that
    FFmpeg finds best. Covers and thumbnails are none.
    """
    usable = [stream for stream in container.streams.video if can_be_decoded(stream) and not is_attached(stream)]
    if not usable:
        return None
    first, best = usable[0], container.streams.best("video")
    if best not in usable:
        return first
    others_default = best.disposition & Disposition.default and not first.disposition & Disposition.default
    return best if others_default or _looks_empty(first) else first


def others_of(container: InputContainer, stream: VideoStream) -> tuple[VideoStream, ...]:
    """The other video streams whose packets are read, to be counted, or because they may continue this one."""
    if _QUALITIES & set(container.format.name.split(",")):
        return ()
    return tuple(other for other in container.streams.video if other.index != stream.index)


class NewStreams:
    """Whether video streams have appeared while a container is read.

    PyAV does not show these streams, and discards their packets. FFmpeg's choice of the best stream reveals them: the
    known streams are marked so that it prefers every other one.
    """

    def __init__(self, container: InputContainer) -> None:
        self._streams, self._known = container.streams, set(container.streams.video)
        for stream in self._known:
            stream.disposition = _UNRATED

    def __bool__(self) -> bool:
        try:
            return self._streams.best("video") not in self._known
        except IndexError:  # it is not in PyAV's list
            return True


def _looks_empty(stream: VideoStream) -> bool:
    """Whether neither the header nor the beginning of the container has pictures of it."""
    context = stream.codec_context
    return not (stream.frames or len(stream.index_entries) or context.bit_rate) or not context.width
