"""One recording, read as a capture reads it."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from daemon.config.sources import AvConfig
from daemon.errors import DecodeError, SourceError
from daemon.redact import Url
from daemon.sources.decode import DecoderPool
from daemon.sources.ffmpeg import AvSource
from daemon.sources.port import Skipped
from lookout.messages import VideoFormat


@dataclass
class Played:
    """What came of a recording.

    Attributes:
        sizes: of its pictures, as "320x180".
        marked: pictures that are marked as corrupt.
        dropped: pictures by drop cause.
        reason: why it ended, None at its end.
        formats: each that was in use.
    """

    sizes: Counter[str] = field(default_factory=Counter)
    marked: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    passed_over: Counter[str] = field(default_factory=Counter)
    times: list[int | None] = field(default_factory=list)
    reason: str | None = None
    formats: list[VideoFormat] = field(default_factory=list)

    @property
    def pictures(self) -> int:
        return self.sizes.total()

    @property
    def codecs(self) -> list[str]:
        return [format.codec for format in self.formats]

    @property
    def steps(self) -> list[int]:
        """Between the times of pictures, ns."""
        times = [time for time in self.times if time is not None]
        assert len(times) == len(self.times)
        return [after - before for before, after in pairwise(times)]


def play(path: Path, pool: DecoderPool | None = None, most: int | None = None, **keys: Any) -> Played:
    """Read a recording to its end, or some pictures of it."""
    played = Played()
    limits: dict[str, Any] = {"open_timeout_s": 60, "read_timeout_s": 60}
    config = AvConfig(id="s", url=Url(str(path)), **(limits | keys))
    try:
        with closing(AvSource(config, pool).open()) as reader:
            while most is None or played.pictures < most:
                try:
                    picture = reader.read()
                    if not played.formats or reader.format is not played.formats[-1]:
                        played.formats.append(reader.format)
                    if picture is None:
                        break
                    assert not isinstance(picture, Skipped)
                    image = picture.load()
                except DecodeError as error:
                    played.dropped[error.cause] += 1
                    continue
                finally:
                    played.passed_over.update(reader.take_passed_over())
                played.sizes[f"{image.width}x{image.height}"] += 1
                played.marked += image.corrupt
                played.times.append(picture.pts)
            played.passed_over.update(reader.take_passed_over())
    except SourceError as error:
        played.reason = str(error)
    return played
