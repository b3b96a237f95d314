"""HLS: FFmpeg reads playlists and segments, which are opened here, so that each server gets what it may have.

User name, password, headers and cookies of a source are for its own server (scheme, host and port). A playlist may name
segments and keys on any other. FFmpeg by itself would send headers to all of them, and cookies that name no domain.
"""

from __future__ import annotations

import io
import re
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import Protocol
from urllib.parse import urljoin

import av.error
import structlog

from daemon.config import AvConfig
from daemon.errors import SourceError
from daemon.redact import scrub
from daemon.sources.avio import AvioFile

log = structlog.get_logger(__name__)

# Options of FFmpeg. A playlist is polled over a connection of its own: FFmpeg cannot keep one that it did not open.
# Segments may have any name: they are not opened as files.
_OPTIONS = {"http_persistent": "0", "http_multiple": "0", "extension_picky": "0"}
_FOR_ALL = (
    "protocol_whitelist",
    "user_agent",
    "referer",
    "http_proxy",
    "tls_verify",
    "ca_file",
    "timeout",
    "rw_timeout",
)  # of the source's
_SECRET = ("headers", "cookies")
_TARGETS = 3.0  # target durations without a new segment, after which a playlist is given up
_BEHIND = 3.5  # target durations of segments that wait, beyond which playing is behind
_MAX_STEP_S = 10.0
_MAX_READ_NS = 300_000_000_000  # of what another connection has read
_REMEMBERED = 16  # segments
_MAX_PLAYLIST = 16 << 20  # bytes
_BEGINS = b"#EXTM3U"
# A URL that FFmpeg and this program cannot read in two ways.
_PLAIN = re.compile(
    r"(?:crypto[+:])?(?P<scheme>https?)://(?P<login>[^/?#@\\\s]*@)?(?P<host>[\w.-]+|\[[\da-fA-F:.]+\])(?::(?P<port>\d+))?(?=[/?]|$)",
    re.ASCII,
)
_URI = re.compile(r'(?<=URI=")[^"]*')


def hls_options(options: Mapping[str, str]) -> dict[str, str]:
    """FFmpeg's options for HLS."""
    return _OPTIONS | dict(options)


class File(Protocol):
    """A file object, as PyAV takes it."""

    def read(self, size: int) -> bytes: ...
    def close(self) -> None: ...


@dataclass(frozen=True)
class Playlist:
    """A media playlist.

    Attributes:
        target_s: its target duration, seconds.
        segments: absolute URL and seconds of each segment, in order.
        is_complete: no segment will be added.
    """

    target_s: float
    segments: Sequence[tuple[str, float]]
    is_complete: bool

    def after(self, segment: str) -> float:
        """Seconds of the segments that follow one; 0 if it is not there."""
        urls = [url for url, _ in self.segments]
        return sum(seconds for _, seconds in self.segments[urls.index(segment) + 1 :]) if segment in urls else 0.0


class HlsProgress:
    """How far a source was read, over its connections: a new one begins with segments that the last one has read."""

    def __init__(self) -> None:
        self._files: HlsFiles | None = None  # of the connection that was read last
        self._last: int | None = None  # time of its last picture, ns
        self._read_to: int | None = None  # pictures up to this time were read over another connection

    def is_new(self, time: int, files: HlsFiles) -> bool:
        """Whether a picture was not read before. Call it for each picture, in order.

        Args:
            time: its timestamp, ns.
            files: of its connection.
        """
        before = self._files
        if files is not before:
            again = before is not None and bool(set(before.segments) & set(files.segments))
            self._files, self._read_to = files, self._last if again else None
        if self._read_to is not None and time <= self._read_to < time + _MAX_READ_NS:
            return False
        self._read_to, self._last = None, time
        return True


class HlsFiles:
    """Opens the files of one connection; its thread alone uses it.

    Args:
        options: FFmpeg's, for the source's own server.

    Attributes:
        playlist: the one that was loaded last; None before the first.
        is_behind: more segments wait than need be.
        missing: segments and keys that could not be opened.
    """

    def __init__(self, config: AvConfig, options: Mapping[str, str]) -> None:
        self._config, self._options = config, options
        self._origin, self._login = origin_of(config.address), _login_of(config.address)
        self._cookies: dict[tuple[str, ...] | None, str] = {}  # by origin
        self._texts: dict[str, bytes] = {}  # playlists by URL, as they were loaded last
        self._open_files: list[AvioFile] = []
        self._until = monotonic() + config.open_timeout_s
        self._progress = monotonic()  # when a segment was opened last
        self._failed = False
        self.segments: deque[str] = deque(maxlen=_REMEMBERED)
        self.is_behind = False
        self.playlist: Playlist | None = None
        self.missing = 0

    @property
    def segment_s(self) -> float:
        """Seconds of the longest segment."""
        return self.playlist.target_s if self.playlist else 0.0

    @property
    def max_step_s(self) -> float:
        """The longest step between two pictures: a longer one begins another timeline."""
        return max(_MAX_STEP_S, _TARGETS * self.segment_s)

    @property
    def is_complete(self) -> bool:
        """No segment will be added."""
        return self.playlist is not None and self.playlist.is_complete

    @property
    def limit_s(self) -> float:
        """How long no new segment may come."""
        return max(self._config.read_timeout_s, _TARGETS * self.segment_s)

    def begin_read(self) -> None:
        """FFmpeg is about to read."""
        self._until = monotonic() + self.limit_s

    def open(self, url: str, _flags: int, options: Mapping[str, str]) -> File:
        """Called by PyAV for each file.

        Raises:
            FFmpegError: the first playlist cannot be opened.
            SourceError: no segment has come for too long.
        """
        first = not self._texts
        known = self._texts.get(url)
        try:
            file = self._opened(url, options)
            begin = file.read(len(_BEGINS))
            text = self._playlist(file, begin, url) if begin == _BEGINS else None
        except av.error.FFmpegError as error:
            if first:
                raise
            return io.BytesIO(self._instead(url, known, error))
        if text is not None or known is not None:
            return io.BytesIO(text or known or b"")
        self._progress = monotonic()
        url = url.removeprefix("crypto+").removeprefix("crypto:")
        self.segments.append(url)
        if self.playlist:
            waiting = self.playlist.after(url)
            self.is_behind = waiting > _BEHIND * self.playlist.target_s
        return _Prefixed(begin, file)

    def close(self) -> None:
        for file in self._open_files:
            file.close()

    def _opened(self, url: str, options: Mapping[str, str]) -> AvioFile:
        origin = origin_of(url)
        mine = origin is not None and origin == self._origin
        given = {key: value for key, value in options.items() if key not in _SECRET}
        given |= {key: self._options[key] for key in _FOR_ALL if key in self._options}
        if mine:
            given |= self._options
        if self._texts and "max_redirects" not in self._config.options:
            given.pop("max_redirects", None)  # a playlist may name any server
        if cookies := self._cookies.get(origin):
            given["cookies"] = cookies
        file = self._file(_with_login(url, self._login) if mine else url, given)
        if cookies := file.option("cookies"):
            self._cookies[origin] = cookies
        self._open_files = [*(other for other in self._open_files if other.is_open), file]
        return file

    def _file(self, url: str, options: Mapping[str, str]) -> AvioFile:
        """Open a file. FFmpeg would send headers and cookies on to where a server redirects: this goes without them."""
        plain = {key: value for key, value in options.items() if key not in _SECRET}
        if len(plain) < len(options):
            with suppress(av.error.OSError):  # as FFmpeg calls a redirect that it does not follow
                return AvioFile(url, {**options, "max_redirects": "0"}, self._is_over)
        return AvioFile(url, plain, self._is_over)

    def _is_over(self) -> bool:
        return monotonic() > self._until

    def _playlist(self, file: AvioFile, begin: bytes, url: str) -> bytes:
        """The text of a playlist, with absolute URLs if it was redirected."""
        text = begin
        while part := file.read(65536):
            text += part
            if len(text) > _MAX_PLAYLIST:
                raise SourceError(f"{self._config.url}: its playlist is larger than {_MAX_PLAYLIST >> 20} MiB")
        location = file.option("location") or url
        file.close()
        if location != url:
            text = _absolute(text.decode(errors="replace"), location).encode()
        if found := parsed(text.decode(errors="replace"), location):
            self.playlist = found
        self._texts[url] = text
        return text

    def _instead(self, url: str, known: bytes | None, error: av.error.FFmpegError) -> bytes:
        """A playlist as it was, if it cannot be loaded now; nothing for a segment, and FFmpeg takes the next one.

        Raises:
            SourceError: no segment has come for too long.
        """
        waited = monotonic() - self._progress
        if waited > self.limit_s and not self._failed:
            self._failed = True
            what = "its playlist cannot be loaded" if known else "its segments cannot be loaded"
            raise SourceError(f"{self._config.url}: {what}: {error.strerror}, for {waited:.0f} s")
        if known is None:
            self.missing += 1
            log.warning(
                "a segment cannot be loaded", source=self._config.id, url=scrub(url), reason=str(error.strerror)
            )
        return known or b""


class _Prefixed:
    """A file after its first bytes were read."""

    def __init__(self, begin: bytes, file: AvioFile) -> None:
        self._begin, self._file = begin, file

    def read(self, size: int) -> bytes:
        """Empty at the end, and where the connection breaks: FFmpeg then takes the next segment."""
        if self._begin:
            begin, self._begin = self._begin[:size], self._begin[size:]
            return begin
        try:
            return self._file.read(size)
        except av.error.FFmpegError:
            return b""

    def close(self) -> None:
        self._file.close()


def origin_of(url: str) -> tuple[str, ...] | None:
    """Scheme, host and port; None for a URL that is not plain."""
    found = _PLAIN.match(url)
    if found is None:
        return None
    return found["scheme"], found["host"].lower(), found["port"] or {"http": "80", "https": "443"}[found["scheme"]]


def _login_of(url: str) -> str:
    """User name and password with their @; empty without."""
    found = _PLAIN.match(url)
    return (found["login"] or "") if found else ""


def _with_login(url: str, login: str) -> str:
    """A URL of the source's own server, with user name and password if it has none."""
    return url if _login_of(url) else url.replace("://", f"://{login}", 1)


def parsed(text: str, base: str) -> Playlist | None:
    """A media playlist (RFC 8216); None for one that lists playlists."""
    target = re.search(r"^#EXT-X-TARGETDURATION:\s*(\d+)", text, re.MULTILINE)
    if target is None:
        return None
    segments, seconds = [], 0.0
    for line in map(str.strip, text.splitlines()):
        if found := re.match(r"#EXTINF:\s*([\d.]+)", line):
            seconds = float(found[1])
        elif line and not line.startswith("#"):
            segments.append((urljoin(base, line), seconds))
    return Playlist(float(target[1]), segments, "#EXT-X-ENDLIST" in text)


def _absolute(text: str, base: str) -> str:
    """A playlist with absolute URLs."""
    lines = text.splitlines()
    for number, line in enumerate(lines):
        if line.startswith("#"):
            lines[number] = _URI.sub(lambda found: urljoin(base, found[0]), line)
        elif line:
            lines[number] = urljoin(base, line)
    return "\n".join(lines) + "\n"
