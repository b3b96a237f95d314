"""The port every backend implements: a Detector opened once makes Lanes, one for each thread.

A Detector holds what threads may share (weights, an engine). A Lane holds what they may not (buffers, a
stream of commands, an execution context), is made, used and closed by one thread, and allocates nothing
per batch that it could have allocated before.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

import msgspec
import numpy as np
import numpy.typing as npt

from detectors.detections import Detections


class DetectorError(Exception):
    """A model or backend that cannot be used: one line saying what was seen and what to do next."""


class BackendUnavailableError(DetectorError):
    """This machine lacks what the backend needs; the text is the reason."""


@dataclass(frozen=True, slots=True)
class HostImage:
    """A picture in host memory.

    Attributes:
        bgr: (height, width, 3) uint8, C-contiguous, never written to after it is made.
    """

    bgr: npt.NDArray[np.uint8]

    @property
    def width(self) -> int:
        return int(self.bgr.shape[1])

    @property
    def height(self) -> int:
        return int(self.bgr.shape[0])


class DeviceImage(msgspec.Struct, frozen=True, gc=False):
    """A picture in the GPU's memory as NV12, which is what a hardware decoder leaves there.

    Attributes:
        luma: address of (height, width) uint8.
        chroma: address of (ceil(height / 2), 2 * ceil(width / 2)) uint8, U and V alternating.
        pitch: bytes from row to row, of both planes.
        width, height: pixels.
        bt709: matrix BT.709, otherwise BT.601.
        full_range: luma 0-255, otherwise 16-235.
        ready: handle of the event after which the planes are whole, 0 if they are. The planes must stay as they are
            until `Lane.detect` has returned.
        lease: whatever keeps the planes as they are for as long as it is held.
        turns: quarter turns clockwise that make it upright, 0 to 3; `width` and `height` are those of the upright
            picture, and the planes are as they were decoded.
    """

    luma: int
    chroma: int
    pitch: int
    width: int
    height: int
    bt709: bool = True
    full_range: bool = False
    ready: int = 0
    lease: object = None
    turns: int = 0


ENGINE = "engine"
Precision = Literal["auto", "fp32", "fp16", "int8", "fp8"]

Image = HostImage | DeviceImage
"""What a lane accepts. Pictures on a device are for the backend that runs there."""


Fetch = Callable[[], HostImage]
"""Waits for a picture that is on its way into host memory; from any thread, more than once. It raises DetectorError
where the picture cannot be had, such as when the lane was closed meanwhile."""


def on_host(image: Image) -> HostImage:
    """The picture, for a backend that reads host memory.

    Raises:
        DetectorError: it is on a device.
    """
    if isinstance(image, DeviceImage):
        raise DetectorError("this backend reads pictures in host memory alone: set the source's decode to cpu")
    return image


def at_hand(image: Image) -> Fetch:
    """What `Lane.fetch` gives of a picture that is in host memory already.

    Raises:
        DetectorError: it is on a device.
    """
    picture = on_host(image)
    return lambda: picture


def cache_folder(wish: Path | None = None) -> Path:
    """Where what is built from models is kept: as wished, or systemd's folder for it, or ~/.cache/lookout."""
    return wish or Path(os.environ.get("CACHE_DIRECTORY") or Path.home() / ".cache" / "lookout")


@dataclass(frozen=True)
class PostprocessParams:
    """Which boxes to return.

    Attributes:
        confidence: boxes below it are not returned.
        iou: class-wise NMS removes a box that overlaps a stronger one of its class by more.
        max_detections: at most so many boxes a picture, the strongest.
        multi_label: a box may be returned once for each class that reaches the threshold, as COCO AP is counted
            by convention; otherwise for its best class only.
    """

    confidence: float = 0.25
    iou: float = 0.45
    max_detections: int = 300
    multi_label: bool = False


@dataclass(frozen=True)
class Options:
    """How to open a model.

    Attributes:
        path: the ONNX file.
        head: name of the head, or "auto" to recognise it.
        labels: a file of one label a line, "coco" for the built-in list, or None for the model's own.
        input_size: width and height for a model whose input size is dynamic, pixels.
        wanted: which boxes to return.
        max_batch: at most so many pictures a batch.
        threads: CPU threads of one inference, 0 for all cores.
        precision: of the arithmetic; auto is the file's own where that is quantised, and else the backend's fastest
            that does not overflow on noise. What was taken is told in `ModelInfo.precision`; what it costs,
            `lookout calibrate` measures. int8 and fp8 are in the file or are not: asking for them only makes sure.
        builder_level: how long a backend that builds engines looks for the fastest, 0-5.
        cache: folder for what is built from the model; None for the usual one, see `cache_folder`.
        lanes: how many will be made.
        device: which GPU.
        memory_limit: bytes of the GPU's memory that may be used, None for what is free. A backend with memory of its
            own uses fewer lanes or smaller batches to stay within, and says so in `ModelInfo.notes`.
        frame_size: width and height of the largest picture that memory is set aside for; a larger one takes more.
    """

    path: Path
    head: str = "auto"
    labels: str | None = None
    input_size: tuple[int, int] | None = None
    wanted: PostprocessParams = PostprocessParams()
    max_batch: int = 8
    threads: int = 0
    precision: Precision = "auto"
    builder_level: int = 3
    cache: Path | None = None
    lanes: int = 1
    device: int = 0
    memory_limit: int | None = None
    frame_size: tuple[int, int] = (1920, 1080)


@dataclass(frozen=True)
class ModelInfo:
    """What was opened.

    Attributes:
        name: the file's stem.
        digest: first 12 hexadecimal digits of the file's SHA-256.
        precision: of the arithmetic, such as "fp32".
        backend: such as "cpu".
        head: how raw output becomes boxes, a name from `detectors.heads`.
        input_size: width and height, pixels.
        labels: one for each class.
        max_batch: at most so many pictures a batch.
        notes: what the user should know about choices made for them, one line each.
        lanes: at most so many may be made.
        memory: what the backend has planned to use of its device: name and bytes; `ENGINE` is its form of the
            model.
        startup: what opening took, in its order: name and seconds.
        gpu: number of the GPU whose pictures lanes take as they lie there (`DeviceImage`), None for host memory alone.
    """

    name: str
    digest: str
    precision: str
    backend: str
    head: str
    input_size: tuple[int, int]
    labels: tuple[str, ...]
    max_batch: int
    notes: tuple[str, ...] = ()
    lanes: int = 1
    memory: tuple[tuple[str, int], ...] = ()
    startup: tuple[tuple[str, float], ...] = ()
    gpu: int | None = None


@dataclass(frozen=True, slots=True)
class StageTimes:
    """Where one batch's time went, nanoseconds for the whole batch."""

    preprocess: int
    infer: int
    postprocess: int


class Lane(Protocol):
    """One thread's way through the detector."""

    def detect(self, images: Sequence[Image]) -> tuple[list[Detections], StageTimes]:
        """Detect on 1 to `max_batch` pictures of any sizes; one result for each, in their order.

        Raises:
            DetectorError: the backend failed; the lane can be used no more.
        """
        ...

    def fetch(self, image: Image) -> Fetch:
        """Begin to bring a picture into host memory, wherever it lies; the lane does not wait for it.

        Raises:
            DetectorError: it cannot be had.
        """
        ...

    def close(self) -> None:
        """Release what the lane holds; a second call does nothing."""
        ...


@runtime_checkable
class Prepares(Protocol):
    """A lane that shows what it would give its model."""

    def preprocess(self, images: Sequence[Image]) -> npt.NDArray[Any]: ...


class Detector(Protocol):
    """An opened model; threads share it."""

    @property
    def info(self) -> ModelInfo: ...

    def lane(self) -> Lane:
        """A new lane, for the calling thread only, warmed up and ready."""
        ...

    def sample(self, width: int, height: int) -> Image:
        """A picture of nothing, where lanes take pictures fastest from, to measure them with; kept until `close`."""
        ...

    def close(self) -> None:
        """Release the model; its lanes are closed before."""
        ...
