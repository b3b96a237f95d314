"""Memory shared between processes, and slots for pictures in it."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections import deque
from ctypes import c_int, c_long, c_size_t, c_void_p
from functools import cache
from typing import Protocol

import msgspec
import numpy as np
import numpy.typing as npt


class SharedMemory(Protocol):
    """Memory of the host or of a GPU that processes can share.

    Attributes:
        pointer: address in this process; 0 when closed.
        size: bytes.
        fd: a file descriptor that maps the memory in any process; None where another process owns the memory.
    """

    @property
    def pointer(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def fd(self) -> int | None: ...
    def close(self) -> None: ...


class Slot(Protocol):
    """Memory of one picture, in the process that owns it."""

    @property
    def memory(self) -> SharedMemory: ...
    @property
    def offset(self) -> int: ...
    @property
    def is_ready(self) -> bool:
        """Whether the picture is complete."""
        ...


class Mapper(Protocol):
    """Maps memory of another process into this one; used by one thread."""

    def make_current(self) -> None:
        """Bind the calling thread to the mapper's device."""
        ...

    def map(self, fd: int, size: int) -> SharedMemory: ...

    def close(self) -> None:
        """Requires that all mapped memory is closed."""
        ...


@cache
def _libc() -> ctypes.CDLL:
    """The C library. `mmap.mmap` would keep a duplicate of each descriptor, and a process has few."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.argtypes = [c_void_p, c_size_t, c_int, c_int, c_int, c_long]
    libc.mmap.restype = c_void_p
    libc.munmap.argtypes = [c_void_p, c_size_t]
    return libc


def _map(fd: int, size: int) -> int:
    """Map the first bytes of a file, shared; returns the address."""
    address = _libc().mmap(None, size, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, fd, 0)
    if address == c_void_p(-1).value:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return int(address)


class HostMemory:
    """See `SharedMemory`.

    Args:
        fd: of another process's memory; None to allocate.

    Raises:
        OSError: the system has no memory or no descriptor left.
    """

    def __init__(self, size: int, fd: int | None = None) -> None:
        self.size, self.pointer = size, 0
        self.fd: int | None = None
        if fd is not None:
            self.pointer = _map(fd, size)
            return
        self.fd = os.memfd_create("pictures")
        try:
            os.ftruncate(self.fd, size)
            self.pointer = _map(self.fd, size)
        except BaseException:
            os.close(self.fd)
            raise

    def close(self) -> None:
        if self.pointer:
            _libc().munmap(self.pointer, self.size)
            self.pointer = 0
            if self.fd is not None:
                os.close(self.fd)
                self.fd = None


class HostMapper:
    """See `Mapper`."""

    def make_current(self) -> None:
        """Host memory needs no device."""

    def map(self, fd: int, size: int) -> HostMemory:
        return HostMemory(size, fd)

    def close(self) -> None:
        """Nothing is held."""


class HostSlot:
    """See `Slot`."""

    is_ready = True  # the copy is synchronous

    def __init__(self, memory: HostMemory, offset: int) -> None:
        self.memory, self.offset = memory, offset


class RemoteLease(msgspec.Struct, frozen=True, gc=False):
    """A slot of another process. A lease that dies appends its slot to `returned`, for the owner."""

    returned: deque[tuple[int, int]]
    memory: int
    offset: int

    def __del__(self) -> None:
        self.returned.append((self.memory, self.offset))


class _View:
    """Describes memory to numpy, and holds its lease while an array uses it."""

    def __init__(self, address: int, shape: tuple[int, ...], lease: RemoteLease) -> None:
        self.__array_interface__ = {"version": 3, "typestr": "|u1", "shape": shape, "data": (address, False)}
        self._lease = lease


def view(address: int, shape: tuple[int, ...], lease: RemoteLease | None = None) -> npt.NDArray[np.uint8]:
    """An array over memory, which holds the memory's lease."""
    return np.asarray(_View(address, shape, lease) if lease else _View(address, shape, None))  # type: ignore[arg-type]
