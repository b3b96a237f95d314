"""Drawn photos with their ground truth."""

from __future__ import annotations

import json
from pathlib import Path

import cv2

from daemon.sources.scene import LABELS, Scene


def labelled_streets(folder: Path, count: int) -> tuple[Path, Path]:
    """Photos, and their ground truth in a minimal COCO format."""
    truth: dict[str, list[dict[str, object]]] = {"images": [], "annotations": [], "categories": []}
    truth["categories"] = [{"id": 10 + number, "name": label} for number, label in enumerate(LABELS)]
    folder.mkdir(parents=True, exist_ok=True)
    for seed in range(count):
        scene = Scene(640, 360, seed=5000 + seed)
        cv2.imwrite(str(folder / f"{seed}.png"), scene.draw(3), [cv2.IMWRITE_PNG_COMPRESSION, 0])
        truth["images"].append({"id": seed, "file_name": f"{seed}.png", "width": 640, "height": 360})
        for box in scene.truth(3):
            x0, y0, x1, y1 = box.xyxy
            truth["annotations"].append(
                {
                    "id": len(truth["annotations"]) + 1,
                    "image_id": seed,
                    "category_id": 10 + LABELS.index(box.label),
                    "bbox": [x0, y0, x1 - x0, y1 - y0],
                }
            )
    (folder / "truth.json").write_text(json.dumps(truth))
    return folder, folder / "truth.json"
