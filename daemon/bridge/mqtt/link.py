"""One connection to a broker.

paho's thread writes and reads the socket. Its callbacks only put what happened into a queue, and the thread of the
target takes it from there: paho calls back with locks of its own held, so no lock of this side may be taken there.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import traceback
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any, Literal

import structlog
from paho.mqtt.client import Client, ConnectFlags, DisconnectFlags, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from daemon.bridge.mqtt.broker import Address, Login, Message, Ticket, new_properties, reason_of, shown
from daemon.bridge.port import AwayError
from daemon.clock import Clock
from daemon.system.background import BackgroundTask
from daemon.system.stop_token import StopToken

log = structlog.get_logger(__name__)

OPEN_S = 8.0  # name server, TCP, TLS, CONNACK
KEEPALIVE_S = 15
WILL_DELAY_S = 5  # a bridge that is back by then was never away
_SESSION_S = 30
_CONNECT_S = 5.0
_AWAY_S = 4.0  # states are to be right soon after a broker is back
_CLOSE_S = 1.0
_WINDOW = 100
_MAX_TEXT = 65_535  # bytes, as MQTT has it
_HEADER = 32  # bytes of a packet beside topic, properties and body
_VERSION_REFUSED = (0x01, 0x84)


class VersionError(AwayError):
    """The broker says that it does not speak MQTT 5."""


@dataclass(frozen=True)
class _Connected:
    code: int
    text: str
    properties: Properties | None = None


@dataclass(frozen=True)
class _Answered:
    kind: Literal["publish", "subscribe"]
    mid: int
    code: int
    text: str


@dataclass(frozen=True)
class _Ended:
    reason: str


@dataclass
class _Way:
    """The queue between the two threads."""

    happened: SimpleQueue[_Connected | _Answered | _Ended | Message] = field(default_factory=SimpleQueue)

    def on_connect(self, _c: Client, _u: Any, _f: ConnectFlags, code: ReasonCode, found: Properties | None) -> None:
        self.happened.put(_Connected(code.value, str(code), found))

    def on_publish(self, _c: Client, _u: Any, mid: int, code: ReasonCode, _p: Properties) -> None:
        self.happened.put(_Answered("publish", mid, code.value, str(code)))

    def on_subscribe(self, _c: Client, _u: Any, mid: int, codes: list[ReasonCode], _p: Properties) -> None:
        worst = max(codes, key=lambda code: code.value)
        self.happened.put(_Answered("subscribe", mid, worst.value, str(worst)))

    def on_message(self, _c: Client, _u: Any, message: MQTTMessage) -> None:
        with contextlib.suppress(UnicodeDecodeError):
            self.happened.put(Message(message.topic, bytes(message.payload), message.retain))

    def on_disconnect(
        self, _c: Client, _u: Any, flags: DisconnectFlags, code: ReasonCode, _p: Properties | None
    ) -> None:
        by_broker = flags.is_disconnect_packet_from_server
        self.happened.put(_Ended(f"the broker ends the connection: {code}" if by_broker else "the connection is lost"))


class Link:
    """One connection. The thread that opened it uses it; `close` may come from any.

    Args:
        will: topic and body of what the broker says for the bridge when it is gone; retained; None for nothing.
        keeps_session: the broker keeps the session for a while, so that the will waits as well.

    Attributes:
        is_new: it speaks MQTT 5, which has answers with reasons.
        inbox: messages that came, for the owner of the link to take.
        max_qos: the best quality of service that the broker has.
    """

    def __init__(
        self,
        address: Address,
        login: Login,
        will: tuple[str, bytes] | None,
        clock: Clock,
        *,
        is_new: bool,
        keeps_session: bool,
    ) -> None:
        self.is_new, self.inbox = is_new, deque[Message]()
        self._clock, self._way, self._lost = clock, _Way(), ""
        self._tickets: dict[tuple[str, int], Ticket] = {}
        self._window, self._max_bytes, self.max_qos, self._is_closed = _WINDOW, 0, 2, False
        client = Client(
            CallbackAPIVersion.VERSION2,
            client_id=login.client_id,
            protocol=MQTTProtocolVersion.MQTTv5 if is_new else MQTTProtocolVersion.MQTTv311,
            clean_session=None if is_new else True,
            transport="tcp" if address.path is None else "websockets",
            reconnect_on_failure=False,
        )
        client.connect_timeout = _CONNECT_S
        client.on_socket_open = _hasten
        client.max_inflight_messages_set(0xFFFF)  # `has_room` has the window, which paho does not take from the broker
        client.suppress_exceptions = True
        if address.path is not None:
            client.ws_set_options(path=address.path)
        if address.tls is not None:
            client.tls_set_context(address.tls)
        if login.user is not None:
            client.username_pw_set(login.user, login.password)
        if will is not None:
            client.will_set(will[0], will[1], qos=1, retain=True, properties=_will_properties() if is_new else None)
        way = self._way
        client.on_connect, client.on_disconnect = way.on_connect, way.on_disconnect
        client.on_publish, client.on_subscribe, client.on_message = way.on_publish, way.on_subscribe, way.on_message
        self._client = client
        try:
            self._open(address, keeps_session=keeps_session)
        except BaseException:
            self.close(says_will=False)
            raise

    def publish(self, topic: str, body: bytes, *, qos: int, retain: bool, more: Properties | None = None) -> Ticket:
        """Send; the ticket says later what came of it. Without quality of service it is done when it is written."""
        ticket = Ticket()
        texts = [text.encode() for pair in getattr(more, "UserProperty", ()) for text in pair]
        extra = sum(map(len, texts))
        if any(len(text) > _MAX_TEXT for text in texts):
            ticket.settle(0x95, f"a property of it is larger than {_MAX_TEXT} bytes")
            return ticket
        if self._max_bytes and len(topic.encode()) + len(body) + extra + _HEADER > self._max_bytes:
            ticket.settle(0x95, f"it is larger than the {self._max_bytes} bytes that the broker takes")
            return ticket
        try:
            info = self._client.publish(topic, body, qos=qos, retain=retain, properties=more)
        except ValueError as error:  # too long
            ticket.settle(0x95, str(error))
            return ticket
        if info.rc not in (MQTTErrorCode.MQTT_ERR_SUCCESS, MQTTErrorCode.MQTT_ERR_NO_CONN):
            raise AwayError(f"it cannot be sent: {info.rc.name}")
        self._tickets["publish", info.mid] = ticket
        return ticket

    def subscribe(self, topic: str) -> Ticket:
        """Want messages of a topic, at most once each."""
        ticket = Ticket()
        code, mid = self._client.subscribe(topic, qos=0)
        if code != MQTTErrorCode.MQTT_ERR_SUCCESS or mid is None:
            raise AwayError(self._lost or "the connection is lost")
        self._tickets["subscribe", mid] = ticket
        return ticket

    def unsubscribe(self, topic: str) -> None:
        """Want them no more; the answer is not waited for."""
        self._client.unsubscribe(topic)

    @property
    def has_room(self) -> bool:
        """Fewer packets are on their way than the broker takes at once."""
        return len(self._tickets) < self._window

    def pump(self, seconds: float) -> None:
        """Take what happened; where nothing did, wait so long for it.

        Raises:
            AwayError: the connection is lost.
        """
        self._take(seconds)
        if self._lost:
            raise AwayError(self._lost)

    def await_all(self, tickets: Sequence[Ticket], seconds: float) -> bool:
        """Whether all are done within that time.

        Raises:
            AwayError: the connection is lost.
        """
        deadline = self._clock.monotonic_ns() + round(seconds * 1e9)
        while not all(ticket.is_done for ticket in tickets):
            left = (deadline - self._clock.monotonic_ns()) / 1e9
            if left <= 0:
                return False
            self.pump(min(left, 0.5))
        return True

    def close(self, *, says_will: bool) -> None:
        """End it.

        Args:
            says_will: the broker is to say the will, unless this bridge comes back soon.
        """
        if self._is_closed:
            return
        self._is_closed = True
        self._way.happened.put(_Ended("the bridge closes it"))
        if not says_will and self._client.is_connected():
            self._client.disconnect()
            self._await_end()
        connection = self._client.socket()
        if connection is not None:
            with contextlib.suppress(OSError, AttributeError):  # it is closed; or a WebSocket, which paho wraps
                _raw(connection).shutdown(socket.SHUT_RDWR)
        ender = threading.Thread(target=self._client.loop_stop, name="closing-mqtt", daemon=True)
        ender.start()
        ender.join(_CLOSE_S)
        if not ender.is_alive():
            _free(self._client)

    def _open(self, address: Address, *, keeps_session: bool) -> None:
        properties = None
        if self.is_new:
            properties = new_properties(PacketTypes.CONNECT)
            properties.SessionExpiryInterval = _SESSION_S if keeps_session else 0

        def connect(_stop: StopToken) -> bool:
            if self.is_new:
                self._client.connect(
                    address.host, address.port, KEEPALIVE_S, clean_start=not keeps_session, properties=properties
                )
            else:
                self._client.connect(address.host, address.port, KEEPALIVE_S)
            return True

        deadline = self._clock.monotonic_ns() + round(OPEN_S * 1e9)
        opening = BackgroundTask("opening mqtt", connect, self._discard, self._clock).start()
        late = AwayError(f"{shown(address)} does not answer within {OPEN_S:g} s", longest_s=_AWAY_S)
        try:
            opening.wait(StopToken(), OPEN_S, lambda: late)
        except AwayError:
            raise
        except Exception as error:
            _forget_frames(error)
            raise AwayError(f"{shown(address)}: {reason_of(error)}", longest_s=_AWAY_S) from error
        self._client.loop_start()
        while True:
            left = (deadline - self._clock.monotonic_ns()) / 1e9
            if left <= 0:
                raise late
            try:
                happened = self._way.happened.get(timeout=left)
            except Empty:
                raise late from None
            if isinstance(happened, _Ended):
                raise AwayError(f"{shown(address)}: the broker closes the connection before it answers")
            if isinstance(happened, _Connected):
                break
        if happened.code in _VERSION_REFUSED and self.is_new:
            raise VersionError(f"{shown(address)} does not speak MQTT 5")
        if happened.code:
            raise AwayError(f"{shown(address)} refuses: {happened.text}")
        self._heed(happened.properties)

    def _discard(self, _is_open: bool) -> None:
        """It came too late."""
        self._client.disconnect()

    def _heed(self, found: Properties | None) -> None:
        """Keep to the limits that the broker tells."""
        self._window = min(_WINDOW, getattr(found, "ReceiveMaximum", _WINDOW))
        self._max_bytes = getattr(found, "MaximumPacketSize", 0)
        if getattr(found, "RetainAvailable", 1) == 0:
            raise AwayError("the broker retains nothing, so states cannot be told: let it retain messages")
        self.max_qos = getattr(found, "MaximumQoS", 2)

    def _take(self, seconds: float) -> None:
        happened = self._way.happened
        try:
            found = happened.get(timeout=seconds) if seconds > 0 else happened.get_nowait()
            while True:
                if isinstance(found, _Answered):
                    ticket = self._tickets.pop((found.kind, found.mid), None)
                    if ticket is not None:
                        ticket.settle(found.code, found.text)
                elif isinstance(found, Message):
                    self.inbox.append(found)
                elif isinstance(found, _Ended) and not self._lost:
                    self._lost = found.reason
                found = happened.get_nowait()
        except Empty:
            pass

    def _await_end(self) -> None:
        deadline = self._clock.monotonic_ns() + round(_CLOSE_S * 1e9)
        with contextlib.suppress(Empty):
            while self._clock.monotonic_ns() < deadline:
                ended = self._way.happened.get(timeout=_CLOSE_S)
                if isinstance(ended, _Ended) and ended.reason != "the bridge closes it":
                    return


def _free(client: Client) -> None:
    """Close what paho keeps until the collector finds it: the socket, and the pair that wakes its thread."""
    client.on_connect = client.on_disconnect = client.on_publish = client.on_subscribe = client.on_message = None
    client.on_socket_open = None
    reset = getattr(client, "_reset_sockets", None)  # of no public name
    if reset is not None:
        with contextlib.suppress(OSError):
            reset()


def _forget_frames(error: BaseException | None) -> None:
    """They hold the socket of a WebSocket whose handshake failed, which paho leaves open."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__context__


def _hasten(_client: Client, _data: Any, connection: Any) -> None:
    """Small packets wait for no answer to earlier ones."""
    with contextlib.suppress(OSError):
        _raw(connection).setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _raw(connection: Any) -> Any:
    return getattr(connection, "_socket", connection)


def _will_properties() -> Properties:
    properties = new_properties(PacketTypes.WILLMESSAGE)
    properties.WillDelayInterval = WILL_DELAY_S
    return properties
