"""Small objects with known boxes: pictures of 1920x1080 made of six photos each, which a detector shrinks by three.

    python -m tests.calibration.mosaic PHOTOS ANNOTATIONS.json OUT
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

_WIDTH, _HEIGHT, _COLUMNS, _ROWS, _ROUNDS, _GREY = 1920, 1080, 3, 2, 3, 114
_PLACES = [(row, column) for row in range(_ROWS) for column in range(_COLUMNS)]


@dataclass
class _Mosaic:
    pixels: npt.NDArray[np.uint8] = field(default_factory=lambda: np.full((_HEIGHT, _WIDTH, 3), _GREY, np.uint8))
    boxes: list[dict[str, Any]] = field(default_factory=list)

    def put(self, place: tuple[int, int], photo: npt.NDArray[np.uint8], boxes: list[dict[str, Any]]) -> None:
        """Draw a photo, shrunk to its part of the picture, with its boxes."""
        height, width = _HEIGHT // _ROWS, _WIDTH // _COLUMNS
        top, left = place[0] * height, place[1] * width
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
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    known = json.loads(args.annotations.read_text())
    made: dict[str, list[dict[str, Any]]] = {"images": [], "annotations": [], "categories": known["categories"]}
    for number, mosaic in enumerate(_mosaics(args.photos, known), 1):
        name = f"{number:04}.png"
        cv2.imwrite(str(args.out / name), mosaic.pixels)
        made["images"].append({"id": number, "file_name": name, "width": _WIDTH, "height": _HEIGHT})
        made["annotations"] += [{**box, "image_id": number} for box in mosaic.boxes]
    for number, box in enumerate(made["annotations"], 1):
        box["id"] = number
    (args.out / "annotations.json").write_text(json.dumps(made))


def _mosaics(photos: Path, known: dict[str, list[dict[str, Any]]]) -> Iterator[_Mosaic]:
    images = sorted(known["images"], key=lambda image: image["file_name"])
    boxes: dict[int, list[dict[str, Any]]] = {image["id"]: [] for image in images}
    for box in known["annotations"]:
        boxes[box["image_id"]].append(box)
    chance = np.random.default_rng(0)
    for _ in range(_ROUNDS):
        order = [images[index] for index in chance.permutation(len(images))]
        for start in range(0, len(order) - len(_PLACES) + 1, len(_PLACES)):
            mosaic = _Mosaic()
            for place, image in zip(_PLACES, order[start:]):
                photo = np.asarray(cv2.imread(str(photos / image["file_name"])), np.uint8)
                mosaic.put(place, photo, boxes[image["id"]])
            yield mosaic


if __name__ == "__main__":
    main()
