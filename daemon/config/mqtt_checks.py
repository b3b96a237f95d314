"""Mistakes in the keys of a target of MQTT."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol
from urllib.parse import SplitResult, urlsplit

from daemon.redact import Secret

_SCHEMES = ("mqtt", "mqtts", "ws", "wss")
_EXAMPLE = "such as mqtts://192.0.2.5:8883"


class MqttKeys(Protocol):
    """The keys that are looked at."""

    @property
    def url(self) -> Secret: ...
    @property
    def user(self) -> Secret | None: ...
    @property
    def password(self) -> Secret | None: ...
    @property
    def password_file(self) -> Path | None: ...
    @property
    def ca_file(self) -> Path | None: ...
    @property
    def certificate_file(self) -> Path | None: ...
    @property
    def key_file(self) -> Path | None: ...
    @property
    def allow_plaintext(self) -> bool: ...
    @property
    def prefix(self) -> str: ...
    @property
    def discovery_prefix(self) -> str: ...


def mqtt_problems(target: MqttKeys) -> Iterator[str]:
    """Each with the key, and what to write instead."""
    parts = _parts(target.url.reveal())
    if isinstance(parts, str):
        yield f"url: {parts}"
        return
    scheme = parts.scheme.lower()
    is_encrypted = scheme in ("mqtts", "wss")
    if not is_encrypted and not target.allow_plaintext and not _is_here(parts.hostname or ""):
        better = "wss" if scheme == "ws" else "mqtts"
        yield (
            f"url: {scheme}:// sends the password and all events in plaintext: write {better}://, or set"
            " allow_plaintext: true"
        )
    if target.password is not None and target.password_file is not None:
        yield "password: set one of password and password_file"
    elif target.user is None and (target.password is not None or target.password_file is not None):
        yield "user: is missing beside the password"
    if (target.certificate_file is None) != (target.key_file is None):
        yield "certificate_file: set both certificate_file and key_file, or none"
    if not is_encrypted and (target.ca_file or target.certificate_file):
        yield f"{'ca_file' if target.ca_file else 'certificate_file'}: is of mqtts:// and wss:// alone"
    for key, topic in (("prefix", target.prefix), ("discovery_prefix", target.discovery_prefix)):
        problem = topic_problem(topic)
        if problem is not None:
            yield f"{key}: {problem}"


def topic_problem(topic: str) -> str | None:
    """Why no topic can begin with this one; None if one can."""
    if any(sign in topic for sign in "+#"):
        return "+ and # stand for any topic: leave them out"
    if topic.startswith("$"):
        return "topics that begin with $ belong to the broker: begin with a letter"
    if "" in topic.split("/"):
        return "a level is empty: write it without / at its ends, and without //"
    if not topic.isprintable():
        return "it holds a character that MQTT forbids"
    return None


def _parts(url: str) -> SplitResult | str:
    try:
        parts = urlsplit(url)
        port, host = parts.port, parts.hostname
    except ValueError:
        return f"is no address of a broker, {_EXAMPLE}"
    if parts.scheme.lower() not in _SCHEMES or not host or port == 0:
        return f"is no address of a broker, {_EXAMPLE}"
    if "@" in parts.netloc:
        return "holds a user or a password: set user and password_file"
    if parts.query or parts.fragment or (parts.path.strip("/") and parts.scheme.lower() not in ("ws", "wss")):
        return f"holds more than the address of a broker, {_EXAMPLE}"
    return parts


def _is_here(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
