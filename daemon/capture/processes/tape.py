"""In a capture process: where the packets of one source are recorded."""

from __future__ import annotations

import os
import pickle
from typing import TYPE_CHECKING

import structlog

from daemon.capture.processes.protocol import Record
from daemon.capture.sinks import PacketTape
from daemon.errors import LookoutError
from daemon.sources.port import PacketInfo

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

log = structlog.get_logger(__name__)


class SourceTape:
    """Implements `daemon.capture.sinks.PacketRecorder` for one source, with rings that the daemon sends."""

    def __init__(self) -> None:
        self._tape: PacketTape | None = None
        self._came: list[int | None] = []  # descriptors of rings, until all have come

    # --- for the capture -------------------------------------------------------------------------------------------

    def is_recorded(self, source: str) -> bool:  # noqa: ARG002
        return self._tape is not None

    def record(self, source: str, session: str, info: PacketInfo, data: ReadableBuffer) -> None:  # noqa: ARG002
        if tape := self._tape:  # another thread may end it
            tape.put(session, info, data)

    # --- for the thread that receives ------------------------------------------------------------------------------

    def take(self, message: Record, fd: int | None) -> None:
        """A ring has come.

        Args:
            fd: that is closed here; None if this process had no descriptor for it.
        """
        self._came.append(fd)
        if len(self._came) < message.rings:
            return
        came, self._came = self._came, []
        fds = [fd for fd in came if fd is not None]
        try:
            if len(fds) < len(came):
                log.error("no file descriptor for the memory of recordings", missing=len(came) - len(fds))
            tape: PacketTape = self._tape or pickle.loads(message.make_tape)()  # noqa: S301 - from the daemon
            tape.use(fds)
            self._tape = tape
        except (LookoutError, OSError) as error:
            log.error("packets cannot be recorded", reason=str(error))
        finally:
            for one in fds:
                os.close(one)

    def end(self) -> None:
        """The packets are not recorded any more."""
        tape, self._tape = self._tape, None
        if tape:
            tape.close()
