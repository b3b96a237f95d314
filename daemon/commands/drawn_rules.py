"""`lookout check --draw`: pictures of sources with their regions of interest, tiles and rules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path

import cv2
import numpy as np

from daemon.analytics.drawn_rules import Colour, Picture, drawn_on
from daemon.config.sources import SourceConfig
from daemon.errors import LookoutError
from daemon.pipeline.drawing import jpeg
from daemon.pipeline.views import placed, view_of
from detectors.port import Detector, DetectorError, Image

_DARK = 0.4
_ROI: Colour = (0, 200, 255)
_TILE: Colour = (255, 255, 255)


def draw_rules(folder: Path, pictures: Iterable[tuple[SourceConfig, Image]], detector: Detector) -> Iterator[Path]:
    """Write a picture of each source with what the model sees, and with its rules; gives their paths.

    Raises:
        LookoutError: a picture cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with closing(detector.lane()) as lane:
            for source, image in pictures:
                path = folder / f"{source.id}.jpg"
                path.write_bytes(jpeg(with_view(drawn_on(lane.fetch(image)().bgr, source.rules), source)))
                yield path
    except OSError as error:
        raise LookoutError(f"--draw: {folder} cannot be written: {error.strerror}") from error
    except DetectorError as error:
        raise LookoutError(f"--draw: a picture cannot be read: {error}") from error


def with_view(picture: Picture, source: SourceConfig) -> Picture:
    """The picture with the region of interest and the tiles of its source; it is dark where the model sees nothing."""
    view = view_of(source)
    if view is None:
        return picture
    height, width = picture.shape[:2]
    place = placed(view, width, height)
    thick = max(2, round(width / 480))
    if place.edges:
        dark = (picture * _DARK).astype(np.uint8)
        corners = np.array([edge[:2] for edge in place.edges]).round().astype(np.int32)
        mask = cv2.fillPoly(np.zeros((height, width), np.uint8), [corners], 1)
        picture = np.where(mask[..., None] > 0, picture, dark)
        cv2.polylines(picture, [corners], True, _ROI, thick, cv2.LINE_AA)
    for left, top, across, down in place.regions:
        cv2.rectangle(picture, (left, top), (left + across - 1, top + down - 1), _TILE, max(1, thick // 2))
    return picture
