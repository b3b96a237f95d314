"""Models that are known to work, with download addresses of their makers.

Lookout ships only its own demo model, because weights have licences of their own. Sizes and digests are those of the
release files. AP is COCO val2017, as published by the makers.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from daemon.errors import LookoutError
from detectors.model import digest_of
from detectors.port import DetectorError

DEMO = "demo"  # the model that comes with Lookout
_YOLOX = "https://github.com/Megvii-BaseDetection/YOLOX/releases/download/0.1.1rc0"
_YOLOV5 = "https://github.com/ultralytics/yolov5/releases/download/v7.0"


@dataclass(frozen=True)
class CatalogueEntry:
    """One model file.

    Attributes:
        url: of the makers' release.
        size: bytes.
        licence: of the weights, by its SPDX identifier.
        input: width and height, pixels.
        ap: COCO val2017 AP 0.50:0.95, percent.
        labels: for `model.labels`, if the file has none; None otherwise.
    """

    name: str
    url: str
    size: int
    sha256: str
    licence: str
    input: tuple[int, int]
    ap: float
    good_for: str
    labels: str | None = None

    @property
    def is_permissive(self) -> bool:
        """Whether the licence has no obligations for a service that runs the model."""
        return self.licence in ("Apache-2.0", "MIT", "BSD-3-Clause")


CATALOGUE = (
    CatalogueEntry(
        "yolox_nano",
        f"{_YOLOX}/yolox_nano.onnx",
        3_659_407,
        "c789161ed43c8269fcd4e67c67eeeb4e80c622da2eb296a20bc6007bd18a0b7d",
        "Apache-2.0",
        (416, 416),
        25.8,
        "first steps, and small machines without a GPU",
        "coco",
    ),
    CatalogueEntry(
        "yolox_tiny",
        f"{_YOLOX}/yolox_tiny.onnx",
        20_219_662,
        "427cc366d34e27ff7a03e2899b5e3671425c262ea2291f88bb942bc1cc70b0f7",
        "Apache-2.0",
        (416, 416),
        32.8,
        "a few cameras on a CPU",
        "coco",
    ),
    CatalogueEntry(
        "yolox_s",
        f"{_YOLOX}/yolox_s.onnx",
        35_858_002,
        "c5c2d13e59ae883e6af3b45daea64af4833a4951c92d116ec270d9ddbe998063",
        "Apache-2.0",
        (640, 640),
        40.5,
        "a GPU",
        "coco",
    ),
    CatalogueEntry(
        "yolov5n",
        f"{_YOLOV5}/yolov5n.onnx",
        3_981_910,
        "04f0e55c26f58d17145b36045780fe1250d5bd2187543e11568e5141d05b3262",
        "AGPL-3.0",
        (640, 640),
        28.0,
        "comparisons with other systems",
    ),
)


def entry_of(name: str) -> CatalogueEntry:
    """The catalogue's model with this name.

    Raises:
        LookoutError: there is none.
    """
    for entry in CATALOGUE:
        if entry.name == name:
            return entry
    names = ", ".join((*(entry.name for entry in CATALOGUE), DEMO))
    raise LookoutError(f"no model {name!r} in the catalogue: it has {names}; for your own file give its path")


def entry_with(path: Path) -> CatalogueEntry | None:
    """The entry whose file this is, whatever it is called; None if it is of no entry, or cannot be read."""
    try:
        size = path.stat().st_size
        same = [entry for entry in CATALOGUE if entry.size == size]
        digest = digest_of(path) if same and path.is_file() else ""
    except (OSError, DetectorError):  # whoever opens the model says so
        return None
    return next((entry for entry in same if entry.sha256 == digest), None)


def models_folder() -> Path:
    """The folder of downloaded models: $XDG_DATA_HOME/lookout/models."""
    home = os.environ.get("XDG_DATA_HOME") or ""
    base = Path(home) if Path(home).is_absolute() else Path.home() / ".local" / "share"
    return base / "lookout" / "models"


def path_of(entry: CatalogueEntry, folder: Path | None = None) -> Path:
    """The path of a downloaded model, whether it exists or not."""
    return (folder or models_folder()) / f"{entry.name}.onnx"
