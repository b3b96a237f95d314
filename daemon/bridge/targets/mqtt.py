"""MQTT: events with an answer of the broker, states that it retains, and Home Assistant."""

from __future__ import annotations

import contextlib
import hashlib
import ssl
from collections.abc import Sequence
from urllib.parse import urlsplit

import structlog

from daemon.bridge.formats.port import formatter
from daemon.bridge.mqtt.broker import Address, Login
from daemon.bridge.mqtt.claim import OFFLINE, Claim
from daemon.bridge.mqtt.link import Link, VersionError
from daemon.bridge.mqtt.messages import Messages
from daemon.bridge.mqtt.outbox import Outbox
from daemon.bridge.mqtt.told import Told
from daemon.bridge.mqtt.topics import Topics, is_topic
from daemon.bridge.port import AwayError
from daemon.bridge.records import Delivery, Figure
from daemon.bridge.states import StateBoard
from daemon.bridge.targets.opening import TargetContext
from daemon.clock import Clock
from daemon.config.targets import MqttTarget
from daemon.errors import ConfigError
from daemon.files import check_can_read, read_text

log = structlog.get_logger(__name__)
_PORTS = {"mqtt": 1883, "mqtts": 8883, "ws": 80, "wss": 443}
_DELIVER_S = 8.0
_FAREWELL_S = 1.0
_SILENCE_S = 7.5  # without any answer the broker hangs
_TEND_S = 0.25


class MqttConnection:
    """See `daemon.bridge.port.Connection`."""

    def __init__(self, link: Link, claim: Claim | None, told: Told, messages: Messages, clock: Clock) -> None:
        self._link, self._claim, self._told, self._messages, self._clock = link, claim, told, messages, clock
        self._outbox = Outbox(link, messages, told, clock)
        self._states: StateBoard | None = None
        self._is_leaving = False

    def deliver(self, batch: Sequence[Delivery]) -> Sequence[str | None]:
        """See `Connection.deliver`. The next call waits for the answers that are missing after some seconds."""
        if not batch:
            return []
        outbox = self._outbox
        outbox.begin(batch)
        try:
            self._await_answers()
        except AwayError as error:
            raise AwayError(str(error), settled=outbox.take()) from error
        found = outbox.take()
        if self._claim is None and outbox.is_waiting:
            raise AwayError(f"the broker fails: {outbox.refusal}", settled=found)
        if not found and outbox.silence_ns >= _SILENCE_S * 1e9:
            raise AwayError(f"the broker confirms nothing within {_DELIVER_S:g} s")
        return found

    def show(self, figures: Sequence[Figure]) -> int:
        """See `Connection.show`."""
        self._link.pump(0)
        for count, figure in enumerate(figures):
            if not self._link.has_room:
                return count
            for row in self._messages.of_figure(figure):
                if is_topic(row.topic):
                    self._link.publish(row.topic, row.body, qos=0, retain=False, more=row.properties)
        return len(figures)

    def tend(self, states: StateBoard) -> None:
        """See `Connection.tend`."""
        self._states = states
        self._link.pump(0)
        while self._link.inbox:
            message = self._link.inbox.popleft()
            if self._claim is None or not self._claim.heed(message):
                self._told.heed(message)
        if self._claim is not None:
            self._told.tend(states.read())

    def say_farewell(self) -> None:
        """See `Farewell.say_farewell`."""
        if self._claim is None:
            return
        with contextlib.suppress(AwayError):  # then the broker says the will
            self._is_leaving = self._link.await_all([self._claim.give_up()], _FAREWELL_S)

    def close(self) -> None:
        """See `Connection.close`."""
        self._link.close(says_will=self._claim is not None and not self._is_leaving)

    def _await_answers(self) -> None:
        """Until all of the batch is settled, for some seconds at most. States and claims do not wait for it."""
        now = self._clock.monotonic_ns()
        deadline, tended_ns = now + round(_DELIVER_S * 1e9), now
        self._link.pump(0)
        while True:
            self._outbox.work()
            if self._outbox.is_done or (self._outbox.is_waiting and (self._claim is None or self._outbox.has_results)):
                return
            now = self._clock.monotonic_ns()
            if now >= deadline:
                return
            self._link.pump(min((deadline - now) / 1e9, _TEND_S))
            if self._states is not None and now - tended_ns >= _TEND_S * 1e9:
                self.tend(self._states)
                tended_ns = now


def connect(target: MqttTarget, context: TargetContext) -> MqttConnection:
    """See `daemon.bridge.targets.opening.open_target`."""
    topics = Topics(target.prefix, context.daemons)
    link = _open(target, topics, context)
    try:
        if link.max_qos < target.qos:
            raise AwayError(f"the broker has no quality of service {target.qos}: set qos: {link.max_qos}")
        told = Told(link, topics, target, context)
        claim = None if context.is_trial else Claim(link, topics, f"{context.id}/{target.name}", context.clock)
        if claim is not None:
            claim.look()
            told.prepare(claim)
            claim.take()
            told.begin(claim)
        messages = Messages(topics, formatter(target.format), target.qos, has_properties=link.is_new)
    except BaseException:
        link.close(says_will=False)
        raise
    return MqttConnection(link, claim, told, messages, context.clock)


def _open(target: MqttTarget, topics: Topics, context: TargetContext) -> Link:
    address, login = _address(target), _login(target, context)
    will = None if context.is_trial else (topics.bridge, OFFLINE)
    # A session that is kept remembers numbers of packets, which quality 2 would take for its own.
    keeps_session = target.qos < 2 and not context.is_trial
    try:
        return Link(address, login, will, context.clock, is_new=True, keeps_session=keeps_session)
    except VersionError as error:
        log.warning("MQTT 3.1.1 is spoken, so messages have no ids and refusals no reasons", reason=str(error))
        return Link(address, login, will, context.clock, is_new=False, keeps_session=False)


def _address(target: MqttTarget) -> Address:
    parts = urlsplit(target.url.reveal())
    scheme = parts.scheme.lower()
    path = (parts.path or "/mqtt") if scheme in ("ws", "wss") else None
    tls = _tls(target) if scheme in ("mqtts", "wss") else None
    return Address(parts.hostname or "", parts.port or _PORTS[scheme], path, tls)


def _tls(target: MqttTarget) -> ssl.SSLContext:
    try:
        check_can_read(target.ca_file, target.certificate_file, target.key_file)
        context = ssl.create_default_context(cafile=str(target.ca_file) if target.ca_file else None)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.sslsocket_class = _Socket
        if target.certificate_file is not None:
            context.load_cert_chain(target.certificate_file, target.key_file, password=_no_password)
    except (OSError, ValueError) as error:
        files = [str(file) for file in (target.ca_file, target.certificate_file, target.key_file) if file]
        files = [str(error.filename)] if isinstance(error, OSError) and error.filename else files
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
        raise ConfigError(f"target {target.name}: {' or '.join(files)} cannot be used: {reason}") from error
    return context


class _Socket(ssl.SSLSocket):
    """paho leaves one open whose handshake fails."""

    def do_handshake(self, block: bool = False) -> None:
        try:
            super().do_handshake(block)
        except BaseException:
            self.close()
            raise


def _no_password() -> str:
    raise ValueError("the key is encrypted: give one without a password")


def _login(target: MqttTarget, context: TargetContext) -> Login:
    # Brokers of MQTT 3.1.1 need take no more than 23 letters and digits.
    id = "" if context.is_trial else "lookout" + hashlib.sha256(f"{context.id}/{target.name}".encode()).hexdigest()[:16]
    user = None if target.user is None else target.user.reveal()
    password = None if target.password is None else target.password.reveal()
    if target.password_file is not None:
        try:
            password = read_text(target.password_file).rstrip("\r\n")
        except OSError as error:
            reason = f"{target.password_file} cannot be read: {error.strerror}"
            raise ConfigError(f"target {target.name}: password_file: {reason}") from error
    return Login(id, user, password)
