"""Paths of files that come with Lookout: beside the packages in a checkout, under the prefix when installed."""

from __future__ import annotations

import sys
from pathlib import Path

from daemon.errors import LookoutError


def demo_model() -> Path:
    """Path of models/demo.onnx.

    Raises:
        LookoutError: the file is missing.
    """
    folders = (Path(__file__).resolve().parents[2] / "models", Path(sys.prefix) / "share" / "lookout" / "models")
    for folder in folders:
        if (folder / "demo.onnx").is_file():
            return folder / "demo.onnx"
    raise LookoutError(f"the demo model is missing from {folders[0]}: install Lookout again, or pass --model")
