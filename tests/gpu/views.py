"""Regions and tiles of decoded pictures: boxes by the kernel that reads NV12, against those of parts in host memory.

    python -m tests.gpu.views MODEL.onnx PHOTOS --labels coco --cache DIR [--builder-level 1]

Photos are turned by each quarter, as cameras turn them. Subsampled chroma changes some boxes; so the share of
strong boxes that both find (IoU >= 0.75) is compared with the share in whole pictures, and may be 3 % lower.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from itertools import islice
from pathlib import Path

import cv2
import numpy as np
import numpy.typing as npt
import structlog

from detectors.cuda import DeviceBuffer, Stream
from detectors.matching import match
from detectors.port import DeviceImage, HostImage, Lane, Options, PostprocessParams, Region
from detectors.trt.detector import TrtDetector
from detectors.views import Limits, Tiling, detect
from tests.support.kernels import nv12_of

_Cut = Callable[[int, int], Sequence[Region]]
_STRONG, _LESS, _OVERLAP = 0.5, 0.03, 0.75
_LIMITS = Limits(0.45, 300)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=Path)
    parser.add_argument("photos", type=Path)
    parser.add_argument("--labels", default="coco")
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--builder-level", type=int, default=1)
    parser.add_argument("--max-batch", type=int, default=8)
    parser.add_argument("--photos-of", type=int, default=24, help="number of photos")
    args = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(30))
    options = Options(args.model, labels=args.labels, wanted=PostprocessParams(0.25), precision="fp16")
    options = replace(options, max_batch=args.max_batch, cache=args.cache, builder_level=args.builder_level)
    met, required = True, 0.9
    with closing(TrtDetector(options)) as detector, closing(detector.lane()) as lane:
        for name, cut in _CUTS.items():
            strong = found = 0
            for number, path in enumerate(islice(sorted(args.photos.iterdir()), args.photos_of)):
                one, other = _compare(lane, path, number % 4, cut)
                strong, found = strong + one, found + other
            share = found / max(1, strong)
            good = share >= required
            required, met = max(required, share - _LESS), met and good
            sys.stdout.write(f"{name:24} {found} of {strong} strong boxes{'' if good else ' (!)'}\n")
    return int(not met)


def _whole(width: int, height: int) -> Sequence[Region]:
    return (Region(0, 0, width, height),)


def _odd_region(width: int, height: int) -> Sequence[Region]:
    return (Region(width // 7 | 1, height // 9 | 1, width // 2 | 1, height * 2 // 3 | 1),)


def _tiles(width: int, height: int) -> Sequence[Region]:
    return Tiling(2, 2, 0.1).regions(Region(0, 0, width, height))


_CUTS: dict[str, _Cut] = {"whole": _whole, "region, odd corners": _odd_region, "tiles 2x2 and whole": _tiles}


def _compare(lane: Lane, path: Path, turns: int, cut: _Cut) -> tuple[int, int]:
    """Strong boxes in host memory, and those that the decoded picture gives as well."""
    photo = cv2.imread(str(path))
    assert photo is not None
    even = np.ascontiguousarray(photo[: photo.shape[0] // 2 * 2, : photo.shape[1] // 2 * 2], np.uint8)
    upright = np.ascontiguousarray(np.rot90(even, -turns))
    regions = cut(upright.shape[1], upright.shape[0])
    with ExitStack() as stack:
        image = _on_device(even, turns, stack)
        (here,), _ = detect(lane, [HostImage(upright)], [regions], 8, _LIMITS)
        (there,), _ = detect(lane, [image], [regions], 8, _LIMITS)
    strong = here[here.confidence > _STRONG]
    return len(strong), len(match(strong.xyxy, strong.class_id, there.xyxy, there.class_id, _OVERLAP))


def _on_device(picture: npt.NDArray[np.uint8], turns: int, stack: ExitStack) -> DeviceImage:
    nv12 = nv12_of(picture, bt709=True, full_range=False)
    stream = Stream()
    stack.callback(stream.close)
    buffer = DeviceBuffer(nv12.luma.nbytes + nv12.chroma.nbytes)
    stack.callback(buffer.close)
    buffer.upload(nv12.luma, stream)
    buffer.upload(nv12.chroma, stream, nv12.luma.nbytes)
    stream.synchronize()
    height, width = nv12.luma.shape
    shown = (width, height) if turns % 2 == 0 else (height, width)
    return DeviceImage(buffer.pointer, buffer.pointer + nv12.luma.nbytes, width, *shown, turns=turns)


if __name__ == "__main__":
    sys.exit(main())
