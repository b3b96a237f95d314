"""FFmpeg's connections, through PyAV: its options, what it may read and allocate, and what breaks, in words."""

from __future__ import annotations

import ctypes
import errno
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from time import monotonic
from typing import Literal

import av
import av.error
from av.container import InputContainer
from av.packet import Packet
from av.stream import Discard, Stream
from av.video.stream import VideoStream

from daemon.config import AvConfig
from daemon.errors import SourceError
from daemon.redact import scrub

Transport = Literal["tcp", "udp"]
_RTSP = ("rtsp", "rtsps")
_HTTP = ("http", "https")
_LOCAL = ("", "file")
# Of files. None that is a list of other files, but for HLS's, which FFmpeg knows by its name alone.
_FORMATS = (
    "aiff,apng,asf,av1,avi,bmp_pipe,dirac,dv,flv,gif,gif_pipe,h261,h263,h264,hevc,hls,image2,ivf,jpeg_pipe,jpegxl_pipe,m4v,"
    "matroska,mjpeg,mjpeg_2000,mov,mpeg,mpegts,mpegvideo,mpjpeg,mxf,nut,obu,ogg,pam_pipe,png_pipe,pgm_pipe,ppm_pipe,"
    "qoi_pipe,rm,swf,tiff_pipe,vc1,vvc,webp_pipe,wtv,yuv4mpegpipe"
)
# By default FFmpeg reads 20 frames before it says that it is open, to guess a rate that nobody here needs.
_RTSP_OPTIONS = {"fpsprobesize": "0"}
# FFmpeg's own limit for RTSP's sockets, in us. PyAV's asks the interpreter for the time, and so for its lock, at each
# turn of a socket: with 150 cameras that cost more than all else. Not tried through TLS.
_OWN_LIMIT = "timeout"
_NETWORK = "crypto,data,hls,http,httpproxy,https,rtmp,rtmps,rtmpt,rtp,rtsp,rtsps,srtp,tcp,tls,udp"
# FFmpeg allocates what a camera or file asks for: an RTSP answer that says it is 2 GiB long, a picture of 16000x16000.
_MOST_PIXELS = 8192 * 4320  # 8K
_MOST_BYTES = 256 << 20  # at once; the index of a two days' recording takes half of it
# What FFmpeg's words mean when they come from opening.
_MEANING: dict[type[Exception], str] = {
    av.error.InvalidDataError: ": it is empty, cut short or not a video",
    av.error.OSError: ": the host name may be wrong, or the server closed the connection",
    av.error.HTTPUnauthorizedError: ": check user name and password",
}
_LATE_S = 1.0  # video that begins so long after the sound


@dataclass(frozen=True)
class Connection:
    """A container that is open, and its first video stream.

    Attributes:
        notes: what a person who set this up should know of it.
    """

    container: InputContainer
    stream: VideoStream
    notes: tuple[str, ...]


def connect(config: AvConfig) -> Connection:
    """Open a URL or recording, and look for its video. RTSP comes over TCP, or UDP where the server has no other.

    Raises:
        SourceError: it cannot be opened, or holds no video that can be decoded.
    """
    _bound_allocations()
    notes: list[str] = []
    try:
        container = _open(config, "udp" if config.transport == "udp" else "tcp")
    except _NotOfferedError:
        if config.transport != "auto":
            raise
        container = _open(config, "udp")
        notes.append("its server does not offer TCP: it comes over UDP, where packets may be lost")
    try:
        stream = _video_of(container, config)
        notes += _notes_of(container, stream, config)
    except BaseException:
        container.close()
        raise
    return Connection(container, stream, tuple(notes))


class _NotOfferedError(SourceError):
    """The server does not offer the transport."""


def _open(config: AvConfig, transport: Transport) -> InputContainer:
    options, own = _options(config, transport)
    limits: tuple[float, float | None] = (config.open_timeout_s, config.read_timeout_s)
    answer_s = config.open_timeout_s
    if own:
        limits = (config.open_timeout_s, None)
        answer_s = min(config.open_timeout_s, config.read_timeout_s)
    started = monotonic()
    try:
        container: InputContainer = av.open(config.address, options=options, timeout=limits)
        return container
    except (av.error.FFmpegError, OSError, ValueError) as error:
        waited = monotonic() - started
        if waited >= answer_s * 0.9:
            raise SourceError(f"no complete answer from {config.url} within {answer_s:g} s") from error
        words = f"cannot open {config.url}: {message_of(error)}"
        if config.url.scheme in _RTSP and getattr(error, "errno", None) == errno.EPROTONOSUPPORT:
            other = "udp" if transport == "tcp" else "tcp"
            raise _NotOfferedError(
                f"{words}: the server does not offer {transport.upper()}: set transport: {other}"
            ) from error
        meaning = _MEANING.get(type(error), "")
        if config.url.scheme in _LOCAL and getattr(error, "errno", None) == errno.EINVAL:
            meaning = ": it is of no format that is taken from a file; options: {format_whitelist: ...} takes others"
        if config.url.scheme in _HTTP and isinstance(error, av.error.InvalidDataError):
            meaning = ": it is no video; is it the address of a web page?"
        if config.url.scheme in _HTTP and getattr(error, "errno", None) == errno.EIO:
            meaning += ', or it is a web page, or it redirects, which options: {max_redirects: "3"} would follow'
        raise SourceError(f"{words}{meaning}{_hint(config)}") from error


def _options(config: AvConfig, transport: Transport) -> tuple[dict[str, str], bool]:
    """For FFmpeg; and whether RTSP's sockets have a time limit of their own."""
    own = {key: value.reveal() for key, value in config.options.items()}
    options = {"protocol_whitelist": _protocols(config.url.scheme), "max_pixels": str(_MOST_PIXELS)}
    if config.url.scheme in _LOCAL:
        options["format_whitelist"] = _FORMATS
    if config.url.scheme in _HTTP:
        options["max_redirects"] = "0"  # a camera would have any address of the network asked
    if config.url.scheme in _RTSP:
        options |= _RTSP_OPTIONS | {"rtsp_transport": transport}
    limited = config.url.scheme == "rtsp" and _OWN_LIMIT not in own
    if limited:
        options[_OWN_LIMIT] = str(round(config.read_timeout_s * 1e6))
    return options | own, limited


def _hint(config: AvConfig) -> str:
    """A variable without braces is taken as it stands."""
    found = re.search(r"\$([A-Z][A-Z0-9_]+)", config.url.written)
    return f"; the URL has ${found[1]}: for a variable write ${{{found[1]}}}" if found else ""


def _video_of(container: InputContainer, config: AvConfig) -> VideoStream:
    if not container.streams.video:
        kinds = ", ".join(sorted({stream.type for stream in container.streams})) or "nothing"
        raise SourceError(f"no video in {config.url}: it holds {kinds}")
    stream = container.streams.video[0]
    # A stream without a codec context crashes PyAV when it is decoded (PyAV #2344).
    if getattr(stream, "codec_context", None) is None:
        raise SourceError(f"{config.url}: its video codec is not known to this FFmpeg")
    most_pixels = config.options["max_pixels"].reveal() if "max_pixels" in config.options else str(_MOST_PIXELS)
    _check_size(config, stream, most_pixels)
    stream.codec_context.options = {"max_pixels": most_pixels}
    stream.codec_context.thread_count = config.decode_threads
    for other in container.streams:
        if other.index != stream.index:
            other.discard = Discard.all
    return stream


def _notes_of(container: InputContainer, stream: VideoStream, config: AvConfig) -> Iterator[str]:
    if (count := len(container.streams.video)) > 1:
        yield f"it has {count} video tracks; the first is read"
    late = _begin_of(stream) - min(map(_begin_of, container.streams))
    if late >= _LATE_S:
        yield f"its video begins {late:.1f} s after its sound"
    if config.url.scheme in _HTTP and config.kind == "auto" and container.duration:
        yield f"it is {container.duration / 1e6:.1f} s long: if it is a recording, set kind: recording"


def _begin_of(stream: Stream) -> float:
    """Seconds; 0 where it is not known."""
    return 0.0 if stream.start_time is None or stream.time_base is None else float(stream.start_time * stream.time_base)


def message_of(error: Exception) -> str:
    """FFmpeg's own words, without the URL that PyAV adds to them."""
    words = error.strerror if isinstance(error, OSError | av.error.FFmpegError) and error.strerror else str(error)
    return scrub(words)


@cache
def _bound_allocations() -> None:
    """No single allocation of FFmpeg's in this process is larger than `_MOST_BYTES`; it fails, and says so."""
    library = ctypes.PyDLL(sys.modules[Packet.__module__].__file__)  # its dependencies are searched, too
    library.av_max_alloc.argtypes, library.av_max_alloc.restype = (ctypes.c_size_t,), None
    library.av_max_alloc(_MOST_BYTES)


def _check_size(config: AvConfig, stream: VideoStream, most_pixels: str) -> None:
    width, height = stream.codec_context.width, stream.codec_context.height
    if most_pixels.isdecimal() and width * height > int(most_pixels):
        raise SourceError(
            f"{config.url}: its pictures of {width}x{height} are larger than {int(most_pixels) / 1e6:.0f} megapixels; "
            "set options: {max_pixels: ...} if that is meant"
        )


def _protocols(scheme: str) -> str:
    """What FFmpeg may read: no `concat:` or `subfile:` in a path, no file named by a playlist from the network."""
    return "file,crypto,data" if scheme in _LOCAL else f"{scheme},{_NETWORK}"
