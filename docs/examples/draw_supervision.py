"""Live video of a source with its boxes, each drawn by supervision on the very picture that it was found in.

    pip install ./client av opencv-python supervision   # in a checkout; lookout-client, once an index has it
    python draw_supervision.py door              # a window, until q or Ctrl-C
    python draw_supervision.py door --save out.mp4 --pictures 250

Objects leave a trace where the daemon tracks them (`tracking.enabled: true`). The two files beside it, live_pictures.py
and drawn_pictures.py, are parts of it.
"""

from __future__ import annotations

import sys

try:
    import numpy as np
    import supervision as sv
    from drawn_pictures import run

    from lookout.messages import Detections
except ImportError as error:
    sys.exit(
        f"{error.name} is not installed: "
        "pip install lookout-client av opencv-python supervision; in a checkout: ./client"
    )

BOXES, LABELS, TRACES = sv.BoxAnnotator(), sv.LabelAnnotator(), sv.TraceAnnotator()


def as_supervision(message: Detections) -> sv.Detections:
    """The boxes of a message; with ids if all of them have one."""
    boxes = message.detections
    if not boxes:
        return sv.Detections.empty()
    ids = [box.track_id for box in boxes]
    return sv.Detections(
        xyxy=np.array([box.box for box in boxes], dtype=np.float32),
        confidence=np.array([box.confidence for box in boxes], dtype=np.float32),
        class_id=np.array([box.class_id for box in boxes]),
        tracker_id=None if None in ids else np.array(ids),
        data={"class_name": np.array([box.label for box in boxes])},
    )


def draw(picture: np.ndarray, message: Detections) -> np.ndarray:
    found = as_supervision(message)
    if found.tracker_id is not None:
        picture = TRACES.annotate(picture, found)
    labels = [f"{box.label} {box.confidence:.2f}" for box in message.detections]
    return LABELS.annotate(BOXES.annotate(picture, found), found, labels)


if __name__ == "__main__":
    run(draw, __doc__)
