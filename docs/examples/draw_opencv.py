"""Live video of a source with its boxes, each drawn by OpenCV on the very picture that it was found in.

    pip install ./client av opencv-python   # in a checkout; lookout-client, once an index has it
    python draw_opencv.py door                   # a window, until q or Ctrl-C
    python draw_opencv.py door --save out.mp4 --pictures 250

The two files beside it, live_pictures.py and drawn_pictures.py, are parts of it.
"""

from __future__ import annotations

import sys

try:
    import cv2
    import numpy as np
    from drawn_pictures import run

    from lookout.messages import Detections
except ImportError as error:
    sys.exit(f"{error.name} is not installed: pip install lookout-client av opencv-python; in a checkout: ./client")

GREEN = (90, 200, 60)


def draw(picture: np.ndarray, message: Detections) -> np.ndarray:
    for box in message.detections:
        x1, y1, x2, y2 = (round(value) for value in box.box)
        cv2.rectangle(picture, (x1, y1), (x2, y2), GREEN, 2)
        name = box.label if box.track_id is None else f"{box.label} {box.track_id}"
        cv2.putText(picture, f"{name} {box.confidence:.2f}", (x1, y1 - 5), cv2.FONT_HERSHEY_SIMPLEX, 0.45, GREEN, 1)
    return picture


if __name__ == "__main__":
    run(draw, __doc__)
