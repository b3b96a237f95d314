"""A subscriber in a process of its own, which counts the detections that arrive.

python -m daemon.bench.listener ENDPOINT
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import zmq

from daemon.messages import topic

MESSAGES = 1 << 20  # that may wait on the way to the subscriber: none is to be lost
_SILENCE_MS = 2_000
_PATIENCE_MS = 120_000


class Listener:
    """The process; `received` waits for it to end, which it does when nothing has come for two seconds."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def received(self) -> int:
        return int(self._process.communicate(timeout=_PATIENCE_MS / 1000)[0])


@contextmanager
def listening(endpoint: str) -> Iterator[Listener]:
    """Within, every detection published is received."""
    command = [sys.executable, "-m", __spec__.name, endpoint]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Listener(process)
        finally:
            process.kill()


def _listen(endpoint: str) -> int:
    context = zmq.Context()
    socket = context.socket(zmq.SUB)
    socket.setsockopt(zmq.RCVHWM, MESSAGES)
    socket.setsockopt(zmq.SUBSCRIBE, topic("detections"))
    socket.connect(endpoint)
    count = 0
    while socket.poll(_SILENCE_MS if count else _PATIENCE_MS):
        while True:
            try:
                socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                break
            count += 1
    socket.close(linger=0)
    context.term()
    return count


if __name__ == "__main__":
    sys.stdout.write(f"{_listen(sys.argv[1])}\n")
