"""Keys of the bridge: what it tells, to whom, and where it keeps what is not delivered yet."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec

from daemon.config.http import DaemonConfig, HttpConfig, check_daemons, check_http
from daemon.config.section import Section, absolute, anchored
from daemon.config.targets import TargetConfig
from daemon.errors import ConfigError


class StatusConfig(Section, frozen=True):
    """When a change of state is told."""

    down_s: Annotated[float, msgspec.Meta(ge=0, le=86_400)] = 60.0
    """a source, a store or a daemon that is down for so long"""
    gap_s: Annotated[float, msgspec.Meta(ge=1, le=86_400)] = 60.0
    """recordings of a source that lack so much since the last notice"""


class BridgeConfig(Section, frozen=True):
    targets: list[TargetConfig] = []
    """brokers, servers and people, such as {name: home, type: mqtt, url: "mqtts://192.0.2.5:8883"}: docs/bridges.md.
    One that is away or slow changes nothing for the others"""
    daemons: list[DaemonConfig] = []
    """whose messages are passed on, as in dashboard.daemons; none: this configuration's own"""
    spool: str = "auto"
    """a file that keeps what is not delivered; auto: bridge.sqlite in $STATE_DIRECTORY, which systemd sets, else it
    must be named"""
    spool_mib: Annotated[int, msgspec.Meta(ge=1, le=1 << 20)] = 256
    """of it; the oldest go, and are counted"""
    status: StatusConfig = StatusConfig()
    """when a change of state is told"""
    port: Annotated[int, msgspec.Meta(ge=0, le=65535)] | None = None
    """of the bridge's own figures, for Prometheus and the page, at http.host for the holders of http's tokens; null:
    none; 0: any free one"""

    def anchored(self, folder: Path) -> BridgeConfig:
        """A copy with absolute paths."""
        spool = self.spool if self.spool == "auto" else str(absolute(folder, Path(self.spool)))
        return msgspec.structs.replace(anchored(self, folder), spool=spool)


def check_bridge(bridge: BridgeConfig, http: HttpConfig) -> None:
    """
    Raises:
        ConfigError: with the key, and what to write instead.
    """
    if not bridge.spool:
        raise ConfigError("bridge.spool: is empty: write auto, or the name of a file")
    check_daemons(bridge.daemons, "bridge.daemons")
    names: list[str] = []
    for index, target in enumerate(bridge.targets):
        where = f"bridge.targets[{index}]"
        for problem in target.problems():
            raise ConfigError(f"{where}.{problem}")
        if target.name.lower() in names:
            raise ConfigError(f"{where}.name: {target.name!r} is used twice; each target needs its own")
        names.append(target.name.lower())
    if bridge.port is not None:
        check_http(msgspec.structs.replace(http, enabled=True))
    if bridge.port and http.enabled and bridge.port == http.port:
        raise ConfigError(f"bridge.port: {bridge.port} is http.port: choose another one")
