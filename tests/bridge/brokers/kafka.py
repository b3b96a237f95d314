"""Kafka for the contract of targets."""

from __future__ import annotations

import socketserver
import struct
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

from confluent_kafka import Consumer, TopicPartition

from daemon.config.targets import KafkaTarget
from daemon.redact import Secret
from tests.bridge.brokers.harness import WRONG_PASSWORD, Arrived
from tests.support.brokers import KafkaBroker
from tests.support.ports import free_port

_TOPIC = "lookout.event"
_LIMIT = 1 << 16


class KafkaHarness:
    """One topic of one partition, so that it has one order."""

    def __init__(self, folder: Path) -> None:
        self.broker = KafkaBroker(folder)
        self.kill, self.pause, self.resume = self.broker.kill, self.broker.pause, self.broker.resume
        self._refusing: RefusingBroker | None = None
        self._is_made = False
        self._read: list[tuple[dict[str, bytes], bytes, bytes]] = []

    def start(self) -> None:
        self.broker.start()
        if not self._is_made:
            self.broker.ask(f"topic {_TOPIC} 1")
            self._is_made = True

    def target(self, **changes: Any) -> KafkaTarget:
        given: dict[str, Any] = {"name": "log", "brokers": [f"127.0.0.1:{self.broker.port}"]}
        return KafkaTarget(**{**given, "options": {"message.max.bytes": Secret(str(_LIMIT))}, **changes})

    def unreachable(self) -> KafkaTarget:
        return self.target(brokers=[f"127.0.0.1:{free_port()}"])

    def with_wrong_password(self) -> KafkaTarget:
        self._refusing = self._refusing or RefusingBroker()
        options = {
            "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "lookout",
            "sasl.password": WRONG_PASSWORD,
        }  # fmt: skip
        secrets = {name: Secret(value) for name, value in options.items()}
        return self.target(brokers=[f"127.0.0.1:{self._refusing.port}"], options=secrets)

    def read(self) -> Sequence[Arrived]:
        return [Arrived(headers["id"].decode(), body, key.decode()) for headers, key, body in self.messages()]

    def messages(self) -> list[tuple[dict[str, bytes], bytes, bytes]]:
        """Headers, key and value of each, those that were read before as well: the broker keeps the last five megabytes
        alone."""
        settings = {
            "bootstrap.servers": f"127.0.0.1:{self.broker.port}", "group.id": uuid4().hex, "log_level": 0,
            "auto.offset.reset": "error",
        }  # fmt: skip
        consumer = Consumer(settings)
        try:
            _, end = consumer.get_watermark_offsets(TopicPartition(_TOPIC, 0), timeout=30)
            consumer.assign([TopicPartition(_TOPIC, 0, len(self._read))])
            while len(self._read) < end:
                (message,) = consumer.consume(1, timeout=30)
                assert message.error() is None, message.error()
                headers: Any = message.headers()
                self._read.append((dict(headers), message.key() or b"", message.value() or b""))
            return list(self._read)
        finally:
            consumer.close()

    def too_large(self) -> int | None:
        return _LIMIT

    def close(self) -> None:
        self.broker.close()
        if self._refusing is not None:
            self._refusing.close()


class RefusingBroker(socketserver.ThreadingTCPServer):
    """Speaks as much of Kafka's protocol as a client needs to be told that its password is wrong.

    Attributes:
        asked: what clients have sent.
    """

    daemon_threads = allow_reuse_address = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Login)
        self.port = int(self.server_address[1])
        self.asked = bytearray()
        threading.Thread(target=self.serve_forever, args=(0.05,), name="refusing-broker", daemon=True).start()

    def close(self) -> None:
        self.shutdown()
        self.server_close()


class _Login(socketserver.BaseRequestHandler):
    server: RefusingBroker

    def handle(self) -> None:
        while head := self._exactly(4):
            request = self._exactly(struct.unpack(">i", head)[0])
            self.server.asked += request
            api, version, number = struct.unpack(">hhi", request[:8])
            answer = {18: _versions(version), 17: struct.pack(">hih5s", 0, 1, 5, b"PLAIN"), 36: _refusal()}[api]
            self.request.sendall(struct.pack(">ii", len(answer) + 4, number) + answer)

    def _exactly(self, count: int) -> bytes:
        found = b""
        while len(found) < count:
            more: bytes = self.request.recv(count - len(found))
            if not more:
                return b""
            found += more
        return found


def _versions(asked: int) -> bytes:
    """ApiVersions, version 0, whatever was asked: what a client must find to go on to the login."""
    known = [(3, 0, 1), (17, 0, 1), (18, 0, 0), (36, 0, 0)]
    return struct.pack(">hi", 35 if asked else 0, len(known)) + b"".join(struct.pack(">hhh", *row) for row in known)


def _refusal() -> bytes:
    """SaslAuthenticate, version 0: SASL_AUTHENTICATION_FAILED."""
    text = b"Authentication failed: Invalid username or password"
    return struct.pack(">hh", 58, len(text)) + text + struct.pack(">i", 0)
