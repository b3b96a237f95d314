"""Obstacles that end `lookout run`, or keep it from its work, beside its model and its sources."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

from daemon.analytics.journal import try_journal
from daemon.analytics.snapshots import try_snapshots
from daemon.appended_file import AppendedFile
from daemon.clock import SystemClock
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


def obstacles(config: Config, *, ports: bool) -> Iterator[str]:
    """Try each part of the configuration; gives a line for each obstacle, and leaves nothing.

    Args:
        ports: also what only one daemon may have: ports and the journal.
    """
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
            tries.append(lambda: _open_server(config.http))
        if config.record.port is not None:
            tries.append(lambda: _bind_recordings(config))
    for each in tries:
        try:
            each()
        except LookoutError as error:
            yield str(error)


def _open_server(config: HttpConfig) -> None:
    check_libraries()
    from daemon.http.kit import open_server

    open_server(config, SystemClock())[0].stop(0.0)


def _bind_recordings(config: Config) -> None:
    check_libraries()
    from daemon.http.access import read_tokens
    from daemon.http.server import bind, check_tls
    from daemon.playback.process import playback_order

    http = playback_order(config.http, config.record, config.log).http
    read_tokens(http)
    check_tls(http, "record")
    bind(http, "record").close()


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
