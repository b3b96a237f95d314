"""What a target of a broker may not say, and how it is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from daemon.config.bridge import BridgeConfig, check_bridge
from daemon.config.http import HttpConfig
from daemon.config.text import hook
from daemon.errors import ConfigError
from daemon.validation import convert

KAFKA = {"name": "bus", "type": "kafka", "brokers": ["127.0.0.1:9092"]}
NATS = {"name": "bus", "type": "nats", "servers": ["tls://n1:4222"]}
REDIS = {"name": "bus", "type": "redis", "url": "rediss://r1:6379/2"}


def _check(row: dict[str, Any]) -> None:
    config: BridgeConfig = convert({"targets": [row]}, BridgeConfig, hook)
    check_bridge(config, HttpConfig())


@pytest.mark.parametrize(
    "row",
    [
        KAFKA,
        {**KAFKA, "brokers": ["[::1]:9092", "localhost:9092"]},
        {**KAFKA, "brokers": ["k1:9093"], "options": {"security.protocol": "SSL"}},
        {**KAFKA, "brokers": ["k1:9092"], "allow_plaintext": True},
        NATS,
        {**NATS, "servers": ["nats://127.0.0.1"]},
        {**NATS, "servers": ["nats://n1"], "allow_plaintext": True},
        REDIS,
        {**REDIS, "url": "redis://localhost"},
        {**REDIS, "url": "unix:///run/redis.sock?db=3"},
        {**REDIS, "user": "lookout", "password_file": "/etc/lookout/redis"},
    ],
)
def test_what_is_well(row: dict[str, Any]) -> None:
    _check(row)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({**KAFKA, "brokers": ["k1"]}, r"targets\[0\]\.brokers\[0\]: is not HOST:PORT, such as k1:9093"),
        ({**KAFKA, "brokers": ["SSL://k1:9093"]}, r"brokers\[0\]: is not HOST:PORT"),
        ({**KAFKA, "brokers": ["k1:0"]}, r"brokers\[0\]: has no port from 1 to 65535"),
        ({**KAFKA, "brokers": ["k1:9092"]}, r"options\.security\.protocol: .*write SSL, or set allow_plaintext"),
        (
            {**KAFKA, "brokers": ["k1:9092"], "options": {"security.protocol": "SASL_PLAINTEXT"}},
            r"options\.security\.protocol: .*write SASL_SSL",
        ),
        ({**KAFKA, "options": {"acks": "1"}}, r"options\.acks: is the bridge's own"),
        ({**KAFKA, "options": {"enable.idempotence": "false"}}, r"options\.enable\.idempotence: is the bridge's own"),
        ({**KAFKA, "options": {"bootstrap.servers": "k9:1"}}, r"options\.bootstrap\.servers: .*: write it as brokers"),
        ({**KAFKA, "options": {"error_cb": "x"}}, r"options\.error_cb: is not an option of a target"),
        ({**KAFKA, "options": {"test.mock.num.brokers": "1"}}, r"options\.test\.mock.*: is not an option"),
        ({**KAFKA, "options": {"partitioner": "random"}}, r"options\.partitioner: random would mix the order"),
        (
            {**KAFKA, "options": {"sasl.password": "hunter2"}, "password_file": "/x"},
            r"password_file: options has sasl\.password as well",
        ),
        ({**NATS, "servers": ["tls://u:hunter2@n1"]}, r"servers\[0\]: has a user or a password in it"),
        ({**NATS, "servers": ["nats://n1:4222"]}, r"servers\[0\]: .*write tls://, or set allow_plaintext"),
        ({**NATS, "servers": ["n1:4222"]}, r"servers\[0\]: is not tls:// or nats://"),
        ({**NATS, "servers": ["tls://n1/x"]}, r"servers\[0\]: has a path"),
        ({**NATS, "subject": "lookout.*"}, r"subject: 'lookout\.\*' is no subject to publish to"),
        ({**NATS, "subject": "lookout..x"}, r"subject: .* is no subject"),
        ({**NATS, "user": "u", "password": "p", "credentials_file": "/c"}, r"credentials_file: is given beside user"),
        ({**NATS, "certificate_file": "/c.pem"}, r"key_file: is missing"),
        ({**REDIS, "url": "redis://r1"}, r"url: .*write rediss://, or set allow_plaintext"),
        ({**REDIS, "url": "rediss://:hunter2@r1"}, r"url: has a user or a password in it"),
        ({**REDIS, "url": "rediss://r1/x"}, r"url: has something else than the number of a database"),
        ({**REDIS, "url": "unix://redis.sock"}, r"url: is not the absolute path of a socket"),
        ({**REDIS, "url": "http://r1"}, r"url: is not rediss:// or redis://"),
        ({**REDIS, "user": "u"}, r"user: is given without password"),
        ({**REDIS, "password": "hunter2", "password_file": "/x"}, r"password_file: is given beside password"),
        ({**REDIS, "key_file": "/k.pem"}, r"certificate_file: is missing"),
    ],
)
def test_what_is_refused(row: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as raised:
        _check(row)
    assert "hunter2" not in str(raised.value)


def test_a_folder_of_the_file_is_where_its_files_are(tmp_path: Path) -> None:
    row = {**REDIS, "password_file": "redis-password"}
    config: BridgeConfig = convert({"targets": [row]}, BridgeConfig, hook)
    (target,) = config.anchored(tmp_path).targets
    assert getattr(target, "password_file", None) == tmp_path / "redis-password"
