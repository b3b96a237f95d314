"""Picture files."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray


def read_picture(path: Path) -> NDArray[np.uint8] | None:
    """A picture, (height, width, 3) BGR; None where the file is none, or cannot be read.

    OpenCV does not read the file itself: it ends the process at a name that is no UTF-8, and writes to the terminal.
    """
    if not path.is_file():
        return None
    try:
        content = np.frombuffer(path.read_bytes(), np.uint8)
    except OSError:
        return None
    picture = cv2.imdecode(content, cv2.IMREAD_COLOR) if content.size else None
    return None if picture is None else np.ascontiguousarray(picture, np.uint8)
