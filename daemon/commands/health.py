"""`lookout health`: whether a configuration's daemon is alive, for container health checks."""

from __future__ import annotations

import re
import ssl
import urllib.error
import urllib.request

import zmq

from daemon.config import Config, HttpConfig, PublisherConfig
from daemon.errors import ConfigError
from daemon.publish.curve import secret_key
from lookoutd.client import Subscriber

_MARGIN_S = 3.0


def probe(config: Config) -> tuple[bool, str]:
    """Whether the daemon shows a sign of life, over HTTP if enabled, else by publishing; with a description. Sources
    that are down do not count.

    Raises:
        ConfigError: this configuration offers no way to check.
    """
    if config.http.enabled:
        return _over_http(config.http)
    return _subscribed(config.publisher, config.monitor.interval_s + _MARGIN_S)


def _over_http(http: HttpConfig) -> tuple[bool, str]:
    scheme, context = "http", None
    if http.tls_certificate:
        scheme = "https"
        context = ssl._create_unverified_context()  # noqa: S323 - the certificate names the machine, not localhost
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(http.host, http.host)  # noqa: S104 - not bound here
    url = f"{scheme}://{f'[{host}]' if ':' in host else host}:{http.port}/live"
    try:
        with urllib.request.urlopen(url, timeout=_MARGIN_S, context=context) as answer:  # noqa: S310 - always http
            return True, f"{url} answers {answer.status}"
    except urllib.error.HTTPError as error:
        return False, f"{url} answers {error.code}: {error.read(500).decode(errors='replace')}"
    except OSError as error:
        return False, f"{url} does not answer: {getattr(error, 'reason', error)}"


def _subscribed(publisher: PublisherConfig, timeout_s: float) -> tuple[bool, str]:
    if publisher.curve and publisher.curve.clients:
        raise ConfigError("publisher.curve.clients admits known keys only: set http.enabled to check over HTTP")
    endpoint = re.sub(r"^tcp://(\*|0\.0\.0\.0)(?=:)", "tcp://127.0.0.1", publisher.endpoint)
    key = zmq.curve_public(secret_key(publisher.curve)).decode() if publisher.curve else None
    with Subscriber(endpoint, kinds=("detections", "status", "metrics"), server_key=key) as subscriber:
        message = subscriber.receive(timeout_s)
    if message is None:
        return False, f"nothing was published on {endpoint} for {timeout_s:g} s"
    return True, f"{endpoint} publishes"
