"""Memory that two processes see, and places for pictures in it."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections import deque
from ctypes import c_int, c_long, c_size_t, c_void_p
from functools import cache
from typing import Protocol

import numpy as np
import numpy.typing as npt


class Block(Protocol):
    """Memory, of the host or of a GPU.

    Attributes:
        pointer: its address in this process; 0 when it is closed.
        size: bytes.
        fd: a file descriptor that stands for it in any process; None where this process has it from another.
    """

    @property
    def pointer(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def fd(self) -> int | None: ...
    def close(self) -> None: ...


class Slot(Protocol):
    """Where one picture lies, in the process that made it."""

    @property
    def block(self) -> Block: ...
    @property
    def offset(self) -> int: ...
    @property
    def is_ready(self) -> bool:
        """The picture is there, to its last line."""
        ...


class Mapper(Protocol):
    """Makes memory of another process visible in this one; used by one thread."""

    def make_current(self) -> None:
        """The calling thread uses it from here on."""
        ...

    def map(self, fd: int, size: int) -> Block: ...

    def close(self) -> None:
        """After all that it has mapped."""
        ...


@cache
def _libc() -> ctypes.CDLL:
    """`mmap.mmap` keeps a descriptor of its own, of which a process may have too few; the system needs none."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.argtypes = [c_void_p, c_size_t, c_int, c_int, c_int, c_long]
    libc.mmap.restype = c_void_p
    libc.munmap.argtypes = [c_void_p, c_size_t]
    return libc


def _map(fd: int, size: int) -> int:
    """The address of a file's first bytes, shared with all that map them."""
    address = _libc().mmap(None, size, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, fd, 0)
    if address == c_void_p(-1).value:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return int(address)


class HostBlock:
    """See `Block`.

    Args:
        fd: of another process's memory; None for new memory.

    Raises:
        OSError: the system gives no memory, or no descriptor.
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
        """Host memory is everybody's."""

    def map(self, fd: int, size: int) -> HostBlock:
        return HostBlock(size, fd)

    def close(self) -> None:
        """Nothing is held."""


class HostSlot:
    """See `Slot`."""

    is_ready = True  # what is copied is there

    def __init__(self, block: HostBlock, offset: int) -> None:
        self.block, self.offset = block, offset


class RemoteLease:
    """A place of another process, for as long as this is held; then the owner is to be told.

    Attributes:
        home: where it is noted.
    """

    __slots__ = ("_block", "_home", "_offset")

    def __init__(self, home: deque[tuple[int, int]], block: int, offset: int) -> None:
        self._home, self._block, self._offset = home, block, offset

    def __del__(self) -> None:
        self._home.append((self._block, self._offset))


class _View:
    """Tells numpy of memory, and keeps it borrowed as long as an array looks at it."""

    def __init__(self, address: int, shape: tuple[int, ...], lease: RemoteLease) -> None:
        self.__array_interface__ = {"version": 3, "typestr": "|u1", "shape": shape, "data": (address, False)}
        self._lease = lease


def view(address: int, shape: tuple[int, ...], lease: RemoteLease | None = None) -> npt.NDArray[np.uint8]:
    """An array over memory, which stays borrowed as long as the array lives."""
    return np.asarray(_View(address, shape, lease) if lease else _View(address, shape, None))  # type: ignore[arg-type]
