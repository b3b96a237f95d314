"""Small objects with known boxes: pictures of 1920x1080 made of six photos each, which a detector shrinks by three.

    python -m tests.calibration.mosaic PHOTOS ANNOTATIONS.json OUT
    python -m tests.calibration.mosaic PHOTOS ANNOTATIONS.json OUT --size 3840x2160 --photos 2x2
    lookout evaluate --model MODEL.onnx --images OUT --annotations OUT/annotations.json

Each photo is in three pictures with different neighbours. Nothing is enlarged.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

_ROUNDS, _GREY = 3, 114
_Pair = tuple[int, int]


@dataclass
class _Mosaic:
    """Args:
    size: width and height of the picture.
    photos: columns and rows.
    """

    size: _Pair
    photos: _Pair
    boxes: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.pixels = np.full((self.size[1], self.size[0], 3), _GREY, np.uint8)

    def put(self, number: int, photo: npt.NDArray[np.uint8], boxes: list[dict[str, Any]]) -> None:
        """Draw a photo, shrunk to its part of the picture, with its boxes."""
        row, column = divmod(number, self.photos[0])
        width, height = self.size[0] // self.photos[0], self.size[1] // self.photos[1]
        top, left = row * height, column * width
        scale = min(width / photo.shape[1], height / photo.shape[0], 1.0)
        small = cv2.resize(photo, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA) if scale < 1 else photo
        self.pixels[top : top + small.shape[0], left : left + small.shape[1]] = small
        for box in boxes:
            x, y, w, h = (side * scale for side in box["bbox"])
            area = box.get("area", w * h / scale**2) * scale**2
            placed = {"bbox": [x + left, y + top, w, h], "area": area, "iscrowd": box.get("iscrowd", 0)}
            self.boxes.append({**placed, "category_id": box["category_id"]})


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("photos", type=Path)
    parser.add_argument("annotations", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--size", type=_pair, default=(1920, 1080))
    parser.add_argument("--photos", dest="grid", type=_pair, default=(3, 2))
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    known = json.loads(args.annotations.read_text())
    made: dict[str, list[dict[str, Any]]] = {"images": [], "annotations": [], "categories": known["categories"]}
    for number, mosaic in enumerate(_mosaics(args.photos, known, args.size, args.grid), 1):
        name = f"{number:04}.png"
        cv2.imwrite(str(args.out / name), mosaic.pixels)
        made["images"].append({"id": number, "file_name": name, "width": args.size[0], "height": args.size[1]})
        made["annotations"] += [{**box, "image_id": number} for box in mosaic.boxes]
    for number, box in enumerate(made["annotations"], 1):
        box["id"] = number
    (args.out / "annotations.json").write_text(json.dumps(made))


def _pair(text: str) -> _Pair:
    first, second = text.split("x")
    return int(first), int(second)


def _mosaics(photos: Path, known: dict[str, list[dict[str, Any]]], size: _Pair, grid: _Pair) -> Iterator[_Mosaic]:
    images = sorted(known["images"], key=lambda image: image["file_name"])
    boxes: dict[int, list[dict[str, Any]]] = {image["id"]: [] for image in images}
    for box in known["annotations"]:
        boxes[box["image_id"]].append(box)
    chance = np.random.default_rng(0)
    for _ in range(_ROUNDS):
        order = [images[index] for index in chance.permutation(len(images))]
        count = grid[0] * grid[1]
        for start in range(0, len(order) - count + 1, count):
            mosaic = _Mosaic(size, grid)
            for place, image in enumerate(order[start : start + count]):
                photo = np.asarray(cv2.imread(str(photos / image["file_name"])), np.uint8)
                mosaic.put(place, photo, boxes[image["id"]])
            yield mosaic


if __name__ == "__main__":
    main()
