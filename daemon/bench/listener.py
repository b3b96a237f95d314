"""A subscriber in a process of its own that stamps received detections.

python -m daemon.bench.listener ENDPOINT STAMPS PARENT [FILE]; it ends with the process PARENT; FILE records them, see
`daemon.bench.recording`
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from struct import Struct
from time import monotonic_ns

import msgspec
import numpy as np
import numpy.typing as npt
import zmq

from daemon.bench.recording import line_of, lines_file
from daemon.errors import LookoutError
from lookout.messages import Detections, decode, topic

MESSAGES = 1 << 20  # high-water mark, so that no message is lost
STAMP = np.dtype([("source", "<u4"), ("seq", "<u8"), ("received_ns", "<u8")])  # received_ns: CLOCK_MONOTONIC
Stamps = npt.NDArray[np.void]
_PACKED = Struct("<IQQ")
_START_TIMEOUT_S = 120.0
_POLL_MS = 1000


class _Model(msgspec.Struct, gc=False):
    id: str | None = None


class _Frame(msgspec.Struct, gc=False):
    """The fields of a message that a stamp needs."""

    source: str
    seq: int
    model: _Model

    @property
    def account(self) -> str:
        """As `Config.accounts_of` names it."""
        return f"{self.source}/{self.model.id}" if self.model.id else self.source


_JSON, _MSGPACK = msgspec.json.Decoder(_Frame), msgspec.msgpack.Decoder(_Frame)


class Listener:
    """A subscriber process."""

    def __init__(self, process: subprocess.Popen[str], stamps: Path) -> None:
        self._process, self._stamps = process, stamps

    def stamps(self, accounts: Sequence[str]) -> Stamps:
        """An array of STAMP, one per received message. Waits for the process, which ends when the publisher's socket
        closes.

        Args:
            accounts: of the ledger; their indices become the numbers in the stamps.

        Raises:
            LookoutError: the process failed.
        """
        ids = self._process.communicate(timeout=_START_TIMEOUT_S)[0].split()
        if self._process.returncode:
            raise LookoutError("the benchmark's subscriber failed: see the log above")
        found = np.fromfile(self._stamps, STAMP)
        if ids:
            found["source"] = np.array([accounts.index(id) for id in ids])[found["source"]]
        return found


@contextmanager
def listening(endpoint: str, record: Path | None = None) -> Iterator[Listener]:
    """Receive all published detections inside the context, and record them if a file is given."""
    with tempfile.TemporaryDirectory() as folder:
        stamps = Path(folder) / "stamps"
        command = [sys.executable, "-m", __spec__.name, endpoint, str(stamps), str(os.getpid())]
        command += [str(lines_file(record))] if record else []
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                yield Listener(process, stamps)
            finally:
                process.kill()


def _listen(endpoint: str, parent: int, note: Callable[[list[bytes]], None]) -> None:
    context = zmq.Context()
    socket = context.socket(zmq.SUB)
    socket.setsockopt(zmq.RCVHWM, MESSAGES)
    socket.setsockopt(zmq.SUBSCRIBE, topic("detections"))
    end = socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
    socket.connect(endpoint)
    poller = zmq.Poller()
    poller.register(socket, zmq.POLLIN)
    poller.register(end, zmq.POLLIN)
    is_over = False
    while not is_over:
        is_over = end in dict(poller.poll(_POLL_MS))  # earlier messages have arrived by then
        is_over |= os.getppid() != parent  # it was killed, perhaps before it could be connected to
        while True:
            try:
                note(socket.recv_multipart(zmq.NOBLOCK))
            except zmq.Again:
                break
    socket.disable_monitor()
    end.close(linger=0)
    socket.close(linger=0)
    context.term()


def _main(endpoint: str, stamps: str, parent: str, record: str | None = None) -> int:
    numbers: dict[str, int] = {}
    with ExitStack() as files:
        file = files.enter_context(Path(stamps).open("wb"))
        lines = files.enter_context(Path(record).open("wb")) if record else None

        def note(parts: list[bytes]) -> None:
            now = monotonic_ns()
            frame = (_JSON if parts[1][:1] == b"{" else _MSGPACK).decode(parts[1])
            file.write(_PACKED.pack(numbers.setdefault(frame.account, len(numbers)), frame.seq, now))
            if lines:
                message = decode(parts[0], parts[1])
                if isinstance(message, Detections):
                    lines.write(line_of(message))

        _listen(endpoint, int(parent), note)
    sys.stdout.write("\n".join(numbers))
    return 0


if __name__ == "__main__":
    sys.exit(_main(*sys.argv[1:]))
