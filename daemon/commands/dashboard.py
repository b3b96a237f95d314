"""`lookout dashboard`: the page, in a process of its own."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from daemon.clock import SystemClock
from daemon.config.http import DashboardConfig
from daemon.config.load import load_page
from daemon.config.root import Config, LogConfig, PageConfig
from daemon.errors import ConfigError, LookoutError
from daemon.log import logging
from daemon.system.signals import stopping_on_signals
from daemon.system.stop_token import StopToken
from daemon.system.tuning import disable_core_dumps, raise_nofile_limit

_POLL_S = 0.5


def dashboard(path: Path | None, arguments: Sequence[str], token: str | None, port: int | None) -> int:
    """Serve the page until a signal; the exit code.

    Args:
        path: of the configuration; None without one.
        arguments: addresses of daemons; the configuration's if empty.
        token: for the daemons' HTTP APIs.
        port: instead of the configuration's.
    """
    try:
        from daemon.dashboard.server import Dashboard
        from daemon.peers.addresses import addresses_of, given_token
    except ImportError as error:
        raise ConfigError(f"the page needs {error.name}: pip install 'lookoutd[http]'") from error
    config = load_page(path) if path else None
    page, log = _sections(config)
    if port is not None:
        import msgspec

        page = msgspec.structs.replace(page, port=port)
    addresses = addresses_of(config, arguments, given_token(token))
    disable_core_dumps()
    raise_nofile_limit()
    stop, clock = StopToken(), SystemClock()
    with stopping_on_signals(stop.set), logging(log):
        served = Dashboard(page, addresses, clock)
        try:
            served.start()
            sys.stderr.write(f"the page: {served.url}\n")
            while not clock.wait(stop, _POLL_S):
                if not served.is_alive:
                    raise LookoutError("the page's server has ended: see the log")
        finally:
            served.close()
    return 0


def _sections(config: Config | PageConfig | None) -> tuple[DashboardConfig, LogConfig]:
    if config is None:
        return DashboardConfig(), LogConfig()
    return config.dashboard, config.log
