"""The port of every backend: a Detector is opened once and makes Lanes, one per thread.

A Detector holds what threads share: weights, an engine. A Lane holds what they do not: buffers, a stream, an execution
context. One thread makes, uses and closes a lane. A lane allocates at its start, not per batch.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import msgspec
import numpy as np
import numpy.typing as npt

from detectors.detections import Detections
from detectors.letterbox import Fit, Letterbox
from detectors.semantics import NOTHING_KNOWN, Fact, Semantics


class DetectorError(Exception):
    """A model or backend that cannot be used: one line with the cause and the remedy."""


class BackendUnavailableError(DetectorError):
    """This machine lacks something the backend needs; the text says what."""


class DetectorUnavailableError(DetectorError):
    """The server of a model gives no results now. The pictures have none; the lane stays usable, and works again when
    the server is back."""


class Region(NamedTuple):
    """A rectangle of a picture, upright, in pixels."""

    left: int
    top: int
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class HostImage:
    """A picture in host memory.

    Attributes:
        bgr: (height, width, 3) uint8, C-contiguous, or a region of such an array; not written to after construction.
        corrupt: the decoder found errors in it.
    """

    bgr: npt.NDArray[np.uint8]
    corrupt: bool = field(default=False, kw_only=True)

    @property
    def width(self) -> int:
        return int(self.bgr.shape[1])

    @property
    def height(self) -> int:
        return int(self.bgr.shape[0])

    def cropped(self, region: Region) -> HostImage:
        """A region of the picture, without a copy."""
        left, top, width, height = region
        return HostImage(self.bgr[top : top + height, left : left + width])


class DeviceImage(msgspec.Struct, frozen=True, gc=False):
    """A picture in GPU memory as NV12, the output format of hardware decoders.

    Attributes:
        luma: address of (height, width) uint8.
        chroma: address of (ceil(height / 2), 2 * ceil(width / 2)) uint8, U and V alternating.
        pitch: bytes per row, of both planes.
        width, height: pixels.
        bt709: matrix BT.709, otherwise BT.601.
        full_range: luma 0-255, otherwise 16-235.
        ready: handle of an event that completes when the planes are complete; 0 if they are. The planes must not change
            before `Lane.detect` returns.
        lease: an object that keeps the planes unchanged while it is referenced.
        turns: quarter turns clockwise to make the picture upright, 0 to 3. `width` and `height` are of the upright
            picture, the planes as decoded.
        odd_x, odd_y: 1 if the picture is a region whose first column or row, as decoded, is the second one of its
            chroma sample; otherwise 0.
        corrupt: as in `HostImage`.
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
    odd_x: int = 0
    odd_y: int = 0
    corrupt: bool = False

    def cropped(self, region: Region) -> DeviceImage:
        """A region of the picture, without a copy."""
        left, top, width, height = region
        right, below = self.width - left - width, self.height - top - height
        column, row = ((left, top), (top, right), (right, below), (below, left))[self.turns]
        # Luma and chroma begin where the picture does, so `odd_x` and `odd_y` count from the chroma sample.
        across, down = column + self.odd_x, row + self.odd_y
        return msgspec.structs.replace(
            self,
            luma=self.luma + row * self.pitch + column,
            chroma=self.chroma + down // 2 * self.pitch + across // 2 * 2,
            width=width,
            height=height,
            odd_x=across % 2,
            odd_y=down % 2,
        )


class PreparedImage(msgspec.Struct, frozen=True, gc=False):
    """A part of a picture as the model reads it, in memory of the detector that made it.

    Attributes:
        pointer: address of one input of the model.
        place: of the part in the input.
        ready: handle of an event that completes when the input is complete.
        lease: an object that keeps the input unchanged while it is referenced.
    """

    pointer: int
    place: Letterbox
    ready: int
    lease: object


ENGINE = "engine"
Transport = Literal["auto", "shm", "http"]
Precision = Literal["auto", "fp32", "fp16", "int8", "fp8"]

Size = tuple[int, int]
"""Width and height in pixels."""

Image = HostImage | DeviceImage
"""A picture in host memory, or on the backend's own device."""


Fetch = Callable[[], HostImage]
"""Waits for a picture on its way to host memory. May be called by any thread, more than once. Raises DetectorError if
the picture cannot be fetched, for example because the lane was closed."""


def on_host(image: Image | PreparedImage) -> HostImage:
    """The picture, for backends that read host memory only.

    Raises:
        DetectorError: the picture is on a device.
    """
    if not isinstance(image, HostImage):
        raise DetectorError("this backend reads host memory only: set the source's decode to cpu")
    return image


def fetched(image: Image) -> Fetch:
    """A `Fetch` for a picture in host memory: it has a copy, for a capture lends that memory, and has little.

    Raises:
        DetectorError: the picture is on a device.
    """
    lent = on_host(image)
    picture = replace(lent, bgr=lent.bgr.copy())
    return lambda: picture


def is_address(path: Path) -> bool:
    """Whether `Options.path` is an address. A `Path` has one slash where the address has two."""
    return str(path).startswith("http:/")


def cache_folder(folder: Path | None = None) -> Path:
    """The folder for files built from models: the given one, systemd's cache directory, or ~/.cache/lookout."""
    return folder or Path(os.environ.get("CACHE_DIRECTORY") or Path.home() / ".cache" / "lookout")


@dataclass(frozen=True)
class PostprocessParams:
    """Limits of postprocessing.

    Attributes:
        confidence: minimum confidence of a box.
        iou: NMS removes a box whose IoU with a stronger box of its class is higher.
        max_detections: maximum number of boxes per picture; the strongest remain.
        multi_label: return a box once for each class above the threshold, COCO's convention for AP; otherwise only for
            its best class.
    """

    confidence: float = 0.25
    iou: float = 0.45
    max_detections: int = 300
    multi_label: bool = False


@dataclass(frozen=True)
class Options:
    """How to open a model.

    Attributes:
        path: the ONNX file; for triton the address of a model, http://HOST:PORT/NAME.
        head: name of the head, or "auto" to recognise it.
        labels: a file with one label per line, "coco" for the built-in list, or None for the model's own.
        input_size: width and height in pixels, for a model with a dynamic input size.
        further_sizes: at which it is opened beside its own, see `SizedLane`.
        wanted: limits of postprocessing.
        max_batch: maximum number of pictures per batch.
        threads: CPU threads of one inference, 0 for all cores.
        precision: auto: a quantised file's own precision; otherwise the backend's fastest one that does not overflow on
            noise. `ModelInfo.precision` has the result. int8 and fp8 only check that the file has that precision.
        builder_level: effort of an engine builder to find fast kernels, 0-5.
        cache: folder for files built from the model; None for the default, see `cache_folder`.
        lanes: number of lanes that will be made.
        device: number of the GPU.
        memory_limit: bytes of GPU memory that may be used; None for all free memory. The backend reduces lanes or
            batches to stay within it, and says so in `ModelInfo.notes`.
        reserved: bytes of GPU memory that other models of this process have or will take.
        parts: parts of pictures that may wait for a second model beside another one; 0 for a first model.
        frame_size: width and height of the largest picture with reserved memory; a larger one allocates more.
        fit: how a classifier's input shows a picture; None for the way of its family. Other models ignore it.
        transport: how pictures come to a server: through memory that both share, or over HTTP. auto: through memory if
            the server is on this host and takes it. Only triton has a server.
        request_timeout_s: limit of one request to a server.
        semantics: facts that the file does not state, or states wrongly.
        provider: of onnxruntime, see `detectors.factory.Provider`; None for its CPU's.
        provider_device: of the provider, such as GPU or NPU; None for its CPU, or else the GPU's number.
    """

    path: Path
    head: str = "auto"
    labels: str | None = None
    input_size: Size | None = None
    further_sizes: tuple[Size, ...] = ()
    wanted: PostprocessParams = PostprocessParams()
    max_batch: int = 8
    threads: int = 0
    precision: Precision = "auto"
    builder_level: int = 3
    cache: Path | None = None
    lanes: int = 1
    device: int = 0
    memory_limit: int | None = None
    reserved: int = 0
    parts: int = 0
    frame_size: tuple[int, int] = (1920, 1080)
    fit: Fit | None = None
    transport: Transport = "auto"
    request_timeout_s: float = 5.0
    semantics: Semantics = NOTHING_KNOWN
    provider: str | None = None
    provider_device: str | None = None


@dataclass(frozen=True)
class ModelInfo:
    """Facts about an opened model.

    Attributes:
        name: the file's stem.
        digest: first 12 hexadecimal digits of the model's SHA-256, external weights included; with a server, of the
            configuration that it gives.
        precision: of the arithmetic, such as "fp32".
        backend: such as "cpu"; of onnxruntime the name of the provider.
        head: name of the output decoder, from `detectors.heads`.
        input_size: width and height, pixels.
        further_sizes: at which it is open, too; lanes are `SizedLane`s if there are any.
        labels: one per class.
        facts: what its input and outputs mean, and where each fact is from.
        max_batch: maximum number of pictures per batch.
        notes: automatic choices that a user should know of, one line each.
        lanes: maximum number of lanes.
        memory: planned device memory, name and bytes; `ENGINE` is the backend's form of the model.
        startup: steps of opening, in order: name and seconds.
        gpu: number of the GPU whose pictures (`DeviceImage`) lanes accept; None for host memory only.
        transport: how pictures come to a server, in words; empty without a server.
        device: of onnxruntime's provider; empty of its CPU's.
        nodes: how many nodes of the graph each of onnxruntime's providers runs; empty with its CPU's alone.
    """

    name: str
    digest: str
    precision: str
    backend: str
    head: str
    input_size: Size
    labels: tuple[str, ...]
    max_batch: int
    notes: tuple[str, ...] = ()
    lanes: int = 1
    memory: tuple[tuple[str, int], ...] = ()
    startup: tuple[tuple[str, float], ...] = ()
    gpu: int | None = None
    transport: str = ""
    further_sizes: tuple[Size, ...] = ()
    facts: tuple[Fact, ...] = ()
    device: str = ""
    nodes: tuple[tuple[str, int], ...] = ()

    @property
    def memory_bytes(self) -> int:
        """Planned device memory in all."""
        return sum(size for _, size in self.memory)


@dataclass(frozen=True, slots=True)
class StageTimes:
    """Nanoseconds that a whole batch spent in each stage."""

    preprocess: int
    infer: int
    postprocess: int


class Lane(Protocol):
    """Detection for one thread."""

    def detect(self, images: Sequence[Image]) -> tuple[list[Detections], StageTimes]:
        """Detect on 1 to `max_batch` pictures of any sizes; returns one result per picture, in order.

        Raises:
            DetectorUnavailableError: a server gives no results now; the lane stays usable.
            DetectorError: the backend failed; the lane is unusable.
        """
        ...

    def fetch(self, image: Image) -> Fetch:
        """Start copying a picture to host memory, wherever it lies; does not block the lane.

        Raises:
            DetectorError: the picture cannot be fetched.
        """
        ...

    def close(self) -> None:
        """Release the lane's resources; idempotent."""
        ...


@runtime_checkable
class SizedLane(Protocol):
    """A lane of a model that is open at several input sizes. A batch has one of them."""

    def at(self, size: Size) -> Lane:
        """The lane at one of the sizes, for the same thread; valid until this lane is closed."""
        ...


def lane_at(lane: Lane, size: Size | None) -> Lane:
    """The lane at an input size; None for the model's own.

    Raises:
        DetectorError: the backend has one size.
    """
    if size is None:
        return lane
    if not isinstance(lane, SizedLane):
        raise DetectorError(f"this backend runs a model at one size, and not at {size[0]}x{size[1]}")
    return lane.at(size)


class Part(NamedTuple):
    """A part of a picture.

    Attributes:
        box: left, top, right and bottom in pixels of the upright picture, inside it, not empty.
    """

    image: Image
    box: tuple[int, int, int, int]


class Cutter(Protocol):
    """Copies parts out of pictures that others release soon, so that a second model can look at them later.

    Any thread may call it, with pictures that stay unchanged during the call.
    """

    def cut(self, parts: Sequence[Part]) -> list[Image | PreparedImage | None]:
        """A copy of each part, for lanes of the same detector; None where there is no room, and after `close`.

        It does not wait for a device: pictures there are kept leased until they are copied. A copy is valid while it is
        referenced and the cutter is open.

        Raises:
            DetectorError: the backend failed.
        """
        ...

    def release_done(self) -> None:
        """Release the pictures that are copied; called now and then, because nothing else does while no part comes."""
        ...

    def close(self) -> None:
        """Release all copies; idempotent."""
        ...


@runtime_checkable
class Prepares(Protocol):
    """A lane with access to its preprocessed input."""

    def preprocess(self, images: Sequence[Image]) -> npt.NDArray[Any]: ...


class Detector(Protocol):
    """An opened model, shared by threads."""

    @property
    def info(self) -> ModelInfo: ...

    def lane(self) -> Lane:
        """A new, warmed-up lane for the calling thread."""
        ...

    def sample(self, width: int, height: int) -> Image:
        """A blank picture in the memory lanes read fastest, for measurements; valid until `close`."""
        ...

    def close(self) -> None:
        """Release the model; close its lanes first."""
        ...


class SecondLane(Lane, Protocol):
    """A lane that also takes what a cutter of its detector made."""

    def detect(self, images: Sequence[Image | PreparedImage]) -> tuple[list[Detections], StageTimes]: ...


@runtime_checkable
class Remote(Protocol):
    """A detector whose model runs on a server.

    Attributes:
        unavailable: why it gives no results now; None if it does.
    """

    @property
    def unavailable(self) -> str | None: ...


class SecondDetector(Detector, Protocol):
    """An opened model that looks at parts of pictures."""

    def lane(self) -> SecondLane: ...

    def cutter(self, room: int) -> Cutter:
        """A cutter for its lanes' pictures. Close it after the lanes, and before the detector.

        Args:
            room: number of parts that may wait at once.
        """
        ...
