"""Opens the coordinator that a configuration names."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

from daemon.errors import ConfigError
from daemon.etcd.settings import Endpoint, EtcdSettings, Tls, User
from daemon.files import check_is_file
from daemon.fleet.port import Coordinator
from daemon.fleet_config import FleetConfig
from daemon.redact import Secret

_MAX_PASSWORD = 4096  # bytes of the file


def open_coordinator(fleet: FleetConfig) -> Coordinator:
    """Connects at the first call.

    Args:
        fleet: as checked by `check_fleet`, with a coordinator.

    Raises:
        ConfigError, CoordinatorError: a file cannot be used.
    """
    parts = urlsplit(fleet.coordinator or "")
    if parts.scheme == "kubernetes":
        from daemon.fleet.kubernetes_client import in_cluster
        from daemon.fleet.kubernetes_coordinator import KubernetesCoordinator

        return KubernetesCoordinator(in_cluster(parts.netloc, fleet.tls_ca), fleet.name)
    from daemon.fleet.etcd_coordinator import EtcdCoordinator

    return EtcdCoordinator(etcd_settings(fleet), fleet.name)


def etcd_settings(fleet: FleetConfig) -> EtcdSettings:
    """Where the etcd of a fleet is, and how it is reached.

    Raises:
        ConfigError: a file cannot be used.
    """
    parts = urlsplit(fleet.coordinator or "")
    tls = Tls(fleet.tls_ca, fleet.tls_certificate, fleet.tls_key) if parts.scheme == "etcds" else None
    user = User(fleet.user, _password(fleet)) if fleet.user is not None else None
    return EtcdSettings(_endpoints(parts.netloc), tls, user)


def _endpoints(addresses: str) -> tuple[Endpoint, ...]:
    found = []
    for address in addresses.split(","):
        host, _, port = address.rpartition(":")
        found.append(Endpoint(host.strip("[]"), int(port)))
    return tuple(found)


def _password(fleet: FleetConfig) -> Secret:
    if fleet.password_file is None:
        return fleet.password or Secret("")
    return Secret(_first_line(fleet.password_file))


def _first_line(path: Path) -> str:
    try:
        check_is_file(path)
        with path.open("rb") as file:
            text = file.read(_MAX_PASSWORD).decode()
    except OSError as error:
        raise ConfigError(f"fleet.password_file: {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"fleet.password_file: {path}: is not UTF-8") from error
    line = text.partition("\n")[0].strip("\r")
    if not line:
        raise ConfigError(f"fleet.password_file: {path}: its first line is empty")
    return line
