"""What recordings lack, as a daemon's own figures tell it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from daemon.bridge.recording_gaps import parse_gaps, read_gaps
from daemon.config.http import HttpConfig
from daemon.config.recording import StoreConfig
from daemon.http.exposition import CONTENT_TYPE
from daemon.http.recording_exposition import RecordingExposition
from daemon.http.server import HttpServer
from daemon.peers.addresses import DaemonAddress
from daemon.peers.api import AwayError, DaemonApi
from daemon.recording.process.store_process import StoreFigures
from daemon.recording.source_recorder import Account
from daemon.redact import Secret

_S = 1_000_000_000
_TOKEN = "a-token-that-is-long-enough"  # noqa: S105 - of these tests


def _text() -> bytes:
    """As a daemon with one store and two sources gives it."""
    gaps = {"door": {"network": 90 * _S, "off": 500 * _S}, "gate-2": {"disk_full": 7 * _S}}
    accounts = [Account(source, 1, 0, {}, 0, 0, rows, None, None) for source, rows in gaps.items()]
    figures = [StoreFigures("main", None, None, 1, 1, tuple(accounts))]
    registry = CollectorRegistry(auto_describe=False)
    registry.register(RecordingExposition(lambda: figures, {"main": StoreConfig(Path("/x"))}))
    return generate_latest(registry)


@contextmanager
def _daemon(status: int = 200) -> Iterator[DaemonAddress]:
    async def metrics(request: Request) -> Response:
        is_known = request.headers.get("authorization") == f"Bearer {_TOKEN}"
        return Response(_text(), status if is_known else 401, media_type=CONTENT_TYPE)

    server = HttpServer(HttpConfig(enabled=True, port=0))
    server.mount(Starlette(routes=[Route("/metrics", metrics)]))
    server.start()
    try:
        yield DaemonAddress("hall", None, f"http://127.0.0.1:{server.port}", Secret(_TOKEN))
    finally:
        server.stop(2)


def test_gaps_are_read_by_source_store_and_cause_but_for_those_that_were_asked_for() -> None:
    with _daemon() as address:
        assert read_gaps(address, DaemonApi(address)) == {
            ("door", "main"): {"network": 90.0},
            ("gate-2", "main"): {"disk_full": 7.0},
        }


def test_a_daemon_that_does_not_answer_or_refuses_is_away() -> None:
    with _daemon(503) as address, pytest.raises(AwayError, match="hall do not come: it answers 503"):
        read_gaps(address, DaemonApi(address))
    with pytest.raises(AwayError, match="hall do not come"):
        read_gaps(address, DaemonApi(address))


def test_what_is_no_counter_is_left_out() -> None:
    name = b"lookout_recording_gap_seconds_total"
    rows = [
        b'lookout_recording_gap_seconds_total_x{source="a",store="b",cause="network"} 5',
        name + b'{source="a",store="b",cause="network"} NaN',
        name + b'{source="a",store="b",cause="no_key"} many',
        name + b'{source="a",store="b",cause="network"',
        name + b'{source="a",cause="network"} 4',
        name + b'{source="c",store="b",cause="network"} 4.5',
    ]
    found = parse_gaps(b"\n".join(rows))
    assert found == {("a", "b"): {}, ("c", "b"): {"network": 4.5}}
