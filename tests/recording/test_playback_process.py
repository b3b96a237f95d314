"""The process of the API of recordings, and stores that do not answer."""

from __future__ import annotations

import os
import signal
import socket
from dataclasses import replace
from pathlib import Path

import httpx
import msgspec
import psutil
import pytest

from daemon.clock import SystemClock
from daemon.config.recording import RecordConfig, StoreConfig
from daemon.config.root import LogConfig
from daemon.errors import ConfigError
from daemon.playback.opened import PlayPlace
from daemon.playback.process import PlaybackOrder, PlaybackProcess, playback_order
from daemon.recording.index import NAME
from daemon.recording.store import Store
from daemon.system.children import spawn
from tests.lifetimes.running import STREET, running
from tests.recording.playback_rig import HTTP, VIEW, locked_index, recorded, served
from tests.support.daemon import PATIENCE_S, wait_until
from tests.support.ports import free_port

HEADERS = {"Authorization": f"Bearer {VIEW}"}


@pytest.fixture
def order(store: Store) -> PlaybackOrder:
    record = RecordConfig(stores={"main": StoreConfig(store.path)}, port=0)
    return playback_order(HTTP, record, LogConfig())


def _stores(port: int) -> httpx.Response:
    """The answer waits in the socket's queue while the process begins."""
    return httpx.get(f"http://127.0.0.1:{port}/api/v1/recordings", headers=HEADERS, timeout=PATIENCE_S)


def _is_refused(port: int) -> bool:
    try:
        return _stores(port).status_code == 401
    except httpx.TransportError:  # cut off by the change
        return False


def test_the_process_begins_again_and_ends_with_the_daemon(order: PlaybackOrder) -> None:
    process = PlaybackProcess(order, SystemClock())
    process.start()
    try:
        assert _stores(process.port).status_code == 200
        first = process.pid
        assert first is not None
        assert psutil.Process(first).nice() > psutil.Process().nice()
        os.kill(first, signal.SIGKILL)
        wait_until(lambda: process.pid not in (None, first), "it has begun again")
        assert _stores(process.port).status_code == 200
        with pytest.raises(ConfigError, match="choose another port"):
            PlaybackProcess(_with_port(order, process.port), SystemClock())
    finally:
        process.request_stop()
        process.finish(PATIENCE_S)
    assert process.pid is None
    with pytest.raises(httpx.ConnectError):
        _stores(process.port)


def _with_port(order: PlaybackOrder, port: int) -> PlaybackOrder:
    return replace(order, http=msgspec.structs.replace(order.http, port=port))


def test_a_daemon_serves_its_stores_and_follows_its_tokens(tmp_path: Path) -> None:
    port = free_port()
    record = RecordConfig(stores={"main": StoreConfig(tmp_path / "main", min_free_gib=0)}, port=port)
    with running(tmp_path, STREET, config={"record": record, "http": HTTP}) as app:
        wait_until(lambda: _stores(port).json()["stores"][0]["state"] == "up", "the recorder has made its store")
        http = msgspec.structs.replace(HTTP, tokens=HTTP.tokens[1:])
        app.changes.submit(lambda now: msgspec.structs.replace(now, http=http), reloads=True).result(PATIENCE_S)
        wait_until(lambda: _is_refused(port), "the token is not known any more")
    with pytest.raises(httpx.ConnectError):
        _stores(port)


def test_it_ends_by_itself_when_the_daemon_is_gone(order: PlaybackOrder) -> None:
    mine, theirs = socket.socketpair()
    with socket.create_server(("127.0.0.1", 0)) as bound, theirs:
        child = spawn("daemon.playback.main", order, [theirs.fileno(), bound.fileno()])
        theirs.close()
        assert mine.recv(64) == b"ready\n"
        mine.close()
        assert child.wait(PATIENCE_S) == 0


def test_a_store_that_hangs_holds_up_no_other(tmp_path: Path, clips: Path) -> None:
    """An index that somebody else has alone keeps all that open it."""
    with recorded(tmp_path / "main", clips) as main, recorded(tmp_path / "slow", clips) as slow:
        index = slow.path / NAME
        slow.index.close()  # so that it is one file
        os.rename(index, slow.path / "kept")
        places = [PlayPlace("main", main.path), PlayPlace("slow", slow.path)]
        with locked_index(slow.path) as let_go, served(places, patience_s=0.2) as client:
            times = f"from={main.at(0)}&to={main.at(3)}"
            for _ in range(6):
                found = client.get(f"/api/v1/recordings/door/spans?{times}").json
                assert [row["store"] for row in found["stores"]] == ["main"]
                assert "does not answer" in found["failed"]["slow"]
                assert client.get(f"/api/v1/recordings/files/{main.files[0].id}").status == 200
            refused = client.get(f"/api/v1/recordings/door/spans?{times}&store=slow")
            assert (refused.status, refused.headers["retry-after"]) == (503, "5")
            let_go()
            os.rename(slow.path / "kept", index)
            again = f"/api/v1/recordings/door/spans?{times}&store=slow"
            wait_until(lambda: client.get(again).status == 200, "the store answers again")
