"""CUDA from Python, one noun each: the only file that imports the driver's bindings.

Every handle has `close()`, and closing twice does nothing. Every status passes one door, `_checked`, which turns it
into a CudaError with CUDA's own name and explanation. Handles are plain integers (`Stream.handle`,
`DeviceBuffer.pointer`), which is what TensorRT takes.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, ClassVar
from uuid import UUID

import numpy as np
import numpy.typing as npt

from detectors.port import BackendUnavailableError, DetectorError

try:
    from cuda.bindings import driver
except ImportError as error:
    raise BackendUnavailableError("CUDA's Python bindings are not installed: pip install cuda-python") from error

_STICKY = {
    "CUDA_ERROR_ILLEGAL_ADDRESS",
    "CUDA_ERROR_LAUNCH_FAILED",
    "CUDA_ERROR_LAUNCH_TIMEOUT",
    "CUDA_ERROR_ASSERT",
    "CUDA_ERROR_HARDWARE_STACK_ERROR",
    "CUDA_ERROR_ILLEGAL_INSTRUCTION",
    "CUDA_ERROR_MISALIGNED_ADDRESS",
    "CUDA_ERROR_INVALID_ADDRESS_SPACE",
    "CUDA_ERROR_INVALID_PC",
    "CUDA_ERROR_ECC_UNCORRECTABLE",
}


_ON_DEVICE = 2  # CU_MEMORYTYPE_DEVICE
_NOT_READY = int(driver.CUresult.CUDA_ERROR_NOT_READY)


class _Side(ctypes.Structure):
    """Half of CUDA_MEMCPY2D."""

    _fields_ = (
        ("x", ctypes.c_size_t),
        ("y", ctypes.c_size_t),
        ("kind", ctypes.c_int),
        ("host", ctypes.c_void_p),
        ("device", ctypes.c_uint64),
        ("array", ctypes.c_void_p),
        ("pitch", ctypes.c_size_t),
    )

    @classmethod
    def of(cls, address: int, pitch: int) -> _Side:
        return cls(kind=_ON_DEVICE, device=address, pitch=pitch)


class _Rows(ctypes.Structure):
    """CUDA_MEMCPY2D."""

    _fields_ = (("source", _Side), ("target", _Side), ("width", ctypes.c_size_t), ("rows", ctypes.c_size_t))


class _Hot:
    """Calls of every frame, with the interpreter's lock held.

    CUDA's bindings give the lock up around each call, also around those of a microsecond, and get it back behind every
    thread that waits for it: a batch of 32 had fifty such calls, and a lane was late for all of them. Calls
    that do not wait are here: each takes a microsecond or two, and the launch of a graph some tens. Those that wait go
    through the bindings.
    """

    _TYPES: ClassVar[dict[str, tuple[Any, ...]]] = {
        "cuEventRecord": (ctypes.c_void_p, ctypes.c_void_p),
        "cuEventQuery": (ctypes.c_void_p,),
        "cuEventElapsedTime": (ctypes.POINTER(ctypes.c_float), ctypes.c_void_p, ctypes.c_void_p),
        "cuGraphLaunch": (ctypes.c_void_p, ctypes.c_void_p),
        "cuStreamWaitEvent": (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint),
        "cuMemcpyDtoDAsync_v2": (ctypes.c_uint64, ctypes.c_uint64, ctypes.c_size_t, ctypes.c_void_p),
        "cuMemcpy2DAsync_v2": (ctypes.c_void_p, ctypes.c_void_p),
        "cuMemcpyHtoDAsync_v2": (ctypes.c_uint64, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p),
    }

    def __getattr__(self, name: str) -> Callable[..., int]:
        """Looked up at the first use: there may be no driver."""
        call: Callable[..., int] = ctypes.PyDLL("libcuda.so.1")[name]
        call.argtypes = self._TYPES[name]  # type: ignore[attr-defined]
        setattr(self, name, call)
        return call


_hot = _Hot()


class CudaError(DetectorError):
    """A CUDA call failed.

    Attributes:
        name: such as CUDA_ERROR_OUT_OF_MEMORY.
        sticky: the process can use the GPU no more, and must end.
    """

    def __init__(self, name: str, explanation: str) -> None:
        super().__init__(f"{name}: {explanation}")
        self.name = name
        self.sticky = name in _STICKY


class Device:
    """A GPU and its primary context, which TensorRT and the decoder share; current in the thread that opened it.

    Attributes:
        name: such as "NVIDIA H200".
        architecture: such as "sm_90".

    Raises:
        BackendUnavailableError: no driver, or no such GPU.
    """

    def __init__(self, index: int = 0) -> None:
        self._device = _device(index)
        self._context = _checked(driver.cuDevicePrimaryCtxRetain(self._device))
        with ExitStack() as undo:
            undo.callback(self.close)
            self.make_current()
            self.name = self.name_of(index)
            self.architecture = self.architecture_of(index)
            undo.pop_all()

    @staticmethod
    def architecture_of(index: int) -> str:
        """Such as "sm_90", from the driver, without a context.

        Raises:
            BackendUnavailableError: no driver, or no such GPU.
        """
        kinds, device = driver.CUdevice_attribute, _device(index)
        kind = (kinds.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, kinds.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)
        major, minor = (_checked(driver.cuDeviceGetAttribute(row, device)) for row in kind)
        return f"sm_{major}{minor}"

    @staticmethod
    def name_of(index: int) -> str:
        """A GPU's name, without using it.

        Raises:
            BackendUnavailableError: no driver, or no such GPU.
        """
        return str(_checked(driver.cuDeviceGetName(128, _device(index))).split(b"\0")[0].decode())

    def free_memory(self) -> int:
        """Bytes nobody uses, of all processes on the GPU."""
        free, _ = _checked(driver.cuMemGetInfo())
        return int(free)

    def make_current(self) -> None:
        """Make the context current in the calling thread; each thread that uses CUDA does so once."""
        _checked(driver.cuCtxSetCurrent(self._context))

    def close(self) -> None:
        if self._context is not None:
            self._context = None
            _checked(driver.cuDevicePrimaryCtxRelease(self._device))


def uuids() -> list[str]:
    """Names of the GPUs that this process sees, in the driver's order, such as GPU-8f0c....

    Raises:
        BackendUnavailableError: no driver that works.
    """
    found = []
    for index in range(_count()):
        uuid = _checked(driver.cuDeviceGetUuid(_checked(driver.cuDeviceGet(index))))
        found.append(f"GPU-{UUID(bytes=bytes(uuid.bytes))}")
    return found


def _count() -> int:
    try:
        _checked(driver.cuInit(0))
        return int(_checked(driver.cuDeviceGetCount()))
    except (CudaError, RuntimeError) as error:  # RuntimeError: the bindings found no libcuda
        reason = str(error).rstrip(".")  # lines that quote it go on
        raise BackendUnavailableError(f"no NVIDIA driver that works: {reason}") from error


def _device(index: int) -> Any:
    count = _count()
    if index >= count:
        raise BackendUnavailableError(f"there is no GPU {index}: the driver shows {count}; set gpu.device")
    return _checked(driver.cuDeviceGet(index))


class Stream:
    """Commands in order; does not wait for the default stream."""

    def __init__(self) -> None:
        self._stream = _checked(driver.cuStreamCreate(driver.CUstream_flags.CU_STREAM_NON_BLOCKING))
        self.handle = int(self._stream)

    def synchronize(self) -> None:
        """Wait for everything; releases the interpreter's lock."""
        _checked(driver.cuStreamSynchronize(self._stream))

    def wait(self, event: int) -> None:
        """Enqueue waiting for somebody's event, by its handle; nobody waits here."""
        _enqueued(_hot.cuStreamWaitEvent(self.handle, event, 0))

    def copy(self, target: int, source: int, size: int) -> None:
        """Enqueue a copy within the device, by addresses."""
        if status := _hot.cuMemcpyDtoDAsync_v2(target, source, size, self.handle):
            _enqueued(status)

    def copy_rows(self, target: tuple[int, int], source: tuple[int, int], width: int, rows: int) -> None:
        """Enqueue a copy of rows of so many bytes within the device, each side by its address and pitch."""
        wanted = _Rows(_Side.of(*source), _Side.of(*target), width, rows)
        if status := _hot.cuMemcpy2DAsync_v2(ctypes.byref(wanted), self.handle):
            _enqueued(status)

    def send(self, target: int, source: PinnedBuffer) -> None:
        """Enqueue a copy of host memory, which must stay as it is until the stream has passed, to a device address."""
        _enqueued(_hot.cuMemcpyHtoDAsync_v2(target, source.pointer, source.size, self.handle))

    @contextmanager
    def capture(self) -> Iterator[list[Graph]]:
        """Work enqueued within does not run: it is the one graph in the list afterwards."""
        graphs: list[Graph] = []
        mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        _checked(driver.cuStreamBeginCapture(self._stream, mode))
        try:
            yield graphs
        except BaseException:
            status, graph = driver.cuStreamEndCapture(self._stream)  # the stream is of use again
            if int(status) == 0:
                driver.cuGraphDestroy(graph)
            raise  # the first error is the one to tell
        graphs.append(Graph(_checked(driver.cuStreamEndCapture(self._stream))))

    def close(self) -> None:
        if self._stream is not None:
            stream, self._stream = self._stream, None
            _checked(driver.cuStreamDestroy(stream))


class Event:
    """A point in a stream.

    Args:
        timed: whether `milliseconds_since` may be asked.
        awaited: `synchronize` is to sleep instead of spinning. The GPU then interrupts the CPU at each such point,
            whether anybody waits or not, which wakes a thread of every process that uses it.
    """

    def __init__(self, *, timed: bool = False, awaited: bool = True) -> None:
        flags = driver.CUevent_flags.CU_EVENT_BLOCKING_SYNC.value if awaited else 0
        if not timed:
            flags |= driver.CUevent_flags.CU_EVENT_DISABLE_TIMING.value
        self._event = _checked(driver.cuEventCreate(flags))
        self.handle = int(self._event)

    def record(self, stream: Stream) -> None:
        if status := _hot.cuEventRecord(self.handle, stream.handle):
            _enqueued(status)

    def synchronize(self) -> None:
        """Wait until the point is reached; releases the interpreter's lock."""
        _checked(driver.cuEventSynchronize(self._event))

    @property
    def passed(self) -> bool:
        """Whether the point is reached; nobody waits here."""
        status = _hot.cuEventQuery(self.handle)
        if status and status != _NOT_READY:
            _enqueued(status)
        return not status

    def milliseconds_since(self, earlier: Event) -> float:
        passed = ctypes.c_float()
        _enqueued(_hot.cuEventElapsedTime(passed, earlier.handle, self.handle))
        return passed.value

    def close(self) -> None:
        if self._event is not None:
            event, self._event = self._event, None
            _checked(driver.cuEventDestroy(event))


class DeviceBuffer:
    """Device memory of a size that does not change.

    Attributes:
        pointer: its address.
        size: bytes.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.pointer = int(_checked(driver.cuMemAlloc(max(1, size))))

    def upload(self, source: npt.NDArray[Any] | PinnedBuffer, stream: Stream, offset: int = 0) -> None:
        """Enqueue a copy from host memory, which must stay as it is until the stream has passed."""
        if isinstance(source, PinnedBuffer):
            _fits(offset, source.size, self.size)
            _enqueued(_hot.cuMemcpyHtoDAsync_v2(self.pointer + offset, source.pointer, source.size, stream.handle))
            return
        pointer, size = _memory(source)
        _fits(offset, size, self.size)
        _checked(driver.cuMemcpyHtoDAsync(self.pointer + offset, pointer, size, stream.handle))

    def mirror(self, source: PinnedBuffer, start: int, size: int, stream: Stream) -> None:
        """Enqueue a copy of part of host memory to the same place here."""
        _fits(start, size, min(self.size, source.size))
        _checked(driver.cuMemcpyHtoDAsync(self.pointer + start, source.pointer + start, size, stream.handle))

    def download(self, target: npt.NDArray[Any], stream: Stream, offset: int = 0) -> None:
        """Enqueue a copy into host memory."""
        pointer, size = _memory(target)
        _fits(offset, size, self.size)
        _checked(driver.cuMemcpyDtoHAsync(pointer, self.pointer + offset, size, stream.handle))

    def clear(self, stream: Stream) -> None:
        """Enqueue writing zeros."""
        _checked(driver.cuMemsetD8Async(self.pointer, 0, self.size, stream.handle))

    def close(self) -> None:
        if self.pointer:
            pointer, self.pointer = self.pointer, 0
            _checked(driver.cuMemFree(pointer))


class SharedBuffer:
    """Device memory that other processes can map. It lives until the last of them has closed it.

    Args:
        device: which GPU.
        fd: of another process's memory, which is mapped here; None for new memory.

    Attributes:
        pointer: its address in this process.
        size: bytes, of whole pages of the device.
        fd: a file descriptor that stands for it in any process; owned, None where it was mapped from one.
    """

    def __init__(self, device: int, size: int, fd: int | None = None) -> None:
        kind = driver.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
        wanted = driver.CUmemAllocationProp()
        wanted.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        wanted.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        wanted.location.id = device
        wanted.requestedHandleTypes = kind
        granularity = driver.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM
        page = int(_checked(driver.cuMemGetAllocationGranularity(wanted, granularity)))
        self.size = -(-size // page) * page
        self.fd: int | None = None
        self.pointer = 0
        with ExitStack() as undo:
            if fd is None:
                memory = _checked(driver.cuMemCreate(self.size, wanted, 0))
            else:
                memory = _checked(driver.cuMemImportFromShareableHandle(fd, kind))
            try:  # once mapped, the memory is held by the mapping
                address = _checked(driver.cuMemAddressReserve(self.size, 0, driver.CUdeviceptr(0), 0))
                undo.callback(driver.cuMemAddressFree, address, self.size)
                _checked(driver.cuMemMap(address, self.size, 0, memory, 0))
                undo.callback(driver.cuMemUnmap, address, self.size)
                access = driver.CUmemAccessDesc()
                access.location = wanted.location
                access.flags = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
                _checked(driver.cuMemSetAccess(address, self.size, [access], 1))
                if fd is None:
                    self.fd = int(_checked(driver.cuMemExportToShareableHandle(memory, kind, 0)))
            finally:
                _checked(driver.cuMemRelease(memory))
            undo.pop_all()
        self.pointer = int(address)

    def close(self) -> None:
        if self.pointer:
            pointer, self.pointer = self.pointer, 0
            if self.fd is not None:
                os.close(self.fd)
                self.fd = None
            statuses = driver.cuMemUnmap(pointer, self.size), driver.cuMemAddressFree(pointer, self.size)
            for status in statuses:
                _checked(status)


class PinnedBuffer:
    """Host memory that the GPU reads and writes at full speed, and kernels can address.

    Attributes:
        pointer: its address, the same for host and device.
        size: bytes.
    """

    def __init__(self, size: int) -> None:
        flags = driver.CU_MEMHOSTALLOC_DEVICEMAP | driver.CU_MEMHOSTALLOC_PORTABLE
        self.size = size
        self.pointer = int(_checked(driver.cuMemHostAlloc(max(1, size), flags)))

    def view(self, shape: Sequence[int], dtype: npt.DTypeLike, offset: int = 0) -> npt.NDArray[Any]:
        """An array over part of it; of no use after `close`."""
        kind = np.dtype(dtype)
        size = int(np.prod(shape)) * kind.itemsize
        _fits(offset, size, self.size)
        raw = (ctypes.c_byte * size).from_address(self.pointer + offset)
        return np.ctypeslib.as_array(raw).view(kind).reshape(shape)

    def close(self) -> None:
        if self.pointer:
            pointer, self.pointer = self.pointer, 0
            _checked(driver.cuMemFreeHost(pointer))


class Graph:
    """Commands captured from a stream, launched as one; made by `Stream.capture`."""

    def __init__(self, graph: Any) -> None:
        try:
            self._graph = _checked(driver.cuGraphInstantiate(graph, 0))
        finally:
            driver.cuGraphDestroy(graph)
        self._handle = int(self._graph)

    def launch(self, stream: Stream) -> None:
        if status := _hot.cuGraphLaunch(self._handle, stream.handle):
            _enqueued(status)

    def close(self) -> None:
        if self._graph is not None:
            graph, self._graph, self._handle = self._graph, None, 0
            _checked(driver.cuGraphExecDestroy(graph))


class Module:
    """Compiled kernels.

    Args:
        cubin: from `detectors.nvrtc.compile_cubin`, for this device's architecture.
    """

    def __init__(self, cubin: bytes) -> None:
        self._module = _checked(driver.cuModuleLoadData(cubin))
        self._kernels: dict[str, Any] = {}

    def launch(
        self,
        kernel: str,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        stream: Stream,
        arguments: Sequence[int | float | np.uint64 | npt.NDArray[np.void]],
    ) -> None:
        """Enqueue a kernel. A Python int goes as an int, a float as a float, an array of one record as a struct by
        value; an address must be a numpy uint64."""
        if kernel not in self._kernels:
            self._kernels[kernel] = _checked(driver.cuModuleGetFunction(self._module, kernel.encode()))
        held = [_argument(argument) for argument in arguments]
        pointers = np.array([array.ctypes.data for array in held], dtype=np.uint64)
        function = self._kernels[kernel]
        _checked(driver.cuLaunchKernel(function, *grid, *block, 0, stream.handle, pointers.ctypes.data, 0))

    def close(self) -> None:
        if self._module is not None:
            module, self._module = self._module, None
            _checked(driver.cuModuleUnload(module))


def _argument(value: int | float | np.uint64 | npt.NDArray[np.void]) -> npt.NDArray[Any]:
    if isinstance(value, np.ndarray):
        return value
    if isinstance(value, np.uint64):
        return np.array([value], dtype=np.uint64)
    return np.array([value], dtype=np.float32 if isinstance(value, float) else np.int32)


def _memory(array: npt.NDArray[Any]) -> tuple[int, int]:
    if not array.flags.c_contiguous:
        raise ValueError(f"an array of shape {array.shape} is not contiguous: copies go in one piece")
    return array.ctypes.data, array.nbytes


def _fits(offset: int, size: int, room: int) -> None:
    if offset < 0 or offset + size > room:
        raise ValueError(f"{size} bytes at {offset} do not fit into {room}")


def _checked(result: tuple[Any, ...]) -> Any:
    """The one door: the values of a call, or a CudaError."""
    status, *values = result
    if int(status) != 0:
        raise _error(status)
    return values[0] if len(values) == 1 else values


def _enqueued(status: int) -> None:
    """The same for a hot call; what is called for every frame comes here only where it failed."""
    if status != 0:
        raise _error(driver.CUresult(status))


def _error(status: Any) -> CudaError:
    _, text = driver.cuGetErrorString(status)
    explanation = text.decode() if text else "no explanation"
    if status == driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY:
        explanation += ": fewer lanes, a smaller model.max_batch, or see who else uses the GPU"
    return CudaError(str(status.name), explanation)
