"""A ring in shared memory: packets of one source on their way to one store.

The daemon makes it and holds it. One process at a time writes into it and one reads from it; either may be killed at
any moment, and the next one goes on where it was. Memory that was read is given back, so a ring holds what waits.
"""

from __future__ import annotations

import fcntl
import mmap
import os
from contextlib import suppress

from daemon.recording.ring_layout import (
    HAS,
    HEAD_BYTES,
    IS,
    LAYOUT,
    MAGIC,
    MAX_STATE_BYTES,
    SIZE,
    UNIT_BYTES,
    RingAccount,
    RingError,
    account_of,
)
from daemon.recording.ring_reader import RingReader
from daemon.recording.ring_writer import RingWriter

__all__ = ["MAX_STATE_BYTES", "UNIT_BYTES", "Ring", "RingAccount", "RingError", "RingReader", "RingWriter"]


class Ring:
    """The daemon's hold on a ring: it exists while this or a process that has it does.

    Args:
        name: for the lists of the system.
        size: bytes of the data.

    Attributes:
        fd: valid as long as this object.

    Raises:
        OSError: no memory or no descriptor.
    """

    def __init__(self, name: str, size: int) -> None:
        if size <= 0 or size % UNIT_BYTES:
            raise ValueError(f"a ring of {size} bytes: not a multiple of {UNIT_BYTES}")
        self.name, self.size = name, size
        self.fd = os.memfd_create(name[:200], os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        self._head: mmap.mmap | None = None
        try:
            os.ftruncate(self.fd, HEAD_BYTES + size)
            fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
            self._head = mmap.mmap(self.fd, HEAD_BYTES)
            with memoryview(self._head).cast("Q") as words:
                words[IS], words[HAS], words[SIZE] = MAGIC, LAYOUT, size
        except BaseException:
            self.close()
            raise

    @property
    def account(self) -> RingAccount:
        """From any thread, whatever the processes do that write and read."""
        assert self._head is not None  # noqa: S101 - it is not closed
        with memoryview(self._head).cast("Q") as words:
            return account_of(self._head, words)

    @property
    def memory(self) -> int:
        """Bytes that it has of the machine now."""
        return os.fstat(self.fd).st_blocks * 512

    def close(self) -> None:
        """Processes that have it go on."""
        if self._head is not None:
            self._head.close()
            self._head = None
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def __del__(self) -> None:
        with suppress(AttributeError):  # it was never made
            self.close()
