"""Kafka, and what speaks its protocol.

A message is settled when the broker has acknowledged it, never when the library has it. Messages of a batch fail
together: the library's own limit of time is longer than a batch's, so that none is given up while a later one still
arrives.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from daemon.bridge.formats.port import formatter
from daemon.bridge.port import AwayError
from daemon.bridge.records import Delivery, Encoded, Figure
from daemon.bridge.states import StateBoard
from daemon.bridge.targets.credentials import secret_of
from daemon.bridge.targets.opening import TargetContext
from daemon.bridge.targets.outgoing import Batch, Outgoing, figures_of
from daemon.config.targets import KafkaTarget
from daemon.errors import ConfigError
from daemon.redact import HIDDEN, printable

_ANSWER_S, _STEP_S = 1.0, 0.1
_CONNECT_NS, _DELIVER_NS = 4_000_000_000, 7_000_000_000
_GIVEN_UP_MS = 60_000  # by the library; longer than a batch may take
_TOPIC_MS = 3_000  # until a topic that is not there is one that will not come
_FIGURES = 1_000  # messages that wait in the library; further figures are left out
_TOGETHER_BYTES = 64 << 10  # of messages that the broker takes or refuses together
_LOST = (KafkaError._ALL_BROKERS_DOWN, KafkaError._AUTHENTICATION, KafkaError._SSL, KafkaError._FATAL)
_NO_TOPIC = (KafkaError._UNKNOWN_TOPIC, KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_PARTITION)
_silent = logging.getLogger("lookout.kafka")  # the library would write to standard error itself
_silent.addHandler(logging.NullHandler())
_silent.propagate = False


class KafkaConnection:
    """See `daemon.bridge.port.Connection`. Any thread may close it."""

    def __init__(self, target: KafkaTarget, context: TargetContext) -> None:
        self._target, self._clock = target, context.clock
        self._formatter = formatter(target.format)
        self._closing = threading.Event()
        # Of the connection: the latest one, and the one that says that it is lost.
        self._failure: KafkaError | None = None
        self._lost: KafkaError | None = None
        self._producer: Producer | None = self._made(context.id)
        try:
            self._connect(self._producer)
        except BaseException:
            self.close()
            raise

    def deliver(self, batch: Sequence[Delivery]) -> Sequence[str | None]:
        out = Batch(batch, self._formatter, self._target.topic, _part)
        until = self._clock.monotonic_ns() + _DELIVER_NS
        try:
            alone = self._send(out, out.messages, until)
            for message in alone:
                self._send(out, [message], until)
        except AwayError as error:
            self._purge()  # nothing of it may arrive behind what comes again
            raise AwayError(str(error), settled=out.results()) from None
        return out.results()

    def show(self, figures: Sequence[Figure]) -> int:
        producer, failed = self._used(), set[int]()
        for place, topic, part in figures_of(figures, self._formatter, self._target.topic, _part, failed):
            if len(producer) > _FIGURES:
                failed.add(place)
                continue
            try:
                producer.produce(topic, part.body, key=figures[place].source, headers=_headers(part))
            except (BufferError, KafkaException):
                failed.add(place)
        producer.poll(0)
        return len(figures) - len(failed)

    def tend(self, states: StateBoard) -> None:
        del states
        producer = self._used()
        producer.poll(0)
        self._check_connection(producer)

    def close(self) -> None:
        self._closing.set()
        self._purge()
        self._producer = None  # the last reference ends its threads

    def _connect(self, producer: Producer) -> None:
        until = self._clock.monotonic_ns() + _CONNECT_NS
        while True:
            try:
                producer.list_topics(timeout=_ANSWER_S)
            except KafkaException as error:
                producer.poll(0)
                if self._lost is not None or self._clock.monotonic_ns() > until:
                    raise self._away(self._failure or error.args[0]) from None
            else:
                self._failure = self._lost = None
                return

    def _check_connection(self, producer: Producer) -> None:
        """Raises AwayError if it is lost; a broker may also close one that nobody has used for minutes."""
        lost = self._lost
        if lost is not None:
            self._lost = None
            try:
                producer.list_topics(timeout=_ANSWER_S)
            except KafkaException:
                raise self._away(self._failure or lost) from None

    def _send(self, out: Batch, messages: Sequence[Outgoing], until: int) -> list[Outgoing]:
        """Send messages and wait until all are settled.

        Returns:
            Those that the broker finds too large together with others, which says nothing about each.

        Raises:
            AwayError: nothing goes on now, or the time is over.
        """
        producer = self._used()
        settled: list[Outgoing] = []  # in whatever thread
        failures: list[KafkaError] = []
        alone: list[Outgoing] = []

        def settle(sent: Outgoing, error: KafkaError | None, _: Message) -> None:
            if error is None:
                out.confirm(sent)
            elif error.code() != KafkaError.MSG_SIZE_TOO_LARGE:
                failures.append(error)
            elif len(messages) > 1:
                alone.append(sent)
            else:
                out.refuse(sent, f"it has {len(sent.encoded.body)} bytes, more than the topic takes")
            settled.append(sent)

        for message in messages:
            if not self._produce(producer, message, out, partial(settle, message), until):
                settled.append(message)
        while len(settled) < len(messages) and not failures:
            self._check(until)
            self._check_connection(producer)
            producer.poll(_STEP_S)
        if failures:
            raise self._away(failures[0])
        return alone

    def _produce(self, producer: Producer, message: Outgoing, out: Batch, settle: Any, until: int) -> bool:
        """Hand a message to the library; False if it refuses it for good."""
        key = message.record.source or message.record.daemon
        headers = [*_headers(message.encoded), ("id", message.id)]
        while True:
            try:
                producer.produce(message.topic, message.encoded.body, key=key, headers=headers, on_delivery=settle)
            except BufferError:
                self._check(until)
                producer.poll(_STEP_S)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.MSG_SIZE_TOO_LARGE:
                    raise self._away(error.args[0]) from None
                out.refuse(message, f"it has {len(message.encoded.body)} bytes, more than message.max.bytes")
                return False
            else:
                return True

    def _check(self, until: int) -> None:
        if self._closing.is_set():
            raise AwayError("the connection is closed")
        if self._clock.monotonic_ns() > until:
            text = printable(self._failure.str()) if self._failure else "it does not answer"
            raise AwayError(f"kafka at {self._shown}: nothing is confirmed in time: {self._hidden(text)}")

    def _purge(self) -> None:
        producer = self._producer
        if producer is not None:
            with suppress(KafkaException):
                producer.purge(in_queue=True, in_flight=True, blocking=True)
                producer.poll(0)

    def _used(self) -> Producer:
        if self._producer is None:
            raise AwayError("the connection is closed")
        return self._producer

    @property
    def _shown(self) -> str:
        return ", ".join(self._target.brokers)

    def _away(self, error: KafkaError) -> AwayError:
        if error.code() in _NO_TOPIC:
            return AwayError(f"kafka at {self._shown}: a topic of {self._target.topic} is not there: create it")
        return AwayError(f"kafka at {self._shown}: {self._hidden(printable(error.str())[:300])}")

    def _hidden(self, text: str) -> str:
        """A text of the library without values of options."""
        for value in self._target.options.values():
            if value.reveal() and not value.reveal().isdecimal():
                text = text.replace(value.reveal(), HIDDEN)
        return text

    def _on_error(self, error: KafkaError) -> None:
        self._failure = error
        if error.code() in _LOST:
            self._lost = error

    def _made(self, id: str) -> Producer:
        target = self._target
        options: dict[str, Any] = {"batch.size": _TOGETHER_BYTES, "topic.metadata.propagation.max.ms": _TOPIC_MS}
        options |= {name: value.reveal() for name, value in target.options.items()}
        if (password := secret_of(None, target.password_file, "password_file")) is not None:
            options["sasl.password"] = password
        options |= {
            "bootstrap.servers": ",".join(target.brokers), "client.id": f"lookout-{id}", "enable.idempotence": True,
            "acks": "all", "message.timeout.ms": _GIVEN_UP_MS, "error_cb": self._on_error, "log_level": 3,
        }  # fmt: skip
        try:
            return Producer(options, logger=_silent)
        except KafkaException as error:
            reason = self._hidden(printable(error.args[0].str())[:300])
            raise ConfigError(f"target {target.name}: options: {reason}") from None


def connect(target: KafkaTarget, context: TargetContext) -> KafkaConnection:
    """See `daemon.bridge.targets.opening.open_target`."""
    return KafkaConnection(target, context)


def _part(name: str) -> str:
    """A name as a part of a topic's."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", name)


def _headers(part: Encoded) -> list[tuple[str, str | bytes | None]]:
    found: list[tuple[str, str | bytes | None]] = [("content-type", part.content_type)]
    found += [(f"ce_{name}", value) for name, value in part.attributes]
    return [*found, ("topic", part.suffix)] if part.suffix else found
