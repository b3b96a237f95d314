"""Real brokers on free ports: nats-server with JetStream, redis-server, and librdkafka's Kafka in a process of its own.

Each may be killed, paused and started again on its port. The data of the first two stay in their folder. Kafka's stay
in its process: `kill` cuts it off from the network instead, as a broker that is down, and `start` lets it back.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep

from tests.support.daemon import PATIENCE_S
from tests.support.ports import free_port


class Broker:
    """A server.

    Attributes:
        log: what it has written.
    """

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.folder, self.arguments, self.port = folder, arguments, free_port()
        folder.mkdir(parents=True, exist_ok=True)
        self.log = folder / "log"
        self._process: subprocess.Popen[bytes] | None = None

    def command(self) -> Sequence[str]:
        raise NotImplementedError

    def is_ready(self, connection: socket.socket) -> bool:
        """Whether it answers."""
        raise NotImplementedError

    def start(self) -> None:
        """Start it, and wait until it answers."""
        environment = {**os.environ, "PATH": f"{os.environ['PATH']}:/usr/sbin"}  # where Debian has servers
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self.command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment
            )
        until = monotonic() + PATIENCE_S
        while not self._answers():
            if monotonic() > until or self.process.poll() is not None:
                raise AssertionError(f"the broker does not start:\n{self.log.read_text()[-3000:]}")
            sleep(0.01)

    def kill(self) -> None:
        if self._process is not None:
            self.resume()
            self._process.kill()
            self._process.wait(PATIENCE_S)
            self._process = None

    def close(self) -> None:
        self.kill()

    def pause(self) -> None:
        os.kill(self.process.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        os.kill(self.process.pid, signal.SIGCONT)

    @contextmanager
    def paused(self) -> Iterator[None]:
        self.pause()
        try:
            yield
        finally:
            self.resume()

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None
        return self._process

    def _answers(self) -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
            return self.is_ready(connection)
        return False


class RedisServer(Broker):
    def command(self) -> Sequence[str]:
        return [
            "redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder),
            "--appendonly", "yes", "--appendfsync", "always", "--save", "", *self.arguments,
        ]  # fmt: skip

    def is_ready(self, connection: socket.socket) -> bool:
        connection.sendall(b"PING\r\n")
        return connection.recv(64).startswith((b"+PONG", b"-NOAUTH"))


class NatsServer(Broker):
    """
    Args:
        settings: further lines of its configuration.
    """

    def __init__(self, folder: Path, settings: str = "") -> None:
        super().__init__(folder)
        self.settings = settings

    def command(self) -> Sequence[str]:
        file = self.folder / "nats.conf"
        store = f'jetstream {{ store_dir: "{self.folder / "js"}" }}\n'
        file.write_text(f"listen: 127.0.0.1:{self.port}\n{store}{self.settings}\n")
        return ["nats-server", "-c", str(file)]

    def is_ready(self, connection: socket.socket) -> bool:
        return connection.recv(64).startswith(b"INFO ")


class KafkaBroker(Broker):
    """librdkafka's mock cluster of one broker; its port is its own choice, and stays."""

    def command(self) -> Sequence[str]:
        return [sys.executable, "-m", "tests.support.kafka_broker"]

    def start(self) -> None:
        if self._process is not None:
            self.ask("up")
            return
        root = Path(__file__).resolve().parents[2]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self.command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, cwd=root
            )
        self.port = int(self._answer())

    def kill(self) -> None:
        """Cut it off: open connections end, and new ones are refused."""
        self.resume()
        self.ask("down")

    def close(self) -> None:
        if self._process is not None:
            self.resume()
            self._process.kill()
            self._process.communicate(timeout=PATIENCE_S)
            self._process = None

    def ask(self, request: str) -> None:
        """down, up, topic NAME PARTITIONS, or error API CODE, which the next request of the API gets."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{request}\n".encode())
        self.process.stdin.flush()
        answer = self._answer()
        assert answer == "done", answer

    def _answer(self) -> str:
        assert self.process.stdout is not None
        answer = self.process.stdout.readline().decode().strip()
        assert answer, self.log.read_text()[-3000:]
        return answer
