"""The configuration of a fleet: daemons that share their sources. docs/fleet.md explains it."""

from __future__ import annotations

import re
import socket
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import SplitResult, urlsplit

import msgspec

from daemon.errors import ConfigError
from daemon.redact import Secret

FleetName = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
OnCoordinatorLoss = Literal["keep", "stop"]
_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(?:/[A-Za-z0-9][A-Za-z0-9._-]*)?")
_ETCD, _KUBERNETES = ("etcd", "etcds"), "kubernetes"


class FleetConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The section `fleet`."""

    coordinator: str | None = None
    """etcd://HOST:2379,HOST:2379, etcds:// with TLS, or kubernetes://NAMESPACE; then write sources: []"""
    name: FleetName = "lookout"
    """fleets of different names do not see each other"""
    member: FleetName | None = None
    """this process; null: the host's name and the GPU, such as hall/gpu0"""
    address: str | None = None
    """where others reach this host; null: its name"""
    labels: dict[str, str] = {}
    """such as {site: north}, for sources with an affinity"""
    ttl_s: Annotated[float, msgspec.Meta(ge=2, le=300)] = 5.0
    """a member that is silent for so long has lost its sources to others"""
    on_coordinator_loss: OnCoordinatorLoss = "keep"
    """while the coordinator is away: keep goes on with its sources, stop gives them up in time"""
    connects_per_s: Annotated[float, msgspec.Meta(gt=0, le=1000)] = 50.0
    """new connections to sources, at most"""
    user: str | None = None
    """of etcd; with password ("${ETCD_PASSWORD}") or password_file"""
    password: Secret | None = None
    """of user"""
    password_file: Path | None = None
    """or the file that holds it"""
    tls_ca: Path | None = None
    """PEM; null: the system's certificates"""
    tls_certificate: Path | None = None
    """PEM, of this client; with tls_key"""
    tls_key: Path | None = None
    """PEM, of tls_certificate"""

    def member_name(self, gpu: int) -> str:
        """The name of this process: as written, or from the host's name and the GPU."""
        return self.member or f"{_host_name()}/gpu{gpu}"


def fleet_of(address: str) -> FleetConfig:
    """The fleet of an address such as etcd://HOST:2379/NAME, for a subscriber.

    Raises:
        ConfigError: it is none.
    """
    parts = _split(address, "fleet")
    name = parts.path.strip("/")
    if not name:
        raise ConfigError(f"fleet {address!r}: has no name: write it as etcd://HOST:2379/NAME")
    fleet = FleetConfig(coordinator=f"{parts.scheme}://{parts.netloc}", name=name)
    check_fleet(fleet, has_sources=False)
    return fleet


def check_fleet(fleet: FleetConfig, *, has_sources: bool) -> None:
    """Check what types cannot express.

    Args:
        has_sources: whether the configuration has sources of its own.

    Raises:
        ConfigError: names the key.
    """
    if fleet.coordinator is None:
        return
    _check_coordinator(fleet.coordinator)
    for key, value in (("name", fleet.name), ("member", fleet.member)):
        if value is not None and not _SAFE.fullmatch(value):
            raise ConfigError(f"fleet.{key}: {value!r} may have letters, digits, dots, dashes and one slash")
    if (fleet.tls_certificate is None) != (fleet.tls_key is None):
        raise ConfigError("fleet: tls_certificate and tls_key go together")
    if fleet.password is not None and fleet.password_file is not None:
        raise ConfigError("fleet: set one of password and password_file")
    if (fleet.user is None) != (fleet.password is None and fleet.password_file is None):
        raise ConfigError("fleet: user and password go together")
    if has_sources:
        raise ConfigError(
            "sources: those of a fleet are kept by its coordinator: write `sources: []` here, and add them "
            "with `lookout fleet add --from FILE`"
        )


def _split(url: str, key: str) -> SplitResult:
    """The URL is not shown: its mistake may be a password."""
    try:
        return urlsplit(url)
    except ValueError:
        raise ConfigError(f"{key}: is no URL, such as etcd://HOST:2379") from None


def _check_coordinator(url: str) -> None:
    parts = _split(url, "fleet.coordinator")
    if parts.username is not None:
        raise ConfigError("fleet.coordinator: has a user name: write it in fleet.user and fleet.password")
    if parts.scheme == _KUBERNETES:
        return
    if parts.scheme not in _ETCD or not parts.netloc or parts.path.strip("/"):
        raise ConfigError(
            f"fleet.coordinator: {url!r} is none of etcd://HOST:PORT, etcds://HOST:PORT,HOST:PORT "
            "and kubernetes://NAMESPACE"
        )
    for address in parts.netloc.split(","):
        host, colon, port = address.rpartition(":")
        if not (host and colon and port.isdecimal() and 0 < int(port) < 65536):
            raise ConfigError(f"fleet.coordinator: {address!r} is not HOST:PORT; etcd's port is 2379")


def _host_name() -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname()).strip("-._") or "host"
