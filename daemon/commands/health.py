"""`lookout health`: whether a configuration's daemon is alive, for container health checks."""

from __future__ import annotations

import re
from http.client import HTTPException

import zmq

from daemon.config.http import HttpConfig
from daemon.config.publisher import PublisherConfig
from daemon.config.root import Config
from daemon.errors import ConfigError
from daemon.peers.addresses import own_http
from daemon.publish.curve_keys import secret_key
from daemon.system.http_client import HttpRequest, fetch, unverified_tls
from lookout.client import Subscriber

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
    url = own_http(http)
    try:
        answer = fetch(url, HttpRequest("GET", "/live"), _MARGIN_S, unverified_tls())
    except (OSError, HTTPException) as error:
        return False, f"{url}/live does not answer: {error}"
    text = f"{url}/live answers {answer.status}"
    return (True, text) if answer.status == 200 else (False, f"{text}: {answer.content[:500].decode(errors='replace')}")


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
