"""A subscriber in a process of its own, which counts the detections that arrive.

python -m daemon.bench.listener ENDPOINT [FILE], which records them, see `daemon.bench.recording`
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import zmq

from daemon.bench.recording import line_of, lines_file
from daemon.messages import Detections, decode, topic

MESSAGES = 1 << 20  # that may wait on the way to the subscriber: none is to be lost
_PATIENCE_S = 120.0


class Listener:
    """The process; `received` waits for it to end, which it does when the publisher has closed its socket."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def received(self) -> int:
        return int(self._process.communicate(timeout=_PATIENCE_S)[0])


@contextmanager
def listening(endpoint: str, record: Path | None = None) -> Iterator[Listener]:
    """Within, every detection published is received, and recorded if there is a file for it."""
    command = [sys.executable, "-m", __spec__.name, endpoint, *([str(lines_file(record))] if record else [])]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Listener(process)
        finally:
            process.kill()


def _listen(endpoint: str, note: Callable[[list[bytes]], None]) -> int:
    context = zmq.Context()
    socket = context.socket(zmq.SUB)
    socket.setsockopt(zmq.RCVHWM, MESSAGES)
    socket.setsockopt(zmq.SUBSCRIBE, topic("detections"))
    end = socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
    socket.connect(endpoint)
    poller = zmq.Poller()
    poller.register(socket, zmq.POLLIN)
    poller.register(end, zmq.POLLIN)
    count, is_over = 0, False
    while not is_over:
        is_over = end in dict(poller.poll())  # what came before that is here already
        while True:
            try:
                note(socket.recv_multipart(zmq.NOBLOCK))
            except zmq.Again:
                break
            count += 1
    socket.disable_monitor()
    end.close(linger=0)
    socket.close(linger=0)
    context.term()
    return count


def _main(endpoint: str, record: str | None = None) -> int:
    if record is None:
        return _listen(endpoint, lambda _: None)
    with Path(record).open("wb") as file:

        def write(parts: list[bytes]) -> None:
            message = decode(parts[0], parts[1])
            if isinstance(message, Detections):
                file.write(line_of(message))

        return _listen(endpoint, write)


if __name__ == "__main__":
    sys.stdout.write(f"{_main(*sys.argv[1:])}\n")
