"""Where the files that come with Lookout lie: beside the packages in a checkout, under the prefix when installed."""

from __future__ import annotations

import sys
from pathlib import Path

from daemon.errors import LookoutError


def demo_model() -> Path:
    """models/demo.onnx.

    Raises:
        LookoutError: it is not there.
    """
    places = (Path(__file__).resolve().parents[2] / "models", Path(sys.prefix) / "share" / "lookout" / "models")
    for place in places:
        if (place / "demo.onnx").is_file():
            return place / "demo.onnx"
    raise LookoutError(f"the demo model is missing from {places[0]}: install Lookout again, or pass --model")
