"""Keys of what leaves the daemon over ZeroMQ."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import msgspec

from daemon.config.http import is_loopback
from daemon.config.section import Count, Section
from daemon.errors import ConfigError
from daemon.redact import Secret
from lookoutd.messages import Encoding, is_port

MaskForm = Literal["polygon", "rle", "off"]


class CurveConfig(Section, frozen=True):
    secret_key: Secret | None = None
    secret_key_file: Path | None = None
    clients: Path | None = None


class PublisherConfig(Section, frozen=True):
    endpoint: str = "tcp://127.0.0.1:5556"
    encoding: Encoding = "json"
    high_water_mark: Count = 1000
    outbox: Count = 1024
    packets: str = "auto"
    masks: MaskForm = "polygon"
    max_masks: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 100
    max_subscribers: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 1000
    wait_for_subscriber_s: Annotated[float, msgspec.Meta(ge=0, le=86_400)] = 0.0
    allow_plaintext: bool = False
    curve: CurveConfig | None = None


def check_publisher(publisher: PublisherConfig) -> None:
    scheme, _, address = publisher.endpoint.partition("://")
    if scheme not in ("tcp", "ipc") or not address:
        raise ConfigError(f"publisher.endpoint: {publisher.endpoint!r} must start with tcp:// or ipc://")
    port = address.rpartition(":")[2]
    if scheme == "tcp" and port != "*" and not is_port(port):
        raise ConfigError(f"publisher.endpoint: {publisher.endpoint!r} must end with a port, 0 to 65535, or with *")
    _check_packets(publisher.packets)
    curve = publisher.curve
    if curve and (curve.secret_key is None) == (curve.secret_key_file is None):
        raise ConfigError(
            "publisher.curve: set one of secret_key and secret_key_file (`lookout keys new` makes a pair)"
        )
    if scheme == "tcp" and not curve and not publisher.allow_plaintext and not is_loopback(address.rpartition(":")[0]):
        raise ConfigError(
            f"publisher.endpoint: {publisher.endpoint} can be read by the whole network: set publisher.curve "
            "(`lookout keys new` makes keys), or allow_plaintext: true if that is meant"
        )


def _check_packets(endpoint: str) -> None:
    scheme, _, address = endpoint.partition("://")
    port = address.rpartition(":")[2]
    if endpoint in ("auto", "off") or (scheme == "ipc" and address):
        return
    if scheme != "tcp" or not (port == "*" or is_port(port)):
        raise ConfigError(
            f"publisher.packets: {endpoint!r} must be auto, off, or an endpoint such as tcp://127.0.0.1:5557"
        )
