"""What Ultralytics finds in the outputs of a model's file: its predictors do the work."""

from __future__ import annotations

from ast import literal_eval
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import ultralytics
from ultralytics.models.rtdetr import RTDETRPredictor
from ultralytics.models.yolo.classify import ClassificationPredictor
from ultralytics.models.yolo.detect import DetectionPredictor
from ultralytics.models.yolo.obb import OBBPredictor
from ultralytics.models.yolo.pose import PosePredictor
from ultralytics.models.yolo.segment import SegmentationPredictor
from ultralytics.utils.ops import process_mask

from tests.frameworks.expected import FINELY_MASKED, MASKED, Expected, key_points, nothing
from tests.frameworks.inputs import Floats, Placing
from tests.frameworks.runtime import Session, Thresholds, pictures
from tests.frameworks.table import BOX, RANKED, TOP, Gathered, best_near, facts_of


class _Masks(SegmentationPredictor):  # type: ignore[misc]
    """Keeps the masks at the size of the prototypes too."""

    def construct_result(self, pred: Any, img: Any, orig_img: Any, img_path: str, proto: Any) -> Any:
        inner = pred.clone()
        fine, coarse = (
            process_mask(proto, inner[:, 6:], inner[:, :4], img.shape[2:], upsample=upsample)
            for upsample in (True, False)
        )
        result = super().construct_result(pred, img, orig_img, img_path, proto)
        result.coarse = coarse[fine.amax((-2, -1)) > 0]
        return result


_PREDICTORS = {
    "detect": DetectionPredictor,
    "pose": PosePredictor,
    "obb": OBBPredictor,
    "segment": _Masks,
    "classify": ClassificationPredictor,
}


class Predictor:
    """The predictor of a model's file.

    Attributes:
        task: of the model.
        columns: the names of those of its rows.
    """

    def __init__(self, metadata: dict[str, str], thresholds: Thresholds) -> None:
        self.task = metadata["task"]
        given = {"conf": thresholds.confidence, "iou": thresholds.iou, "max_det": thresholds.most, "task": self.task}
        transformer = metadata.get("head") == "RTDETRDecoder" or "rtdetr" in metadata["description"]
        kind = RTDETRPredictor if transformer else _PREDICTORS[self.task]
        self._predictor = kind(overrides={**given, "agnostic_nms": False, "mode": "predict"})
        points = literal_eval(metadata.get("kpt_shape", "[0, 0]"))
        self._predictor.model = SimpleNamespace(
            names=literal_eval(metadata["names"]),
            kpt_shape=points,
            # As Ultralytics reads it: a model with NMS inside counts as end to end.
            end2end=metadata.get("end2end") == "True" or bool(literal_eval(metadata["args"])["nms"]),
        )
        self._predictor.batch = [["picture"]]
        more = {"obb": ("cx", "cy", "w", "h", "angle"), "pose": key_points(*points)}
        self.columns = RANKED if self.task == "classify" else (*BOX, *more.get(self.task, ()))

    def result(self, outputs: list[npt.NDArray[Any]], planes: Floats, pixels: npt.NDArray[np.uint8]) -> Any:
        tensors = [torch.from_numpy(output.copy()) for output in outputs]
        given = tensors if self.task == "segment" else tensors[0]
        (result,) = self._predictor.postprocess(given, torch.from_numpy(planes), [pixels])
        return result

    def rows(self, result: Any) -> Floats:
        """The rows of a result, without the number of the picture."""
        if self.task == "classify":
            best = result.probs.data.argsort(descending=True)[:TOP]
            table = torch.stack((result.probs.data[best], best.float()), 1)
        elif self.task == "obb":
            obb = result.obb
            table = torch.cat((obb.xyxy, obb.conf[:, None], obb.cls[:, None], obb.xywhr), 1)
        elif self.task == "pose":
            table = torch.cat((result.boxes.data, result.keypoints.data.flatten(1)), 1)
        else:
            table = result.boxes.data
        return np.asarray(table.numpy(), np.float32)


def expected(path: Path, placing: Placing) -> Expected:
    """The results for all pictures."""
    session, thresholds = Session(path), Thresholds()
    predictor = Predictor(session.metadata, thresholds)
    near = [Predictor(session.metadata, other) for other in thresholds.near()]
    gathered = Gathered()
    masks, fine = [nothing(0, placing.height // 4, placing.width // 4)], [nothing(0, placing.height, placing.width)]
    for number, (pixels, planes) in enumerate(pictures(placing)):
        outputs = session.run(planes)
        result = predictor.result(outputs, planes, pixels)
        others = (other.rows(other.result(outputs, planes, pixels)) for other in near)
        gathered.add(predictor.rows(result), best_near(outputs[0]) if predictor.task == "classify" else others)
        if predictor.task == "segment" and number < MASKED and result.masks is not None:
            masks.append(result.coarse.numpy() > 0)
            if number < FINELY_MASKED:
                fine.append(result.masks.data.numpy() > 0)
    facts = facts_of(f"ultralytics {ultralytics.__version__}", predictor.columns, placing, thresholds)
    return gathered.expected(facts, np.concatenate(masks), np.concatenate(fine))
