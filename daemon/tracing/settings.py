"""Where traces go, and what they say of this daemon: the configuration, and OpenTelemetry's variables beside it."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

import structlog

from daemon import __version__
from daemon.config.otlp import OtlpConfig, check_endpoint, check_headers
from daemon.errors import ConfigError
from daemon.redact import Url

log = structlog.get_logger(__name__)
_BASE, _OF_TRACES = "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
_HEADERS, _HEADERS_OF_TRACES = "OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS"
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_PATH = "/v1/traces"
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # of a header, RFC 9110
_VALUE = re.compile(r"[\t\x20-\x7e]*")
_OURS = frozenset({"content-type", "content-encoding", "content-length", "transfer-encoding", "host", "connection"})
_MAX_BYTES = 64 << 10  # of the file of headers
_EVERYBODY = 0o007  # a group may: a Secret of Kubernetes belongs to one


@dataclass(frozen=True)
class Settings:
    """
    Attributes:
        address: host and port of the collector.
        path: of requests, percent-encoded.
        shown: the endpoint, for the log.
        headers: of the environment.
        headers_file: instead of them.
        resource: what all traces say of this daemon.
        every, slow_ns: which frames are traced; see `OtlpConfig`.
    """

    address: tuple[str, int]
    is_https: bool
    path: str
    shown: str
    headers: Mapping[str, str]
    headers_file: Path | None
    resource: Mapping[str, str]
    every: int
    slow_ns: int

    def current_headers(self) -> Mapping[str, str]:
        """Those of the file as it is now.

        Raises:
            OSError: it cannot be read, or everybody may read it.
            ValueError: a line is no header.
        """
        return self.headers if self.headers_file is None else read_headers(self.headers_file)


def settings_of(config: OtlpConfig, environment: Mapping[str, str], instance: str) -> Settings | None:
    """The settings; None if the environment turns tracing off. The configuration goes before the environment.

    Args:
        instance: id of the daemon's run.

    Raises:
        ConfigError: there is no endpoint or it is none, the file of headers cannot be read, or headers could be read on
            the way.
    """
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        log.info("nothing is traced: OTEL_SDK_DISABLED is set")
        return None
    url, path = _endpoint(config, environment)
    parts = urlsplit(url.reveal())
    is_https, headers = parts.scheme == "https", {} if config.headers_file else _headers(environment)
    if headers or config.headers_file:
        check_headers(config, url, "otlp.headers_file" if config.headers_file else "OTEL_EXPORTER_OTLP_HEADERS")
    protocol = next((value for name in _PROTOCOLS if (value := environment.get(name))), "http/json")
    if not protocol.startswith("http/"):
        log.warning("traces are sent by OTLP over HTTP alone: the endpoint must take that", asked_for=protocol)
    found = Settings(
        address=(parts.hostname or "", parts.port or (443 if is_https else 80)),
        is_https=is_https,
        path=path,
        shown=str(url),
        headers=headers,
        headers_file=config.headers_file,
        resource=_resource(environment, instance),
        every=config.every,
        slow_ns=round(config.slow_ms * 1e6),
    )
    try:
        found.current_headers()
    except (OSError, ValueError) as error:
        raise ConfigError(f"otlp.headers_file: {config.headers_file}: {reason_of(error)}") from error
    return found


def read_headers(path: Path) -> dict[str, str]:
    """Headers of a file; see `Settings.current_headers`. Empty lines and those that begin with # are left out."""
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe would block for good
    try:
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode):
            raise ValueError("is no file")
        if found.st_mode & _EVERYBODY:
            raise PermissionError(1, f"everybody may read it: chmod o= {path}")
        text = os.read(file, _MAX_BYTES + 1)
    finally:
        os.close(file)
    if len(text) > _MAX_BYTES:
        raise ValueError(f"has more than {_MAX_BYTES >> 10} KiB")
    headers = {}
    for number, line in enumerate(text.decode("utf-8", "replace").splitlines(), 1):
        if line.strip() and not line.startswith("#"):
            name, colon, value = line.partition(":")
            if not colon or not _is_header(name.strip(), value.strip()):
                raise ValueError(f"line {number} is no header: write it as `Name: value`")
            headers[name.strip()] = value.strip()
    return headers


def reason_of(error: Exception) -> str:
    """One line."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__


def _endpoint(config: OtlpConfig, environment: Mapping[str, str]) -> tuple[Url, str]:
    """The endpoint, and the path of requests."""
    if config.endpoint is not None:
        return config.endpoint, _with_path(config.endpoint)
    if own := environment.get(_OF_TRACES, "").strip():
        check_endpoint(Url(own), _OF_TRACES)
        return Url(own), urlsplit(own).path or "/"
    if base := environment.get(_BASE, "").strip():
        check_endpoint(Url(base), _BASE)
        return Url(base), _with_path(Url(base))
    raise ConfigError(f"otlp: has no endpoint: set otlp.endpoint, or {_BASE} in the environment")


def _with_path(base: Url) -> str:
    path = urlsplit(base.reveal()).path.rstrip("/")
    return path if path.endswith(_PATH) else path + _PATH


def _resource(environment: Mapping[str, str], instance: str) -> dict[str, str]:
    found = {"service.name": "lookout", "service.version": __version__, "service.instance.id": instance}
    found.update(_pairs(environment, "OTEL_RESOURCE_ATTRIBUTES"))
    if name := environment.get("OTEL_SERVICE_NAME"):
        found["service.name"] = name.encode(errors="replace").decode()
    return found


def _headers(environment: Mapping[str, str]) -> dict[str, str]:
    name = _HEADERS_OF_TRACES if environment.get(_HEADERS_OF_TRACES) else _HEADERS
    found = _pairs(environment, name)
    if not all(map(_is_header, found, found.values())):
        log.warning("left out: a name or value is none of a header", variable=name)
        return {}
    return found


def _is_header(name: str, value: str) -> bool:
    """Whether it may be sent; those of which a request depends are made here."""
    return bool(_NAME.fullmatch(name) and _VALUE.fullmatch(value)) and name.lower() not in _OURS


def _pairs(environment: Mapping[str, str], name: str) -> dict[str, str]:
    """A list `a=b,c=d` with percent-encoded values. As OpenTelemetry has it, one mistake makes all of it void."""
    found = {}
    for item in filter(None, map(str.strip, environment.get(name, "").split(","))):
        key, equals, value = item.partition("=")
        try:
            if not (equals and key.strip()):
                raise ValueError("no pair")
            item.encode()  # bytes of the environment may be no text
            found[unquote(key.strip(), errors="strict")] = unquote(value.strip(), errors="strict")
        except ValueError:  # its text may be a secret
            log.warning("left out: it is no list of NAME=VALUE,NAME=VALUE", variable=name)
            return {}
    return found
