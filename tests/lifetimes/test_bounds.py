"""Memory is bounded, whatever a camera sends."""

from __future__ import annotations

import os
import resource
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import cv2
import numpy as np
import pytest

from daemon.config.sources import AvConfig, ReconnectConfig, SourceConfig
from daemon.daemon import Daemon
from daemon.redact import Secret, Url
from daemon.sources.factory import make_source
from lookout.client import Subscriber
from lookout.messages import Status
from tests.lifetimes.rig import wait_until
from tests.lifetimes.running import STREET, running, wait_up
from tests.support.daemon import is_state, receive_until

_MIB = 1 << 20
_BEFORE = resource.getrlimit(resource.RLIMIT_DATA)[0]
_PROMISED = 2_147_483_000  # bytes of an answer's body
_SENT_MIB = 600  # of it, which is more than a process may take


def _most_memory(pid: int) -> int:
    """Peak resident memory of a process, bytes."""
    rows = dict(row.split(":", 1) for row in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(rows["VmHWM"].split()[0]) * 1024


class Endless:
    """An RTSP camera that answers the first request with a body of two gigabytes, and begins to send it.

    Attributes:
        accepted: connections so far.
    """

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self.accepted = 0
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        head = f"RTSP/1.0 200 OK\r\nCSeq: 1\r\nPublic: OPTIONS\r\nContent-Length: {_PROMISED}\r\n\r\n".encode()
        block = bytes(_MIB)
        while True:
            with suppress(ConnectionError):
                try:
                    connection, _ = self._socket.accept()
                except OSError:
                    return
                self.accepted += 1
                with connection:
                    connection.recv(4096)
                    connection.sendall(head)
                    for _ in range(_SENT_MIB):
                        connection.sendall(block)

    def close(self) -> None:
        self._socket.close()


@contextmanager
def _capturing(folder: Path, source: SourceConfig, processes: int) -> Iterator[Daemon]:
    more = {"capture_processes": processes, "reconnect": ReconnectConfig(initial_s=0.05, max_s=0.1)}
    with running(folder, STREET, source, config=more, make_source=make_source) as app:
        wait_up(app, "street")
        yield app


@pytest.mark.parametrize("processes", [pytest.param(0, marks=pytest.mark.long), 1], ids=["here", "in-a-worker"])
def test_an_answer_of_two_gigabytes_is_not_taken(tmp_path: Path, processes: int) -> None:
    """A5: FFmpeg would make room for all of it, for each such camera and at each connection."""
    camera = Endless()
    source = AvConfig(id="cam", url=Url(f"rtsp://127.0.0.1:{camera.port}/x"), open_timeout_s=3)
    with _capturing(tmp_path, source, processes) as app:
        pid = _worker_of(app) if processes else os.getpid()
        before = _most_memory(pid)
        wait_until(lambda: camera.accepted > 1, "it is asked again", lambda: camera.accepted)
        assert _most_memory(pid) - before < 300 * _MIB
        wait_up(app, "street")
    camera.close()


def _worker_of(app: Daemon) -> int:
    """The only capture process; a busy machine takes time to start it."""
    wait_until(lambda: bool(app.sources.pids), "it is started")
    (pid,) = app.sources.pids
    return pid


def test_a_capture_process_may_take_only_so_much(tmp_path: Path) -> None:
    """The limit holds for capture processes, not for the daemon with the model."""
    with _capturing(tmp_path, AvConfig(id="none", url=Url("rtsp://127.0.0.1:1/x")), 1) as app:
        pid = _worker_of(app)

        def most() -> int:
            return resource.prlimit(pid, resource.RLIMIT_DATA)[0]

        wait_until(lambda: 0 < most() <= 5 << 30, "it has bound itself", most)
    assert resource.getrlimit(resource.RLIMIT_DATA)[0] == _BEFORE


@pytest.mark.parametrize("processes", [0, 1], ids=["here", "in-a-worker"])
def test_a_picture_of_a_size_that_nobody_has_is_refused_in_words(tmp_path: Path, processes: int) -> None:
    """AB9: and taken if the configuration says that it is meant."""
    path = tmp_path / "large.png"
    cv2.imwrite(str(path), np.zeros((6000, 6000), np.uint8))
    source = AvConfig(id="large", url=Url(str(path)), decode="cpu")
    with _capturing(tmp_path, source, processes) as app:
        with Subscriber(app.endpoint, kinds=["status"]) as subscriber:
            *_, told = receive_until(subscriber, is_state("large", "ended"))
        assert isinstance(told, Status)
        assert str(told.reason).startswith("no picture of 1 could be decoded")
        assert "max_pixels" in str(told.reason)
    meant = AvConfig(id="large", url=Url(str(path)), decode="cpu", options={"max_pixels": Secret("40000000")})
    with _capturing(tmp_path, meant, processes) as app:
        wait_until(lambda: app.ledger.counts()["large"].captured == 1, "it is taken")
