"""`lookout check --draw`: pictures of sources with their rules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path

from daemon.analytics.drawn_rules import drawn_on
from daemon.config import SourceConfig
from daemon.errors import LookoutError
from daemon.pipeline.drawing import jpeg
from detectors.port import Detector, DetectorError, Image


def draw_rules(folder: Path, pictures: Iterable[tuple[SourceConfig, Image]], detector: Detector) -> Iterator[Path]:
    """Write a picture of each source with its rules; gives their paths.

    Raises:
        LookoutError: a picture cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with closing(detector.lane()) as lane:
            for source, image in pictures:
                path = folder / f"{source.id}.jpg"
                path.write_bytes(jpeg(drawn_on(lane.fetch(image)().bgr, source.rules)))
                yield path
    except OSError as error:
        raise LookoutError(f"--draw: {folder} cannot be written: {error.strerror}") from error
    except DetectorError as error:
        raise LookoutError(f"--draw: a picture cannot be read: {error}") from error
