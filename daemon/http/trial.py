"""Tries a source before it is added or changed: opens it once, as `lookout check` does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from time import monotonic

from daemon.config.sources import SourceConfig
from daemon.errors import DecodeError, SourceError
from daemon.sources.decode import NoHardwareDecoder
from daemon.sources.factory import make_source
from daemon.sources.port import Reader, next_picture

_MAX_ERRORS = 100
_NO_DECODER = NoHardwareDecoder("only to try the source")


def try_source(config: SourceConfig) -> tuple[bool, list[str]]:
    """Whether the source gives a picture, and lines for a person. The source's own time limits bound it."""
    begun = monotonic()
    try:
        with closing(make_source(config, _NO_DECODER.open()).open()) as reader:
            _first_picture(reader)
            return True, [*_lines(config, reader, monotonic() - begun)]
    except SourceError as error:
        return False, [f"{config.id}: {error}"]


def _first_picture(reader: Reader) -> None:
    for _ in range(_MAX_ERRORS):
        try:
            picture = next_picture(reader)
            if picture is None:
                raise SourceError("it has no picture")
            picture.load()
            return
        except DecodeError as error:
            last = str(error)
    raise SourceError(f"none of the first {_MAX_ERRORS} pictures could be decoded: {last}")


def _lines(config: SourceConfig, reader: Reader, seconds: float) -> Iterator[str]:
    format = reader.format
    rate = "" if format.fps is None else f" at {format.fps:.2f} frames/s"
    yield f"{config.id}: ok, {format.codec} {format.width}x{format.height}{rate}; first picture after {seconds:.1f} s"
    yield from (f"{config.id}: {note}" for note in format.notes)
