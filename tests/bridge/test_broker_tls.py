"""TLS of Redis and NATS: the server's name is checked, and the bridge shows its own certificate."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from daemon.bridge.port import AwayError
from daemon.config.targets import NatsTarget, RedisTarget
from daemon.redact import Secret
from tests.bridge.brokers.harness import deliveries, opened
from tests.fleet.etcd_server import Certificates
from tests.support.brokers import NatsServer, RedisServer
from tests.support.ports import free_port

pytestmark = pytest.mark.needs("openssl", "nats-server", "redis-server")


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def strangers(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("strangers"), "strangers")


def _files(certificates: Certificates) -> dict[str, Any]:
    certificate, key = certificates.client
    return {"ca_file": certificates.ca, "certificate_file": certificate, "key_file": key}


def test_redis(certificates: Certificates, strangers: Certificates, tmp_path: Path) -> None:
    port, (certificate, key) = free_port(), certificates.server
    server = RedisServer(
        tmp_path / "redis", "--tls-port", str(port), "--tls-cert-file", str(certificate), "--tls-key-file", str(key),
        "--tls-ca-cert-file", str(certificates.ca),
    )  # fmt: skip
    given: dict[str, Any] = {"name": "cache", "url": Secret(f"rediss://127.0.0.1:{port}")}
    with closing(server):
        server.start()
        with closing(opened(RedisTarget(**given, **_files(certificates)))) as connection:
            assert list(connection.deliver(deliveries(3))) == [None] * 3
        with pytest.raises(AwayError, match=r"(?i)certificate"):
            opened(RedisTarget(**given, **{**_files(certificates), "ca_file": strangers.ca}))
        with pytest.raises(AwayError, match=r"(?i)certificate|unknown.ca|violation of protocol|closed|reset"):
            opened(RedisTarget(**given, **{**_files(strangers), "ca_file": certificates.ca}))
        missing = tmp_path / "missing.pem"
        with pytest.raises(AwayError, match=r"ca_file: .* cannot be read: No such file"):
            opened(RedisTarget(**given, **{**_files(certificates), "ca_file": missing}))


def test_nats(certificates: Certificates, strangers: Certificates, tmp_path: Path) -> None:
    certificate, key = certificates.server
    tls = f'cert_file: "{certificate}", key_file: "{key}", ca_file: "{certificates.ca}", verify: true'
    server = NatsServer(tmp_path / "nats", f"tls {{ {tls} }}")
    given: dict[str, Any] = {"name": "bus", "servers": [Secret(f"tls://127.0.0.1:{server.port}")]}
    with closing(server):
        server.start()
        said = pytest.raises(AwayError, match="no stream takes")
        with closing(opened(NatsTarget(**given, **_files(certificates)))) as connection, said:
            connection.deliver(deliveries(1))
        with pytest.raises(AwayError, match=r"(?i)certificate"):
            opened(NatsTarget(**given, **{**_files(certificates), "ca_file": strangers.ca}))
