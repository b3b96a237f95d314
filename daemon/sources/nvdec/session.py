"""One hardware decoder with its stream and its surfaces: the only file that imports PyNvVideoCodec."""

from __future__ import annotations

import re
from contextlib import ExitStack
from functools import partial
from math import ceil
from typing import Any

import av
import PyNvVideoCodec as nvc  # noqa: N813

from daemon.errors import DecodeError
from daemon.sources.decoding import UnsuitableError
from daemon.sources.nvdec.card import Card, Limits
from daemon.sources.nvdec.gate import Gate, new_turn
from daemon.sources.nvdec.pool import Load
from daemon.sources.nvdec.surfaces import Surfaces
from detectors.cuda import CudaError, Device, DeviceBuffer, SharedBuffer, Stream
from detectors.port import DeviceImage

_CODECS = {
    "h264": nvc.cudaVideoCodec.H264,
    "hevc": nvc.cudaVideoCodec.HEVC,
    "vp9": nvc.cudaVideoCodec.VP9,
    "av1": nvc.cudaVideoCodec.AV1,
    "mjpeg": nvc.cudaVideoCodec.JPEG,
}
_END_OF_PICTURE = int(nvc.VideoPacketFlag.ENDOFPICTURE)
_END_OF_STREAM = int(nvc.VideoPacketFlag.ENDOFSTREAM)
_THREADS_PER_ENGINE = 0.4
_NO_ROOM = re.compile(r"cuvidCreateDecoder.* error 2\b")  # CUDA's out of memory
_ERRORS = (nvc.PyNvVCException, nvc.PyNvVCExceptionUnsupported, RuntimeError)


class Engines:
    """A GPU's decoding engines, which all sessions share.

    The driver wakes every thread that waits for a picture whenever one is done: with 150 threads waiting that is most
    of the CPU's time. So only a few may wait at once, each with its picture under way: `calls`.

    Args:
        calls: sessions that may be inside the driver at once.
        shared: pictures lie where another process can see them.

    Attributes:
        device: the GPU.
        gate: into the driver.
        threads: that keep all engines at work.
    """

    def __init__(self, device: int, calls: int = 1, *, shared: bool = False) -> None:
        self._index, self._shared = device, shared
        self.device = Device(device)
        caps = self._caps(nvc.cudaVideoCodec.H264)
        engines = max(1, caps["num_decoder_engines"])
        self.gate = Gate(calls)
        # With several sessions to a thread, each with pictures under way, few threads keep all engines at work.
        self.threads = ceil(_THREADS_PER_ENGINE * engines)

    def card(self) -> Card:
        """What they can do."""
        caps = {name: self._caps(codec) for name, codec in _CODECS.items()}
        limits = {
            name: Limits((row["width_min"], row["height_min"]), (row["width_max"], row["height_max"]))
            for name, row in caps.items()
            if row["supported"]
        }
        return Card(max((row["num_decoder_engines"] for row in caps.values()), default=0), limits)

    def session(self, codec: str, *, low_latency: bool, surfaces: int) -> Session:
        """A new one, for the calling thread."""
        self.device.use()
        return Session(self, codec, low_latency, surfaces)

    def new_decoder(self, codec: str, stream: Stream, low_latency: bool) -> Any:
        kinds = nvc.DisplayDecodeLatencyType
        return nvc.CreateDecoder(
            gpuid=self._index,
            codec=_CODECS[codec],
            cudacontext=self.device.context,
            cudastream=stream.handle,
            usedevicememory=True,
            latency=kinds.LOW if low_latency else kinds.NATIVE,
        )

    def memory(self, size: int) -> DeviceBuffer | SharedBuffer:
        """For pictures."""
        return SharedBuffer(self._index, size) if self._shared else DeviceBuffer(size)

    def close(self) -> None:
        self.device.close()

    def _caps(self, codec: Any) -> dict[str, int]:
        caps: dict[str, int] = nvc.GetDecoderCaps(gpuid=self._index, codec=codec)
        return caps


class Session:
    """See `daemon.sources.nvdec.pool.Session`.

    The decoder writes its pictures into memory that its next call overwrites, in the order of its stream; they are
    copied from there in the same stream, so that nobody has to wait: the next call's come after.
    """

    def __init__(self, engines: Engines, codec: str, low_latency: bool, surfaces: int) -> None:
        self._engines, self._count = engines, surfaces
        self._surfaces: Surfaces | None = None
        with ExitStack() as undo:
            self._stream = Stream()
            undo.callback(self._stream.close)
            self._decoder = engines.new_decoder(codec, self._stream, low_latency)
            undo.pop_all()
        self._packet = nvc.PacketData()
        self._turn = new_turn()

    def use(self) -> None:
        self._engines.device.use()

    def decode(self, address: int, size: int) -> list[Load]:
        packet = self._packet
        packet.bsl_data, packet.bsl, packet.decode_flag = address, size, _END_OF_PICTURE
        self._engines.gate.enter(self._turn)
        try:
            frames = self._decoder.Decode(packet)
        except _ERRORS as error:
            raise _refusal(error) from error
        finally:
            self._engines.gate.leave()
        return [partial(self._load, frame) for frame in frames]

    def decode_bytes(self, data: bytes) -> list[Load]:
        """The same for what is not a packet yet."""
        packet = av.Packet(data)
        return self.decode(packet.buffer_ptr, packet.buffer_size)

    def drain(self) -> list[Load]:
        packet = self._packet
        packet.bsl_data, packet.bsl, packet.decode_flag = 0, 0, _END_OF_STREAM
        try:
            return [partial(self._load, frame) for frame in self._decoder.Decode(packet)]
        except _ERRORS as error:
            raise _refusal(error) from error

    @property
    def is_home(self) -> bool:
        return self._surfaces is None or self._surfaces.is_home

    def close(self) -> None:
        if self._decoder is None:
            return
        self._decoder = None
        self._engines.device.use()
        self._stream.synchronize()
        if self._surfaces:
            self._surfaces.close()
        self._stream.close()

    def _load(self, frame: Any, bt709: bool, full_range: bool) -> DeviceImage:
        try:
            surfaces = self._surfaces or self._make_surfaces(frame)
            lease = surfaces.take()
            surface = lease.place
            self._stream.copy(surface.pointer, frame.GetPtrToPlane(0), surfaces.bytes)
            surface.event.record(self._stream)
        except CudaError as error:
            raise DecodeError(str(error)) from error
        return surfaces.image(lease, bt709, full_range)

    def _make_surfaces(self, frame: Any) -> Surfaces:
        """When the size is known: with the first picture."""
        rows, width = frame.shape
        if str(frame.format) != "Pixel_Format.NV12":
            raise DecodeError(f"the decoder gives {frame.format}, which is not NV12: set decode to cpu")
        self._surfaces = Surfaces(self._engines.memory, self._count, width, rows * 2 // 3)
        return self._surfaces


def _refusal(error: Exception) -> UnsuitableError:
    """PyNvVideoCodec's words in one line: it says what, then a number, then its own source file."""
    lines = [line.strip(" :") for line in str(error).splitlines() if line.strip(" :")]
    words = [line.partition(":")[2].strip() for line in lines if line.startswith("Error Type")] or lines[:1]
    if words and _NO_ROOM.search(words[0]):
        return UnsuitableError("the GPU has no room for another decoder session")
    return UnsuitableError(f"the GPU's decoder gave up: {words[0] if words else type(error).__name__}")
