"""Model files that have no labels in them, known by their digest whatever they are called."""

from __future__ import annotations

from pathlib import Path

from detectors.port import DetectorError
from detectors.weights import digest_of

# SHA-256 and bytes of the makers' release files, and `model.labels` of them.
LABELS = {
    ("c789161ed43c8269fcd4e67c67eeeb4e80c622da2eb296a20bc6007bd18a0b7d", 3_659_407): "coco",  # yolox_nano
    ("427cc366d34e27ff7a03e2899b5e3671425c262ea2291f88bb942bc1cc70b0f7", 20_219_662): "coco",  # yolox_tiny
    ("c5c2d13e59ae883e6af3b45daea64af4833a4951c92d116ec270d9ddbe998063", 35_858_002): "coco",  # yolox_s
}
SIZES = {size for _, size in LABELS}


def labels_of(path: Path) -> str | None:
    """The labels of a known file; None of any other, and of what cannot be read."""
    try:
        if not path.is_file() or path.stat().st_size not in SIZES:
            return None
        content = path.read_bytes()
        return LABELS.get((digest_of(path, content), len(content)))
    except (OSError, DetectorError):  # whoever opens the model says so
        return None
