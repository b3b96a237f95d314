"""Keys of the model, of the GPU, and of classifiers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from daemon.config.section import Pixels, Seconds, Section, SourceId, Unit, absolute, anchored
from daemon.errors import ConfigError
from detectors.factory import Backend
from detectors.port import Precision, Transport
from detectors.semantics import Activation, BoxUnits, Semantics

Level = Annotated[float, msgspec.Meta(ge=0, le=255)]  # of a colour
Colour = tuple[Level, Level, Level]


class ModelConfig(Section, frozen=True):
    path: Path
    backend: Backend = "auto"
    head: str = "auto"
    mean: Colour | None = None
    std: Colour | None = None
    activation: Activation | None = None
    box_units: BoxUnits | None = None
    first_class: Literal[0, 1] | None = None
    labels: str | None = None
    input_size: tuple[Pixels, Pixels] | None = None
    confidence: Unit = 0.25
    iou: Unit = 0.45
    max_detections: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 300
    max_batch: Annotated[int, msgspec.Meta(ge=1, le=256)] = 8
    threads: Annotated[int, msgspec.Meta(ge=0, le=1024)] = 0
    precision: Precision = "auto"
    builder_level: Annotated[int, msgspec.Meta(ge=0, le=5)] = 3
    cache: Path | None = None
    open_timeout_s: Annotated[float, msgspec.Meta(gt=0, le=86_400)] = 900.0
    transport: Transport = "auto"
    request_timeout_s: Annotated[float, msgspec.Meta(gt=0, le=3600)] = 5.0

    @property
    def semantics(self) -> Semantics:
        """Facts about its input and outputs that keys state."""
        return Semantics(self.mean, self.std, None, self.activation, self.box_units, self.first_class)

    def anchored(self, folder: Path) -> ModelConfig:
        """A copy with absolute paths."""
        return msgspec.structs.replace(anchored(self, folder), labels=_labels_at(self.labels, folder))


class GpuConfig(Section, frozen=True):
    device: Annotated[int, msgspec.Meta(ge=0, le=255)] = 0
    memory_limit_mib: Annotated[int, msgspec.Meta(ge=1, le=1 << 24)] | None = None
    frame_size: tuple[Pixels, Pixels] = (1920, 1080)
    mps: Literal["auto", "off"] = "auto"
    avoid_interrupts: bool = True


class ClassifierConfig(Section, frozen=True, kw_only=True):
    name: SourceId
    path: Path
    mean: Colour | None = None
    std: Colour | None = None
    activation: Activation | None = None
    labels: str | None = None
    wanted: Annotated[list[str], msgspec.Meta(min_length=1)] = msgspec.field(name="for")
    fit: Literal["stretch", "letterbox", "cover"] = "stretch"
    min_px: Pixels = 48
    pad: Unit = 0.1
    attempts: Annotated[int, msgspec.Meta(ge=1, le=100)] = 5
    agree: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.6
    threshold: Unit = 0.8
    area_growth: Annotated[float, msgspec.Meta(ge=0.01, le=100)] | None = 0.2
    every_s: Seconds | None = None
    max_batch: Annotated[int, msgspec.Meta(ge=1, le=256)] = 16
    max_pending: Annotated[int, msgspec.Meta(ge=1, le=4096)] = 64
    threads: Annotated[int, msgspec.Meta(ge=0, le=1024)] = 1
    precision: Precision = "auto"

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
