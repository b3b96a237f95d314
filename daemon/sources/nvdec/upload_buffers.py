"""Upload buffers for pictures of one size that the CPU decodes."""

from __future__ import annotations

from contextlib import ExitStack

import numpy as np
from av.video.frame import VideoFrame

from daemon.errors import DecodeError, PoisonedError
from daemon.sources.nvdec.surfaces import Allocate, Surfaces
from daemon.sources.nvdec.upload import interleave
from detectors.cuda import CudaError, Device, PinnedBuffer, Stream
from detectors.port import DeviceImage


class UploadBuffers:
    """See `daemon.sources.nvdec.port.UploadTarget`."""

    def __init__(self, device: Device, memory: Allocate, count: int, width: int, height: int) -> None:
        self._device = device
        device.make_current()
        with ExitStack() as undo:
            self._surfaces = Surfaces(memory, count, width, height)
            undo.callback(self._surfaces.close)
            self._pinned = PinnedBuffer(self._surfaces.bytes)
            undo.callback(self._pinned.close)
            self._stream = Stream()
            undo.callback(self._stream.close)
            undo.callback(self._stream.synchronize)
            self._undo = undo.pop_all()
        self._rows = self._pinned.view((self._surfaces.bytes // self._surfaces.pitch, self._surfaces.pitch), np.uint8)

    def put(self, frame: VideoFrame, bt709: bool, full_range: bool) -> DeviceImage:
        lease = self._surfaces.acquire()
        surface = lease.slot
        try:
            self._device.make_current()  # the thread that serves a source may change
            self._stream.synchronize()  # the previous upload is done
            interleave(frame, self._rows)
            self._stream.send(surface.pointer, self._pinned)
            surface.event.record(self._stream)
        except CudaError as error:
            raise PoisonedError(str(error)) if error.sticky else DecodeError(str(error)) from error
        return self._surfaces.image(lease, bt709, full_range)

    @property
    def all_free(self) -> bool:
        return self._surfaces.all_free

    def close(self) -> None:
        self._device.make_current()
        self._undo.close()
