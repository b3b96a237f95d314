"""The connection to a daemon goes on after whatever the daemon says, and ends without a trace."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from daemon.clock import Awaited, SystemClock
from daemon.peers.addresses import DaemonAddress
from daemon.peers.link import Arrived, Link
from daemon.redact import Secret
from tests.bridge.publisher import EventSource
from tests.support.pushes import Asked, PushServer, Reply


class _Hurried(SystemClock):
    """Nobody waits by it."""

    @staticmethod
    def wait(event: Awaited, seconds: float) -> bool:  # noqa: ARG004
        return event.wait(0)


def test_an_endpoint_that_is_none_is_said_and_asked_for_again() -> None:
    states, came = list[tuple[str, str | None]](), threading.Event()

    def take(_: Sequence[Arrived]) -> bool:
        if not came.is_set():
            came.set()
            raise ValueError("a receiver that fails")
        again.set()
        return True

    again = threading.Event()
    with EventSource() as source, PushServer() as server:

        def told(_: Asked) -> Reply:
            endpoint = "tcp://" if len(server.asked) < 2 else source.endpoint
            return Reply(200, json.dumps({"endpoint": endpoint}).encode())

        server.answer = told
        address = DaemonAddress("here", None, server.url(""), Secret("token"))
        link = Link(address, _Hurried(), ("status", "metrics"), take, lambda *state: states.append(state))
        link.start()
        try:
            assert came.wait(60)
            assert again.wait(60)
        finally:
            link.close()
    assert not link.is_alive()
    assert states[0][0] == "away"
    assert str(states[0][1]).startswith("cannot subscribe to tcp://")
    assert ("up", None) in states
    assert ("away", "ValueError: a receiver that fails") in states


def test_nothing_is_written_after_the_end(tmp_path: Path) -> None:
    link = Link(DaemonAddress("here", "tcp://127.0.0.1:1", None), SystemClock(), (), lambda _: True, lambda *_: None)
    link.close()
    path = tmp_path / "another"
    path.touch()
    with ExitStack() as files:
        for _ in range(8):  # descriptors that were the link's
            files.enter_context(path.open("r+b", buffering=0))
        link.want([b"detections/"])
        link.close()
        link.close()
        assert path.read_bytes() == b""
