"""Addresses of brokers, and options that a target must not change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from daemon.config.http import is_loopback
from daemon.redact import Secret

_PORTS = {"redis": 6379, "rediss": 6379, "nats": 4222, "tls": 4222}
# Of librdkafka, that the promise needs: what is confirmed is there, once and in order.
_KEPT = {
    "bootstrap.servers": "brokers", "metadata.broker.list": "brokers",
    "enable.idempotence": "", "acks": "", "request.required.acks": "", "enable.gapless.guarantee": "",
    "max.in.flight": "", "max.in.flight.requests.per.connection": "", "retries": "", "message.send.max.retries": "",
    "message.timeout.ms": "", "delivery.timeout.ms": "", "delivery.report.only.error": "", "transactional.id": "",
    "queuing.strategy": "", "client.id": "", "log_level": "", "debug": "", "plugin.library.paths": "",
}  # fmt: skip
_PLAIN = ("plaintext", "sasl_plaintext")


@dataclass(frozen=True)
class Place:
    """Where a broker is.

    Attributes:
        path: of a Unix socket; empty for a host.
        database: of Redis.
    """

    scheme: str
    host: str = ""
    port: int = 0
    path: str = ""
    database: int = 0

    @property
    def is_encrypted(self) -> bool:
        return self.scheme in ("rediss", "tls")

    @property
    def is_here(self) -> bool:
        return bool(self.path) or is_loopback(self.host)

    @property
    def shown(self) -> str:
        return self.path or f"{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"


def redis_place(url: str) -> Place:
    """Of rediss://, redis:// or unix://.

    Raises:
        ValueError: it is no such URL; says what is wrong, without the URL.
    """
    example = "such as rediss://HOST:6379/0 or unix:///run/redis/redis.sock"
    if url.startswith("unix://"):
        path, _, query = url[len("unix://") :].partition("?")
        if not path.startswith("/"):
            raise ValueError(f"is not the absolute path of a socket: write it {example}")
        return Place("unix", path=unquote(path), database=_database(query.removeprefix("db="), example))
    place, path = _place(url, ("rediss", "redis"), example)
    return Place(place.scheme, place.host, place.port, database=_database(path.strip("/"), example))


def nats_place(url: str) -> Place:
    """Of tls:// or nats://.

    Raises:
        ValueError: likewise.
    """
    example = "such as tls://HOST:4222"
    place, path = _place(url, ("tls", "nats"), example)
    if path.strip("/"):
        raise ValueError(f"has a path: write it {example}")
    return place


def kafka_place(address: str) -> Place:
    """Of HOST:PORT.

    Raises:
        ValueError: likewise.
    """
    host, colon, port = address.rpartition(":")
    if not colon or not host or "/" in host or "@" in host or "," in address or not port.isdecimal():
        raise ValueError("is not HOST:PORT, such as k1:9093")
    if not 0 < int(port) < 1 << 16:
        raise ValueError(f"has no port from 1 to 65535: {port}")
    return Place("kafka", host.strip("[]"), int(port))


def _place(url: str, schemes: tuple[str, ...], example: str) -> tuple[Place, str]:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise ValueError(f"is no URL: write it {example}") from None
    if parts.username is not None or parts.password is not None:
        raise ValueError("has a user or a password in it: write them as user and password")
    if parts.scheme not in schemes or not host or port == 0 or parts.query or parts.fragment:
        raise ValueError(f"is not {' or '.join(f'{scheme}://' for scheme in schemes)} and a host: write it {example}")
    return Place(parts.scheme, host, port or _PORTS[parts.scheme]), parts.path


def _database(text: str, example: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 6) and text:
        raise ValueError(f"has something else than the number of a database behind the host: write it {example}")
    return int(text or 0)


def plaintext_problem(place: Place, key: str, encrypted: str) -> str | None:
    """Why a connection without TLS is refused where it is not asked for; None if it stays on this machine.

    Args:
        encrypted: how it is written with TLS.
    """
    if place.is_encrypted or place.is_here:
        return None
    return f"{key}: passwords and events could be read on the way: write {encrypted}, or set allow_plaintext: true"


def kafka_option_problems(options: Mapping[str, Secret], places: list[Place], allowed: bool) -> Iterator[str]:
    """
    Args:
        allowed: a connection without TLS is asked for.
    """
    for name in options:
        if name in _KEPT:
            instead = f": write it as {_KEPT[name]}" if _KEPT[name] else ", so that what is confirmed is there in order"
            yield f"options.{name}: is the bridge's own{instead}"
        elif name.startswith("test.") or name.endswith(("_cb", "on_delivery", "logger")):
            yield f"options.{name}: is not an option of a target"
    if options.get("partitioner", Secret("")).reveal() == "random":
        yield "options.partitioner: random would mix the order of a source's events: choose another one"
    protocol = options.get("security.protocol", Secret("plaintext")).reveal().lower()
    if protocol in _PLAIN and not allowed and not all(place.is_here for place in places):
        secure = "SASL_SSL" if protocol.startswith("sasl") or "sasl.mechanism" in options else "SSL"
        yield (
            f"options.security.protocol: passwords and events could be read on the way: write {secure}, or set "
            "allow_plaintext: true"
        )
