"""Obstacles that end `lookout run`, or keep it from its work, beside its model and its sources."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING

from daemon.analytics.journal import try_journal
from daemon.analytics.snapshots import try_snapshots
from daemon.appended_file import AppendedFile
from daemon.clock import SystemClock
from daemon.commands.attached_checks import try_bridge, try_page
from daemon.config.http import HttpConfig
from daemon.config.root import Config
from daemon.errors import ConfigError, LookoutError
from daemon.fleet.open_coordinator import open_coordinator
from daemon.fleet_config import FleetConfig
from daemon.http import check_libraries
from daemon.playback.evidence_settings import check_key
from daemon.publish.zeromq import try_endpoint
from daemon.system.tuning import raise_nofile_limit
from daemon.tracing.kit import check_tracing

if TYPE_CHECKING:
    from daemon.http.server import HttpServer


def obstacles(config: Config, *, ports: bool, page: bool = False, bridge: bool = False) -> Iterator[str]:
    """Try each part of the configuration; gives a line for each obstacle, and leaves nothing.

    Args:
        ports: also what only one daemon may have: ports and the journal.
        page: also what the page needs beside the daemon.
        bridge: likewise.
    """
    with ExitStack() as held:  # each port until all are tried: two parts may not have the same one
        yield from _tried(_tries(config, held, ports=ports, page=page, bridge=bridge))


def _tried(tries: Iterable[Callable[[], object]]) -> Iterator[str]:
    for each in tries:
        try:
            each()
        except LookoutError as error:
            yield str(error)


def _tries(config: Config, held: ExitStack, *, ports: bool, page: bool, bridge: bool) -> Sequence[Callable[[], object]]:
    """
    Args:
        held: gets what has a port.
    """

    def hold(bound: socket.socket | None) -> None:
        if bound is not None:
            held.enter_context(bound)

    tries: list[Callable[[], object]] = [
        raise_nofile_limit,
        lambda: _append_to(config.log.file, "log.file"),
        lambda: _append_to(config.monitor.frames_file, "monitor.frames_file"),
        lambda: try_journal(config.events, alone=ports),
        lambda: try_snapshots(config.events.snapshots),
        lambda: _ask_coordinator(config.fleet),
        lambda: check_key(config),
        lambda: check_tracing(config.otlp),
    ]
    if ports:
        tries.append(lambda: try_endpoint(config.publisher))
        if config.http.enabled:
            tries.append(lambda: held.callback(_open_server(config.http).stop, 0.0))
        if config.record.port is not None:
            tries.append(lambda: hold(_bind_recordings(config)))
    if page:
        tries.append(lambda: hold(try_page(config, ports=ports)))
    if bridge:
        tries.append(lambda: hold(try_bridge(config, ports=ports)))
    return tries


def _open_server(config: HttpConfig) -> HttpServer:
    check_libraries()
    from daemon.http.kit import open_server

    return open_server(config, SystemClock())[0]


def _bind_recordings(config: Config) -> socket.socket:
    check_libraries()
    from daemon.http.access import read_tokens
    from daemon.http.server import bind, check_tls
    from daemon.playback.process import playback_order

    http = playback_order(config.http, config.record, config.log).http
    read_tokens(http)
    check_tls(http, "record")
    return bind(http, "record")


def _append_to(path: Path | None, key: str) -> None:
    if path is None:
        return
    try:
        there = path.exists()
        AppendedFile(path).close()
        if not there:
            path.unlink()
    except OSError as error:
        raise ConfigError(f"{key}: {path} cannot be written: {error.strerror}") from error


def _ask_coordinator(fleet: FleetConfig) -> None:
    if fleet.coordinator is None:
        return
    with closing(open_coordinator(fleet)) as coordinator:
        try:
            coordinator.view()
        except LookoutError as error:
            raise ConfigError(
                f"fleet.coordinator: {error}; `run` waits for it, and has no sources until then"
            ) from error
