"""Opens connections through PyAV (FFmpeg): options, limits of what FFmpeg may read and allocate, error messages."""

from __future__ import annotations

import ctypes
import errno
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from time import monotonic
from typing import TYPE_CHECKING, Literal

import av
import av.error
from av.container import InputContainer
from av.packet import Packet
from av.stream import Stream
from av.video.stream import VideoStream

from daemon.config.sources import AvConfig
from daemon.errors import SourceError
from daemon.sources.explanations import explain
from daemon.sources.file_range import FileRange
from daemon.sources.libav import HTTP, LIVE_OPTIONS, LOCAL, RTSP, message_of
from daemon.sources.video_streams import choose, is_attached

if TYPE_CHECKING:
    from daemon.sources.hls import HlsFiles

Transport = Literal["tcp", "udp"]
# Formats that a file may have. None of them is a list of other files, except HLS, which FFmpeg detects by name only.
_FORMATS = (
    "aiff,apng,asf,av1,avi,bmp_pipe,dhav,dirac,dv,flv,gif,gif_pipe,h261,h263,h264,hevc,hls,image2,ivf,jpeg_pipe,jpegxl_pipe,m4v,"
    "matroska,mjpeg,mjpeg_2000,mov,mpeg,mpegts,mpegvideo,mpjpeg,mxf,nut,obu,ogg,pam_pipe,png_pipe,pgm_pipe,ppm_pipe,"
    "qoi_pipe,rm,swf,tiff_pipe,vc1,vvc,webp_pipe,wtv,yuv4mpegpipe"
)
_DATAGRAMS = ("udp", "rtp", "srtp")
# Beside another stream FFmpeg moves the times of pictures at each sender report, which cameras stamp late.
_RTSP_OPTIONS = {"allowed_media_types": "video"}
# FFmpeg's own timeout for RTSP sockets, us. PyAV's timeout reads the clock, and so takes the GIL, at every turn of a
# socket: with 150 cameras that costs more than everything else. Not measured with TLS.
_SOCKET_TIMEOUT = "timeout"
# FFmpeg asks for `rtsp` and `rtsps` only to follow a redirect, with the user name and password of the first host.
_NETWORK = "crypto,data,hls,http,httpproxy,https,rtmp,rtmps,rtmpt,rtp,srtp,tcp,tls,udp"
_ASKS_BEFORE_REDIRECTS = (62, 12, 101)  # libavformat of FFmpeg 8.1.1, the first to do so
# FFmpeg allocates the size that a peer states, such as an RTSP answer of 2 GiB or a picture of 16000x16000.
_MAX_PIXELS = 8192 * 4320  # 8K
_MAX_ALLOCATION = 256 << 20  # the index of a two-day recording takes half of it
# The end of a transport stream may be of another codec than its beginning.
_FILE_OPTIONS = {"skip_estimate_duration_from_pts": "1"}
# A transport stream whose table changes may give its video another identifier: a file is searched for it, and of a
# connection FFmpeg goes on with the stream in the same place of the table.
_REMOTE_OPTIONS = {"merge_pmt_versions": "1"}
_ALL_TABLES = {"scan_all_pmts": "1"}
_RANGE_BUFFER = 1 << 20  # bytes that are read at once
_LATE_VIDEO_S = 1.0  # video that begins this long after the sound is reported


@dataclass(frozen=True)
class Connection:
    """An open container, and the video stream to read.

    Attributes:
        notes: warnings about the stream, for the operator.
        hls: opens the files of HLS, None for another format.
        has_datagrams: packets that are not read in time are lost.
    """

    container: InputContainer
    stream: VideoStream
    notes: tuple[str, ...]
    hls: HlsFiles | None = None
    has_datagrams: bool = False

    def close(self) -> None:
        self.container.close()
        if self.hls:
            self.hls.close()


def connect(config: AvConfig, *, explains: bool = True) -> Connection:
    """Open a URL or recording, and find its video. RTSP uses TCP, or UDP where the server offers no TCP.

    Args:
        explains: a failure may take a probe of the server, to say why.

    Raises:
        SourceError: it cannot be opened, or holds no video that can be decoded.
    """
    _bound_allocations()
    _check_redirects(config)
    notes: list[str] = []
    transport: Transport = "udp" if config.transport == "udp" else "tcp"
    try:
        container, hls = _open(config, transport, explains=explains)
    except _NotOfferedError:
        if config.transport != "auto":
            raise
        transport = "udp"
        container, hls = _open(config, transport, explains=explains)
        notes.append("its server does not offer TCP: UDP is used, where packets may be lost")
    try:
        if hls and not hls.segments:
            raise SourceError(f"{config.url}: its playlist has no segment that can be loaded")
        stream = _video_of(container, config)
        notes += _notes_of(container, stream, config)
    except BaseException:
        container.close()
        if hls:
            hls.close()
        raise
    has_datagrams = config.url.scheme in _DATAGRAMS or (config.url.scheme in RTSP and transport == "udp")
    return Connection(container, stream, tuple(notes), hls, has_datagrams)


class _NotOfferedError(SourceError):
    """The server does not offer the transport."""


def _open(config: AvConfig, transport: Transport, *, explains: bool) -> tuple[InputContainer, HlsFiles | None]:
    options, configured = _options(config, transport)
    limits: tuple[float, float | None] = (config.open_timeout_s, config.read_timeout_s)
    answer_s = config.open_timeout_s
    if configured:
        limits = (config.open_timeout_s, None)
        answer_s = min(config.open_timeout_s, config.read_timeout_s)
    started = monotonic()
    try:
        if config.url.scheme in HTTP:
            from daemon.sources.http_connection import open_http

            return open_http(config, options, limits)
        return av.open(config.address, options=options, timeout=limits), None
    except (av.error.FFmpegError, OSError, ValueError) as error:
        waited = monotonic() - started
        if waited >= answer_s * 0.9:
            raise SourceError(f"{_silence(config.url.scheme)} {config.url} within {answer_s:g} s") from error
        if config.url.scheme in RTSP and getattr(error, "errno", None) == errno.EPROTONOSUPPORT:
            other = "udp" if transport == "tcp" else "tcp"
            raise _NotOfferedError(
                f"cannot open {config.url}: the server does not offer {transport.upper()}: set transport: {other}"
            ) from error
        raise (explain(config, error) if explains else SourceError(message_of(error))) from error


def _silence(scheme: str) -> str:
    if scheme in _DATAGRAMS:
        return "is its port open, and is anybody sending? No packets came to"
    return "no complete answer from"


def _options(config: AvConfig, transport: Transport) -> tuple[dict[str, str], bool]:
    """FFmpeg's options, and whether RTSP sockets have FFmpeg's own timeout."""
    configured = {key: value.reveal() for key, value in config.options.items()}
    options = {"protocol_whitelist": _protocols(config.url.scheme), "max_pixels": str(_MAX_PIXELS)}
    if config.url.scheme in LOCAL:
        options |= {"format_whitelist": _FORMATS} | _FILE_OPTIONS
    else:
        options |= _REMOTE_OPTIONS
    if config.url.scheme in RTSP:
        options |= LIVE_OPTIONS | _RTSP_OPTIONS | {"rtsp_transport": transport}
    limited = config.url.scheme == "rtsp" and _SOCKET_TIMEOUT not in configured
    if limited:
        options[_SOCKET_TIMEOUT] = str(round(config.read_timeout_s * 1e6))
    return options | configured, limited


def open_range(config: AvConfig, file: FileRange, format: str, *, all_tables: bool) -> InputContainer:
    """Open a part of a recording's file.

    Args:
        format: FFmpeg's name.
        all_tables: the beginning of a transport stream may have tables that end soon: look for others, too.

    Raises:
        SourceError: it cannot be opened.
    """
    options = _options(config, "tcp")[0] | (_ALL_TABLES if all_tables else {})
    try:
        return av.open(file, "r", format=format, options=options, buffer_size=_RANGE_BUFFER)
    except (av.error.FFmpegError, OSError, ValueError) as error:
        raise SourceError(f"cannot go on with {config.url}: {message_of(error)}") from error


def prepare(stream: VideoStream, config: AvConfig) -> None:
    """Set the limits and threads of a stream's decoder.

    Raises:
        SourceError: its pictures are too large.
    """
    max_pixels = config.options["max_pixels"].reveal() if "max_pixels" in config.options else str(_MAX_PIXELS)
    _check_size(config, stream, max_pixels)
    if stream.codec_context.is_open:  # it has been prepared before
        return
    stream.codec_context.options = {"max_pixels": max_pixels}
    stream.codec_context.thread_count = config.decode_threads


def _video_of(container: InputContainer, config: AvConfig) -> VideoStream:
    stream = choose(container)
    if stream is not None:
        prepare(stream, config)
        return stream
    if any(not is_attached(other) for other in container.streams.video):
        raise SourceError(f"{config.url}: its video codec is not known to this FFmpeg")
    if config.url.scheme in RTSP:  # nothing else is asked for
        raise SourceError(f"no video in {config.url}: it offers no video that this FFmpeg knows")
    kinds = {"a picture" if other.type == "video" else str(other.type) for other in container.streams}
    raise SourceError(f"no video in {config.url}: it holds {', '.join(sorted(kinds)) or 'nothing'}")


def _notes_of(container: InputContainer, stream: VideoStream, config: AvConfig) -> Iterator[str]:
    videos = [other for other in container.streams.video if not is_attached(other)]
    if len(videos) > 1:
        which = "the first" if stream == videos[0] else f"number {videos.index(stream) + 1}"
        yield f"it has {len(videos)} video tracks; {which} is read"
    late = _start_s(stream) - min(map(_start_s, container.streams))
    if late >= _LATE_VIDEO_S:
        yield f"its video begins {late:.1f} s after its sound"
    if config.url.scheme in HTTP and config.kind == "auto" and container.duration:
        yield f"it is {container.duration / 1e6:.1f} s long: if it is a recording, set kind: recording"


def _start_s(stream: Stream) -> float:
    """Start time, seconds; 0 if unknown."""
    return 0.0 if stream.start_time is None or stream.time_base is None else float(stream.start_time * stream.time_base)


@cache
def _bound_allocations() -> None:
    """Limit every allocation of FFmpeg in this process to `_MAX_ALLOCATION`; a larger one fails with an error."""
    library = ctypes.PyDLL(sys.modules[Packet.__module__].__file__)  # also finds symbols of its dependencies
    library.av_max_alloc.argtypes, library.av_max_alloc.restype = (ctypes.c_size_t,), None
    library.av_max_alloc(_MAX_ALLOCATION)


def _check_size(config: AvConfig, stream: VideoStream, max_pixels: str) -> None:
    width, height = stream.codec_context.width, stream.codec_context.height
    if max_pixels.isdecimal() and width * height > int(max_pixels):
        raise SourceError(
            f"{config.url}: its pictures of {width}x{height} are larger than {int(max_pixels) / 1e6:.0f} megapixels; "
            "set options: {max_pixels: ...} to allow them"
        )


def _protocols(scheme: str) -> str:
    """The protocols that FFmpeg may use: no `concat:` or `subfile:` in a path, no file named by a remote playlist."""
    if scheme in LOCAL:
        return "file,crypto,data"
    return _NETWORK if scheme in RTSP else f"{scheme},{_NETWORK}"


def _check_redirects(config: AvConfig) -> None:
    """
    Raises:
        SourceError: this FFmpeg would follow any redirect of RTSP.
    """
    if config.url.scheme in RTSP and av.library_versions["libavformat"] < _ASKS_BEFORE_REDIRECTS:
        raise SourceError(
            f"{config.url} is not opened: this FFmpeg, {av.ffmpeg_version_info}, gives a camera's password to any "
            "server that the camera names; PyAV needs FFmpeg 8.1.1 or later, which its wheels from 17.1 on have"
        )
