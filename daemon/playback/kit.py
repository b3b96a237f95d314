"""Attaches the API of recordings. Its libraries are an optional extra, as those of `daemon.http`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import structlog

from daemon.lifecycle import Phase, Steps

if TYPE_CHECKING:
    from daemon.config.root import Config
    from daemon.http.kit import Api
    from daemon.pipeline.core import Core

log = structlog.get_logger(__name__)
Reload = Callable[["Config"], Callable[[], None]]


def open_playback(core: Core, api: Api | None) -> list[Reload]:
    """Its process, if `record.port` is set; how it follows a reload of tokens.

    Args:
        api: of the daemon, which tells the port.

    Raises:
        ConfigError: the port cannot be bound, or a library, a token, a key or a TLS file is missing.
    """
    config = core.config
    if config.record.port is None:
        return []
    from daemon.http import check_libraries

    check_libraries()
    from daemon.http.access import read_tokens
    from daemon.playback.evidence_settings import check_key, evidence_settings
    from daemon.playback.process import PlaybackProcess, playback_order

    tokens = read_tokens(config.http)
    check_key(config)
    order = playback_order(config.http, config.record, config.log, evidence_settings(config))
    process = PlaybackProcess(order, core.runtime.clock)
    core.life.add(
        Steps("recordings over HTTP", start=process.start, request_stop=process.request_stop, join=process.finish),
        Phase.API,
    )
    log.info("recordings over HTTP", port=process.port)
    if api is not None:
        api.facts["recordings"] = {"port": process.port}

    def reload(new: Config) -> Callable[[], None]:
        found = read_tokens(new.http)
        check_key(new)

        def use() -> None:
            nonlocal tokens
            if found != tokens:  # viewers are cut off, and ask again
                tokens = found
                process.change(playback_order(new.http, config.record, config.log, evidence_settings(new)))

        return use

    return [reload]
