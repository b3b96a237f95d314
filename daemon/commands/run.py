"""`lookout run`: runs a daemon until it is stopped."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

from daemon.build import build
from daemon.clock import SystemClock
from daemon.config.http import TokenConfig
from daemon.config.root import Config
from daemon.control.source_store import SourceStore, load_effective, warn_if_overridden
from daemon.daemon import Daemon
from daemon.dashboard.process import PageOrder, PageProcess
from daemon.errors import ConfigError
from daemon.log import logging
from daemon.peers.access import new_token, with_access
from daemon.peers.addresses import DaemonAddress, server_key_of
from daemon.redact import Secret
from daemon.seams import Seams
from daemon.system.signals import stopping_on_signals
from daemon.system.stop_token import StoppedError, StopToken
from daemon.system.tuning import disable_core_dumps
from daemon.viewing.kit import Viewing


def run_file(path: Path, *, page: bool = False, bridge: bool = False) -> int:
    """Run until stopped; SIGHUP reloads the file. Returns the exit code.

    Args:
        page: also serve the page, in a process of its own.
        bridge: also run the bridge, likewise.
    """

    def read() -> Config:
        found = load_effective(path)
        warn_if_overridden(found)
        return found

    return run(load_effective(path), read, page=page, bridge=bridge)


def run(
    config: Config,
    read: Callable[[], Config],
    *,
    page: bool,
    bridge: bool = False,
    viewing: Viewing | None = None,
) -> int:
    """Run until stopped. Returns the exit code.

    Args:
        read: reads the configuration again, for SIGHUP.
        page: also serve the page, in a process of its own.
        bridge: also run the bridge, likewise.
        viewing: windows and files for pictures with boxes.
    """
    token, seams, rows = None, Seams(), list[TokenConfig]()
    if page:
        check_page_libraries()
        token = new_token()
        rows.append(page_access(token))
    if bridge:
        seams, row = _with_bridge(config)
        rows.append(row)
    stop = StopToken()
    if viewing is not None:
        seams = replace(seams, observe=partial(viewing.open, stop.set))
    if not rows:
        return _run_once(config, read, None, seams, stop)
    return _run_once(with_access(config, *rows), lambda: with_access(read(), *rows), token, seams, stop)


def page_access(token: Secret) -> TokenConfig:
    """The row of a token for the page."""
    return TokenConfig("dashboard", "operate", token)


def _with_bridge(config: Config) -> tuple[Seams, TokenConfig]:
    """Libraries and limits with the bridge attached, and the row of its token.

    Raises:
        ConfigError: there are no targets, or the spool has no place.
    """
    from daemon.bridge.kit import check_can_run, open_bridge

    check_can_run(config.bridge)
    token = new_token()
    return Seams(attach=partial(open_bridge, config.http.host, token)), TokenConfig("bridge", "view", token)


def check_page_libraries() -> None:
    """Raises:
    ConfigError: a library of the page is not installed.
    """
    try:
        import wsproto  # noqa: F401

        import daemon.dashboard.server  # noqa: F401
    except ImportError as error:
        raise ConfigError(f"the page needs {error.name}: pip install 'lookoutd[http]'") from error


def serve_page(daemon: Daemon, config: Config, token: Secret, on_ready: Callable[[str], None] | None) -> PageProcess:
    """Start the page of a daemon whose HTTP API has this token."""
    key = server_key_of(config.publisher)
    address = DaemonAddress("here", daemon.endpoint, daemon.parts.http_url, token, key, is_here=True)
    process = PageProcess(PageOrder(config.dashboard, [address], config.log), SystemClock(), on_ready)
    process.start()
    return process


def _tell_page(url: str) -> None:
    sys.stderr.write(f"the page: {url}\n")
    sys.stderr.flush()


def _run_once(config: Config, read: Callable[[], Config], token: Secret | None, seams: Seams, stop: StopToken) -> int:
    disable_core_dumps()
    if config.http.sources_file:
        SourceStore(config.http.sources_file).remove_leftovers()
    running, asked = list[Daemon](), StopToken()

    def reload() -> None:
        asked.set()  # the daemon may not be built yet
        for daemon in running:
            daemon.reload()

    with stopping_on_signals(stop.set, reload), logging(config.log):
        warn_if_overridden(config)
        try:
            daemon = build(config, seams, stop=stop, read=read)
        except StoppedError:
            return 0
        running.append(daemon)
        if asked.is_set:
            daemon.reload()
        with ExitStack() as stack:
            if token is not None:
                page = serve_page(daemon, config, token, _tell_page if sys.stderr.isatty() else None)
                stack.callback(page.close)
                stop.on_set(page.request_stop)  # or it would call a daemon that stops away
            return daemon.run()
