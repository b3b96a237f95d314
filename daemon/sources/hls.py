"""HLS: FFmpeg reads playlists and segments, which are opened here: each server gets what it may have, and a file that
cannot be loaded for a moment ends nothing.
"""

from __future__ import annotations

import io
import re
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Protocol

import av.error
import structlog

from daemon.config.sources import AvConfig
from daemon.errors import SourceError
from daemon.redact import scrub
from daemon.sources.avio import AvioFile
from daemon.sources.http_files import HttpFiles, joined, redirects_of
from daemon.sources.segment import Segment

log = structlog.get_logger(__name__)

# Options of FFmpeg. A playlist is polled over a connection of its own: FFmpeg cannot keep one that it did not open.
# Segments may have any name: they are not opened as files.
_OPTIONS = {"http_persistent": "0", "http_multiple": "0", "extension_picky": "0"}
_TARGETS = 3.0  # target durations without a new segment, after which a playlist is given up
_BEHIND = 3.5  # target durations of segments that wait, beyond which playing is behind
_MAX_STEP_S = 10.0
_REMEMBERED = 16  # segments
_MAX_MASTERS = 16  # playlists of playlists
_MAX_PLAYLIST = 16 << 20  # bytes
_BEGINS = b"#EXTM3U"
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
        first: number of its first segment.
        segments: absolute URL and seconds of each segment, in order.
        is_complete: no segment will be added.
    """

    target_s: float
    first: int
    segments: Sequence[tuple[str, float]]
    is_complete: bool

    def begins_anew(self, before: Playlist) -> bool:
        """Whether its server has begun to count anew since an earlier one, and this is not just an old one."""
        is_old = bool(self.segments) and self.segments[-1] in before.segments
        return self.first < before.first and not is_old

    def after(self, segment: str) -> float:
        """Seconds of the segments that follow one; 0 if it is not there."""
        urls = [url for url, _ in self.segments]
        return sum(seconds for _, seconds in self.segments[urls.index(segment) + 1 :]) if segment in urls else 0.0


class HlsFiles:
    """Opens the files of one connection; its thread alone uses it.

    Args:
        options: FFmpeg's, for the source's own server.

    Attributes:
        playlist: the one that was loaded last; None before the first.
        is_behind: more segments wait than need be.
        has_begun_anew: the server has begun to count segments anew.
    """

    def __init__(self, config: AvConfig, options: Mapping[str, str]) -> None:
        self._config = config
        self._files = HttpFiles(config.address, options, self._is_over)
        self._texts: dict[str, bytes] = {}  # playlists by URL, as they were loaded last
        self._open_files: list[AvioFile] = []
        self._until = monotonic() + config.open_timeout_s
        self._progress = monotonic()  # when a segment was opened last
        self._failed = False
        self.segments: deque[str] = deque(maxlen=_REMEMBERED)
        self.is_behind = False
        self.playlist: Playlist | None = None
        self._lists: dict[str, Playlist] = {}  # by URL, as they were loaded last
        self._masters = 0  # playlists of playlists that have been loaded
        self._loaded = 0.0  # when a playlist was loaded last
        self._refusal: str | None = None  # why it could not be since then
        self.has_begun_anew = False
        self._segment: Segment | None = None
        self._missing: deque[str] = deque(maxlen=_REMEMBERED)
        self._missed = 0

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
    def missing(self) -> int:
        """Segments and keys that could not be loaded, or not whole."""
        return self._missed + (self._segment is not None and not self._segment.is_whole)

    @property
    def limit_s(self) -> float:
        """How long no new segment may come."""
        return max(self._config.read_timeout_s, _TARGETS * self.segment_s)

    @property
    def is_nested(self) -> bool:
        """Playlists have named playlists of playlists; FFmpeg 9 follows one step, 8 many."""
        return self._masters > 1

    def nested(self) -> SourceError:
        return SourceError(
            f"{self._config.url}: its playlist names playlists, and these name others: give the URL of the last"
        )

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
            file = self._opened(url, options, first=first)
            begin = b""
            while len(begin) < len(_BEGINS) and (more := file.read(len(_BEGINS) - len(begin))):
                begin += more
            text = self._playlist(file, begin, url) if begin == _BEGINS else None
        except av.error.FFmpegError as error:
            if first:
                raise
            return io.BytesIO(self._instead(url, known, error))
        if text is not None or known is not None:
            return io.BytesIO(text or known or b"")
        self._progress = monotonic()
        self._missed = self.missing
        is_part = "end_offset" in options  # FFmpeg counts its bytes
        self._segment = Segment(begin, file, after=None if is_part else self._segment)
        url = url.removeprefix("crypto+")
        self.segments.append(url)
        if self.playlist:
            waiting = self.playlist.after(url)
            self.is_behind = waiting > _BEHIND * self.playlist.target_s
        return self._segment

    def close(self) -> None:
        for file in self._open_files:
            file.close()

    def _opened(self, url: str, options: Mapping[str, str], *, first: bool) -> AvioFile:
        if first:
            file = self._files.open(url, options, redirects=redirects_of(self._config))
        else:
            file = self._files.open(url, options)
        self._open_files = [*(other for other in self._open_files if other.is_open), file]
        return file

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
            self._check(found, self._lists.get(url))
            self.playlist = self._lists[url] = found
        elif self._masters == _MAX_MASTERS:
            raise self.nested()
        else:
            self._masters += 1
        self._texts[url], self._loaded, self._refusal = text, monotonic(), None
        return text

    def _check(self, found: Playlist, before: Playlist | None) -> None:
        """Raises:
        SourceError: FFmpeg would wait until the number of the last segment comes again.
        """
        if before and found.begins_anew(before) and self._config.kind != "recording":
            self.has_begun_anew = True
            raise SourceError(
                f"{self._config.url}: its playlist begins anew, with segment {found.first} after {before.first}"
            )

    def _instead(self, url: str, known: bytes | None, error: av.error.FFmpegError) -> bytes:
        """A playlist as it was, if it cannot be loaded now; nothing for a segment, and FFmpeg takes the next one.

        Raises:
            SourceError: no segment has come for too long.
        """
        waited = monotonic() - self._progress
        if known and not isinstance(error, av.error.ExitError):
            self._refusal = str(error.strerror)
        if waited > self.limit_s and not self._failed:
            self._failed = True
            raise SourceError(f"{self._config.url}: {self._what_fails(known, error)}, for {waited:.0f} s")
        if known is None and url not in self._missing:
            self._missing.append(url)
            self._missed += 1
            log.warning(
                "a segment cannot be loaded", source=self._config.id, url=scrub(url), reason=str(error.strerror)
            )
        return known or b""

    def _what_fails(self, known: bytes | None, error: av.error.FFmpegError) -> str:
        what = f"its {'playlist' if known else 'segments'} cannot be loaded"
        if not isinstance(error, av.error.ExitError):
            return f"{what}: {error.strerror}"
        if self._refusal:  # we have given it up
            return f"{what}: {self._refusal}"
        return "its playlist names no new segment" if self._loaded > self._progress else "its server is silent"


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
            segments.append((joined(base, line), seconds))
    first = re.search(r"^#EXT-X-MEDIA-SEQUENCE:\s*(\d+)", text, re.MULTILINE)
    return Playlist(float(target[1]), int(first[1]) if first else 0, segments, "#EXT-X-ENDLIST" in text)


def _absolute(text: str, base: str) -> str:
    """A playlist with absolute URLs."""
    lines = text.splitlines()
    for number, line in enumerate(lines):
        if line.startswith("#"):
            lines[number] = _URI.sub(lambda found: joined(base, found[0]), line)
        elif line:
            lines[number] = joined(base, line)
    return "\n".join(lines) + "\n"
