"""Models of Ultralytics: tiny, by its own exporter."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import ultralytics
import yaml
from torch import nn
from ultralytics.nn.modules import Conv

from tests.frameworks.expected import Expected
from tests.frameworks.inputs import Placing
from tests.frameworks.onnx_file import finish
from tests.frameworks.runtime import OtherVersionError
from tests.frameworks.weights import Spread, batch, settle
from tests.frameworks.yolo_results import expected

LABELS = ("amber", "birch", "cedar", "dahlia", "elm", "fir")
_TINY = [0.01, 0.0625, 128]  # of depth and width, and the most channels
_QUERIES = [16, 60, 4, 2, 2, 32]  # width, queries, heads, points, layers and width of a decoder
_SHARES = (0.008, 0.02, 0.04)  # of the places of strides 8, 16 and 32, for each class


@dataclass(frozen=True)
class Yolo:
    """One export.

    Attributes:
        source: Ultralytics' name of the architecture.
        classes: their number.
        block: the only block before the head, of the family's kind; "" keeps all layers of the architecture.
        changes: to the architecture.
        share: of places with a box, over the usual one.
        seed: of the random weights.
        placing: of pictures.
        options: of the export, besides those of all exports.
        version: of Ultralytics, its beginning.
    """

    source: str
    classes: int = 4
    block: str = ""
    changes: Mapping[str, Any] = field(default_factory=dict)
    share: float = 1.0
    seed: int = 5
    placing: Placing = field(default_factory=lambda: Placing("letterbox"))
    options: Mapping[str, Any] = field(default_factory=dict)
    version: str = "8.4."

    def export(self, path: Path) -> None:
        """Write the file."""
        if not ultralytics.__version__.startswith(self.version):
            raise OtherVersionError(f"needs ultralytics {self.version}x, and {ultralytics.__version__} is installed")
        with tempfile.TemporaryDirectory() as folder, _inside(folder):
            model = self.model()
            size = [self.placing.height, self.placing.width]
            given = {"format": "onnx", "imgsz": size, "dynamic": True, **self.options}
            made = model.export(**given)
            shutil.copy(made, path)
        finish(path)

    def expected(self, path: Path) -> Expected:
        """The results for all pictures."""
        return expected(path, self.placing)

    def model(self) -> Any:
        """The model, with its random weights; the same every time."""
        torch.manual_seed(self.seed)
        (described,) = (Path(ultralytics.__file__).parent / "cfg" / "models").rglob(f"{self.source}.yaml")
        layers = yaml.safe_load(described.read_text())
        layers.update(nc=self.classes, scales={"n": _TINY}, **self.changes)
        *_, (_, _, head, options) = layers["head"]
        if self.block:
            layers["backbone"], layers["head"] = _short(self.block), [[[3, 4, 5], 1, head, options]]
        if head == "RTDETRDecoder":
            options += _QUERIES
        elif head.startswith("Segment"):
            options[1] = 8
        name = Path(f"{self.source}-tiny.yaml".replace("yolov8-", "yolov8n-"))
        name.write_text(yaml.safe_dump(layers))
        family = ultralytics.RTDETR if "rtdetr" in self.source else ultralytics.YOLO
        model = family(str(name))
        network = model.model
        network.names = dict(enumerate(LABELS[: self.classes]))
        pictures = batch(self.placing)
        _differ(network.model[-1])
        if head == "v10Detect":
            _narrow(network.model[-1])
        settle(network, pictures)
        _aim(network, pictures, self.share)
        return model


@contextlib.contextmanager
def _inside(folder: str) -> Iterator[None]:
    """Ultralytics writes to the working directory."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def _short(block: str) -> list[list[Any]]:
    """Layers of which numbers 3, 4 and 5 have strides of 8, 16 and 32."""
    first, second, third, fourth, fifth = ([-1, 1, "Conv", [64 << level, 3, 2]] for level in range(5))
    return [first, second, third, [-1, 1, block, [256]], fourth, fifth]


def _differ(head: Any) -> None:
    """The second branch of a head is a copy of the first; change its weights."""
    for name, weights in head.named_parameters():
        if name.startswith("one2one_") and weights.dim() > 1:
            with torch.no_grad():
                weights.add_(torch.randn_like(weights) * weights.std())


def _narrow(head: Any) -> None:
    """The layers of boxes get 16 channels, where version 10 has no fewer than 64."""
    for parts in (head.cv2, head.one2one_cv2):
        for number, (first, _, last) in enumerate(parts):
            layers = Conv(first.conv.in_channels, 16, 3), Conv(16, 16, 3), nn.Conv2d(16, last.out_channels, 1)
            parts[number] = nn.Sequential(*layers)


def _aim(network: Any, pictures: Any, share: float) -> None:
    head = network.model[-1]
    if hasattr(head, "linear"):
        Spread(network, [head.linear], pictures).aim(head.linear, -3.0, 3.0)
    elif hasattr(head, "dec_score_head"):
        _aim_transformer(network, pictures, share)
    else:
        for branch in ("", "one2one_") if hasattr(head, "one2one_cv2") else ("",):
            _aim_branch(network, branch, pictures, share)


def _aim_branch(network: Any, branch: str, pictures: Any, share: float) -> None:
    head = network.model[-1]
    boxes, scores = ([part[-1] for part in getattr(head, branch + name)] for name in ("cv2", "cv3"))
    if hasattr(head, "cv4_kpts"):
        extras = list(getattr(head, branch + "cv4_kpts"))
    else:
        extras = [part[-1] for part in getattr(head, branch + "cv4")] if hasattr(head, "cv4") else []
    spread = Spread(network, [*boxes, *scores, *extras], pictures)
    for level, layer in enumerate(scores):
        spread.aim_scores(layer, _SHARES[level] * share)
    for layer in boxes:
        _aim_distances(spread, layer, head.reg_max)
    for level, layer in enumerate(extras):
        _aim_extras(spread, layer, head, 1.0 / (level + 1))


def _aim_distances(spread: Spread, layer: Any, bins: int) -> None:
    """Sides lie half a cell to a few cells from the centre."""
    if bins == 1:
        spread.aim(layer, torch.empty(4).uniform_(0.2, 0.5), torch.empty(4).uniform_(2.5, 4.5), rare=0.001)
        return
    near = torch.empty(4, 1).uniform_(0.6, 2.0)
    likely = (-0.8 * (torch.arange(bins) - near).abs()).reshape(-1)
    spread.aim(layer, likely - 2.5, likely + 2.5)


def _aim_extras(spread: Spread, layer: Any, head: Any, near: float) -> None:
    channels = spread.channels[layer].shape[1]
    if hasattr(head, "kpt_shape"):
        points, values = head.kpt_shape
        low, high = (
            torch.empty(points, values).uniform_(-5, 0) * near,
            torch.empty(points, values).uniform_(0, 5) * near,
        )
        if values == 3:
            low[:, 2], high[:, 2] = -2.0, 3.0
        spread.aim(layer, low.reshape(-1), high.reshape(-1))
    elif channels == 1:
        spread.aim(layer, -2.5, 3.0)
    else:
        spread.aim(layer, torch.empty(channels).uniform_(-3, -1), torch.empty(channels).uniform_(1, 3))


def _aim_transformer(network: Any, pictures: Any, share: float) -> None:
    head = network.model[-1]
    for layer in (head.enc_bbox_head.layers[-1], *(part.layers[-1] for part in head.dec_bbox_head)):
        nn.init.normal_(layer.weight, 0.0, 0.1)
    first = Spread(network, [head.enc_score_head, head.enc_bbox_head.layers[-1]], pictures)
    first.aim(head.enc_score_head, -2.0, 2.0)
    first.aim(head.enc_bbox_head.layers[-1], torch.tensor([-0.6, -0.6, 0.0, 0.0]), torch.tensor([0.6, 0.6, 2.0, 2.0]))
    for part in head.dec_bbox_head:
        Spread(network, [part.layers[-1]], pictures).aim(part.layers[-1], -0.6, 0.8)
    Spread(network, [head.dec_score_head[-1]], pictures).aim_scores(head.dec_score_head[-1], 0.04 * share)


_BINS = {"reg_max": 4}
_POINTS = {"reg_max": 4, "kpt_shape": [5, 3]}
_FEW_POINTS = {"kpt_shape": [3, 3]}
_FREE = {"nms": False}  # the head that needs no NMS; None is the raw output, and True adds NMS to the graph
_NMS = {"nms": True, "batch": 4, "conf": 0.25, "iou": 0.45}
_STRETCHED = Placing("stretch")
_STATIC = {"dynamic": False, "opset": 17}
_WIDE, _TALL = Placing("letterbox", 128, 96), Placing("letterbox", 96, 128)
MODELS = {
    "yolov5u": Yolo("yolov5", 5, "C3", _BINS, share=0.55, seed=2),
    "yolov8": Yolo("yolov8", 6, "", _BINS, share=0.6),
    "yolov8-nms": Yolo("yolov8", 6, "C2f", _BINS, options=_NMS, share=0.7),
    "yolo11": Yolo("yolo11", 3, "", _BINS, placing=_TALL),
    "yolov10-end2end": Yolo("yolov10n", 4, "", options=_FREE, share=0.6),
    "yolo26": Yolo("yolo26", 5, "C3k2", share=0.7),
    "yolo26-end2end": Yolo("yolo26", 5, "", options=_FREE, share=0.4),
    "yolov8-pose": Yolo("yolov8-pose", 1, "C2f", _POINTS, share=1.3),
    "yolo11-pose": Yolo("yolo11-pose", 2, "C3k2", {"reg_max": 4, "kpt_shape": [4, 2]}),
    "yolo26-pose": Yolo("yolo26-pose", 1, "C3k2", _FEW_POINTS, share=1.6),
    "yolo26-pose-end2end": Yolo("yolo26-pose", 1, "C3k2", _FEW_POINTS, options=_FREE, share=1.6),
    "yolov8-obb": Yolo("yolov8-obb", 4, "C2f", _BINS, share=0.8),
    "yolo11-obb": Yolo("yolo11-obb", 3, "C3k2", _BINS),
    "yolo26-obb": Yolo("yolo26-obb", 4, "C3k2", share=0.7),
    "yolo26-obb-end2end": Yolo("yolo26-obb", 4, "C3k2", options=_FREE, share=0.35),
    "yolov8-seg": Yolo("yolov8-seg", 3, "C2f", _BINS, placing=_WIDE, share=1.5),
    "yolo11-seg": Yolo("yolo11-seg", 4, "C3k2", _BINS, share=0.8),
    "yolo26-seg": Yolo("yolo26-seg", 4, "C3k2", share=0.8),
    "yolo26-seg-end2end": Yolo("yolo26-seg", 4, "C3k2", options=_FREE, share=0.6),
    "yolov8-cls": Yolo("yolov8-cls", 6, placing=Placing("crop", 96, 96, 96)),
    "rtdetr-ultralytics": Yolo("yolov8-rtdetr", 4, "C2f", placing=_STRETCHED, share=0.7),
    "rtdetr-ultralytics-8.3": Yolo("yolov8-rtdetr", 3, "C2f", placing=_STRETCHED, options=_STATIC, version="8.3."),
}
