"""Mosquitto on a free port: started, killed, stopped for a while, started again."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from tests.support.daemon import PATIENCE_S
from tests.support.ports import free_port

PROGRAM = shutil.which("mosquitto") or "/usr/sbin/mosquitto"


class Mosquitto:
    """A broker with a folder of its own, whose retained messages outlive it if `keeps`.

    Args:
        folder: for its configuration and its database.
        lines: further ones of its configuration.
        listener: lines of its one listener, such as those of TLS.
        keeps: its database is on disk.

    Attributes:
        port: it stays over restarts.
    """

    def __init__(
        self, folder: Path, lines: Sequence[str] = (), listener: Sequence[str] = (), *, keeps: bool = True
    ) -> None:
        self.port = free_port()
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        self._file = folder / "mosquitto.conf"
        self.configure(lines, listener, keeps=keeps)
        self.start()

    def configure(self, lines: Sequence[str], listener: Sequence[str] = (), *, keeps: bool = True) -> None:
        """For the next start."""
        store = [f"persistence_location {self._folder}/", "autosave_interval 1", "autosave_on_changes true"]
        rows = [
            f"persistence {'true' if keeps else 'false'}",
            *(store if keeps else ()),
            *([] if any("password_file" in line or "require_certificate" in line for line in [*lines, *listener])
              else ["allow_anonymous true"]),
            *([f"user {os.environ.get('USER', 'root')}"] if os.geteuid() == 0 else ()),
            *lines,
            f"listener {self.port} 127.0.0.1",
            *listener,
        ]  # fmt: skip
        self._file.write_text("\n".join(rows) + "\n")

    def start(self) -> None:
        """A second call does nothing while it runs."""
        if self._process is not None:
            return
        with (self._folder / "log").open("ab") as out:
            self._process = subprocess.Popen([PROGRAM, "-c", str(self._file)], stdout=out, stderr=subprocess.STDOUT)
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                if self._process.poll() is not None:
                    raise RuntimeError((self._folder / "log").read_text()) from None
                time.sleep(0.02)
        raise TimeoutError("mosquitto does not start")

    def kill(self) -> None:
        """As a power failure does: what it has not written is lost."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def restart(self) -> None:
        self.stop()
        self.start()

    def pause(self) -> None:
        """It answers nothing until `resume`."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def __enter__(self) -> Mosquitto:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._end(signal.SIGKILL)

    def _end(self, number: int) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)
            self._process.send_signal(number)
            self._process.wait(PATIENCE_S)
            self._process = None


@dataclass(frozen=True)
class Got:
    """A message.

    Attributes:
        retain: it is old, and came because of a subscription.
        dup: the broker sends it again.
        id, content_type: beside the body; empty if they are not there.
    """

    topic: str
    payload: bytes
    retain: bool
    dup: bool
    id: str
    content_type: str


class Reader:
    """Another program at the broker: what it gets, in the order in which it gets it.

    Args:
        topics: filters.
        id: of a client whose session the broker keeps, so that nothing is missed while it is away.
        qos: with 0 a broker that comes back sends nothing twice.
    """

    def __init__(
        self, port: int, *topics: str, id: str = "", login: tuple[str, str] | None = None, qos: int = 1
    ) -> None:
        self.messages: list[Got] = []
        self._changed = threading.Condition()
        self._comings = self._awaited = 0  # times when the broker has told that it has subscribed
        self._client = Client(CallbackAPIVersion.VERSION2, client_id=id, protocol=MQTTProtocolVersion.MQTTv5)
        if login is not None:
            self._client.username_pw_set(*login)
        self._client.on_connect = lambda client, *_: client.subscribe([(topic, qos) for topic in topics])
        self._client.on_subscribe = lambda *_: self._note_coming()
        self._client.on_message = self._take
        self._client.connect("127.0.0.1", port, clean_start=not id, properties=_kept() if id else None)
        self._client.reconnect_delay_set(1, 1)
        self._client.loop_start()
        self.await_return()

    def await_return(self) -> None:
        """Wait until it is there once more, after its broker was away."""
        self.wait(lambda row: row._comings > row._awaited)
        self._awaited = self._comings

    def publish(self, topic: str, body: str | bytes, *, retain: bool = False) -> None:
        self._client.publish(topic, body, qos=1, retain=retain).wait_for_publish(PATIENCE_S)

    def bodies(self, topic: str) -> list[bytes]:
        with self._changed:
            return [message.payload for message in self.messages if message.topic == topic]

    def topics(self) -> dict[str, bytes]:
        """The newest body of each topic; without those that were cleared."""
        with self._changed:
            found = {message.topic: message.payload for message in self.messages}
        return {topic: body for topic, body in found.items() if body}

    def wait(self, condition: Callable[[Reader], object], *, within_s: float = PATIENCE_S) -> None:
        """Until something is true of this reader, looked at after each message."""
        end = time.monotonic() + within_s
        with self._changed:
            while not condition(self):
                left = end - time.monotonic()
                assert left > 0, [(row.topic, row.payload[:60]) for row in self.messages[-30:]]
                self._changed.wait(min(left, 0.2))

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _note_coming(self) -> None:
        with self._changed:
            self._comings += 1
            self._changed.notify_all()

    def _take(self, _client: Client, _data: object, message: MQTTMessage) -> None:
        pairs = dict(getattr(message.properties, "UserProperty", ()))
        kind = getattr(message.properties, "ContentType", "")
        got = Got(message.topic, bytes(message.payload), message.retain, message.dup, pairs.get("id", ""), kind)
        with self._changed:
            self.messages.append(got)
            self._changed.notify_all()


def retained(port: int, *topics: str) -> dict[str, bytes]:
    """What a broker retains on these filters: a message behind it marks the end."""
    mark = "tests/mark"
    with Reader(port, *topics, mark) as reader:
        reader.publish(mark, "now")
        reader.wait(lambda row: row.bodies(mark))
        return {row.topic: row.payload for row in [*reader.messages] if row.retain and row.payload}


def _kept() -> Properties:
    properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
    properties.SessionExpiryInterval = 3600
    return properties
