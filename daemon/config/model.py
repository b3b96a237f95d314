"""Keys of the model, of the GPU, and of classifiers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from daemon.config.section import Pixels, Seconds, Section, SourceId, Unit, absolute, anchored
from daemon.errors import ConfigError
from detectors.factory import Backend, Provider
from detectors.port import Precision, Transport
from detectors.semantics import Activation, BoxUnits, Semantics

Level = Annotated[float, msgspec.Meta(ge=0, le=255)]  # of a colour
Colour = tuple[Level, Level, Level]


class ModelConfig(Section, frozen=True):
    path: Path
    """an ONNX detection model of a family of docs/models.md, such as YOLO, RT-DETR, D-FINE, RF-DETR or DETR"""
    backend: Backend = "auto"
    """auto takes the best this machine has; trt-rtx, trt (docs/engines.md), cpu; ort: see provider; triton: a server;
    fake (for tests)"""
    provider: Provider | None = None
    """of onnxruntime: an accelerator that runs the model, by name alone: docs/operations.md"""
    provider_device: Annotated[str, msgspec.Meta(pattern=r"^[A-Z]+(\.[0-9]+)?$")] | None = None
    """such as GPU, NPU or GPU.1; null: the CPU of openvino, else GPU number `gpu.device`"""
    head: str = "auto"
    """how raw output becomes boxes; auto: as the file shows it; or a layout of docs/models.md: yolov5, yolov8, yolox,
    end2end, rtdetr, rfdetr, detr, detr-decoded, detr-rows, deepstream, classify"""
    mean: Colour | None = None
    """of colours from 0 to 1, such as [0.485, 0.456, 0.406]; null: as the file states it, or its family has it. A file
    of no certain family is refused without. Numbers above 1: of colours to 255"""
    std: Colour | None = None
    """like mean"""
    activation: Activation | None = None
    """of outputs that are logits: sigmoid, softmax; null: as the family has it"""
    box_units: BoxUnits | None = None
    """of boxes that the model has chosen: pixels, shares; null: as file or family have it"""
    first_class: Literal[0, 1] | None = None
    """1 for a model whose classes begin at 1; null: as file or family have it"""
    labels: str | None = None
    """null: the model's own; coco: the built-in 80; or a file of one label a line"""
    input_size: tuple[Pixels, Pixels] | None = None
    """[width, height], for a model whose input size is dynamic; of all sources without their own"""
    confidence: Unit = 0.25
    """weaker boxes are left out"""
    iou: Unit = 0.45
    """class-wise NMS: a box that overlaps a stronger one of its class by more is left out"""
    max_detections: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 300
    """a frame"""
    max_batch: Annotated[int, msgspec.Meta(ge=1, le=256)] = 8
    """frames in one inference at most; batches are as large as the load makes them"""
    threads: Annotated[int, msgspec.Meta(ge=0, le=1024)] = 0
    """CPU threads of one inference; 0 for all cores"""
    lanes: Annotated[int, msgspec.Meta(ge=1, le=16)] | None = None
    """of this model, where there are several; null: as the key lanes says"""
    precision: Precision = "auto"
    """or fp32, fp16, int8, fp8 (made by `lookout calibrate`); auto: as the file is; of a float file a GPU makes FP16"""
    builder_level: Annotated[int, msgspec.Meta(ge=0, le=5)] = 3
    """trt: 0-5, how long to look for the fastest engine; 1 took three minutes for YOLOv8n on an H200"""
    cache: Path | None = None
    """folder for built engines; null: $CACHE_DIRECTORY, which systemd sets, or ~/.cache/lookout"""
    open_timeout_s: Annotated[float, msgspec.Meta(gt=0, le=86_400)] = 900.0
    """a model that is not open by then, its engine built, is given up; the one that works goes on"""
    transport: Transport = "auto"
    """triton: shm, memory shared with a server on this host; http; auto: shm where the server takes it"""
    request_timeout_s: Annotated[float, msgspec.Meta(gt=0, le=3600)] = 5.0
    """triton: limit of one request; the server is then away, see docs/triton.md"""

    @property
    def semantics(self) -> Semantics:
        """Facts about its input and outputs that keys state."""
        return Semantics(self.mean, self.std, None, self.activation, self.box_units, self.first_class)

    def anchored(self, folder: Path) -> ModelConfig:
        """A copy with absolute paths."""
        return msgspec.structs.replace(anchored(self, folder), labels=_labels_at(self.labels, folder))


class GpuConfig(Section, frozen=True):
    device: Annotated[int, msgspec.Meta(ge=0, le=255)] = 0
    """which GPU"""
    memory_limit_mib: Annotated[int, msgspec.Meta(ge=1, le=1 << 24)] | None = None
    """such as 12288; null: all that is free. Fewer lanes or smaller batches are used to stay within; classifiers count,
    too"""
    frame_size: tuple[Pixels, Pixels] = (1920, 1080)
    """largest picture that memory is set aside for; a larger one takes more when it comes"""
    mps: Literal["auto", "off"] = "auto"
    """with several capture processes, NVIDIA's service that lets them and lanes run side by side; auto: where it is
    installed; off: they take turns on the GPU"""
    avoid_interrupts: bool = True
    """keep off a core that takes over 2,000 of the GPU's interrupts a second, if there are four or more"""


class ClassifierConfig(Section, frozen=True, kw_only=True):
    name: SourceId
    """of the attribute: letters, digits, '_', '.', '-'"""
    path: Path
    """a classifier"""
    mean: Colour | None = None
    """like model.mean. A classifier has no family, so mean and std are needed where its file does not state them"""
    std: Colour | None = None
    """likewise"""
    activation: Activation | None = None
    """none, sigmoid, softmax; null: softmax for logits"""
    labels: str | None = None
    """null: the model's own; or a file of one label a line"""
    model: SourceId | None = None
    """the name of the model whose labels these are, where there are several"""
    wanted: Annotated[list[str], msgspec.Meta(min_length=1)] = msgspec.field(name="for")
    """labels of the first model that it looks at"""
    fit: Literal["stretch", "letterbox", "cover"] = "stretch"
    """or letterbox, cover: how its input shows a box"""
    min_px: Pixels = 48
    """boxes with a shorter side are left out"""
    pad: Unit = 0.1
    """of the box, added on each side"""
    attempts: Annotated[int, msgspec.Meta(ge=1, le=100)] = 5
    """looks that have a vote"""
    agree: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.6
    """this share of them settles a value"""
    threshold: Unit = 0.8
    """a look that is less sure has no vote"""
    area_growth: Annotated[float, msgspec.Meta(ge=0.01, le=100)] | None = 0.2
    """look again when the box has grown by this share; null: never"""
    every_s: Seconds | None = None
    """look again after so many seconds; null: never"""
    max_batch: Annotated[int, msgspec.Meta(ge=1, le=256)] = 16
    """boxes in one inference at most"""
    max_pending: Annotated[int, msgspec.Meta(ge=1, le=4096)] = 64
    """looks that may wait; others are dropped as busy, and counted"""
    threads: Annotated[int, msgspec.Meta(ge=0, le=1024)] = 1
    """on a CPU; 0 for all cores"""
    precision: Precision = "auto"
    """like model.precision"""

    @property
    def semantics(self) -> Semantics:
        """See `ModelConfig.semantics`."""
        return Semantics(mean=self.mean, std=self.std, activation=self.activation)

    def anchored(self, folder: Path) -> ClassifierConfig:
        """A copy with absolute paths."""
        return msgspec.structs.replace(anchored(self, folder), labels=_labels_at(self.labels, folder))


def _labels_at(labels: str | None, folder: Path) -> str | None:
    return labels if labels in (None, "coco") else str(absolute(folder, Path(str(labels))))


def check_names(classifiers: Sequence[ClassifierConfig]) -> None:
    names: set[str] = set()
    for index, row in enumerate(classifiers):
        if not re.fullmatch(r"[A-Za-z0-9_.-]+", row.name):
            raise ConfigError(
                f"classifiers[{index}].name: {row.name!r} may hold letters, digits, '_', '.' and '-' only"
            )
        if row.name in names:
            raise ConfigError(f"classifiers[{index}].name: {row.name!r} is used twice; each classifier needs its own")
        names.add(row.name)
