"""Where draw_*.py put the pictures that they have drawn on: a window, or a file."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from contextlib import ExitStack, closing
from fractions import Fraction

import av
import cv2
import numpy as np
from live_pictures import pictures

from lookout.errors import LookoutError
from lookout.messages import Detections

MS = Fraction(1, 1000)
Draw = Callable[[np.ndarray, Detections], np.ndarray]


def show(_: int, picture: np.ndarray) -> bool:
    """Returns False when q was pressed."""
    try:
        cv2.imshow("Lookout", picture)
        return cv2.waitKey(1) != ord("q")
    except cv2.error:
        raise LookoutError("no window can be opened: pip install opencv-python, or --save FILE.mp4") from None


def saver(path: str, stack: ExitStack, picture: np.ndarray) -> Callable[[int, np.ndarray], bool]:
    """Returns what writes pictures of this size, each at its own time, until the stack is closed."""
    height, width = (side // 2 * 2 for side in picture.shape[:2])
    file = stack.enter_context(av.open(path, "w"))
    video = file.add_stream("libx264", rate=25, width=width, height=height, pix_fmt="yuv420p")
    video.codec_context.time_base = MS
    stack.callback(lambda: file.mux(video.encode()))
    at, last = 0, None

    def write(pts: int, picture: np.ndarray) -> bool:
        nonlocal at, last
        at, last = at + (max(1, (pts - last) // 10**6) if last is not None else 0), pts
        frame = av.VideoFrame.from_ndarray(picture[:height, :width], format="bgr24")
        frame.pts, frame.time_base = at, MS
        file.mux(video.encode(frame))
        return True

    return write


def run(draw: Draw, about: str) -> None:
    """Draw on the pictures of a source until Ctrl-C, or as many as are asked for."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", help="its id")
    parser.add_argument("--endpoint", default="tcp://127.0.0.1:5556")
    parser.add_argument("--save", metavar="FILE.mp4", help="instead of a window")
    parser.add_argument("--pictures", type=int, metavar="NUMBER", help="end after so many")
    args = parser.parse_args()
    drawn = analysed = 0
    put: Callable[[int, np.ndarray], bool] | None = None if args.save else show
    try:
        with ExitStack() as stack:
            for pts, picture, message in stack.enter_context(closing(pictures(args.endpoint, args.source))):
                put = put or saver(args.save, stack, picture)
                goes_on = put(pts, draw(picture, message) if message else picture)
                drawn, analysed = drawn + 1, analysed + (message is not None)
                if not goes_on or drawn == args.pictures:
                    break
    except KeyboardInterrupt:
        pass
    except (LookoutError, ValueError, OSError) as error:
        sys.exit(f"{error}")
    print(f"{drawn} pictures, {analysed} of them analysed")
