"""The process of rules.

It ends when the daemon closes the incoming pipe, which the daemon's own end does as well. It ignores signals to the
process group: the daemon handles them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import structlog

from daemon.analytics.broad_phase import Search
from daemon.analytics.event import Event
from daemon.analytics.loops import compiled_search
from daemon.analytics.process.pipe import PipeReader, PipeWriter
from daemon.analytics.process.protocol import (
    Configured,
    Failed,
    Forgotten,
    Found,
    Labelled,
    Mark,
    Observed,
    Passed,
    RulesMessage,
    StateChanged,
    Ticked,
    ToRules,
)
from daemon.analytics.rules import RuleBook
from daemon.config.root import LogConfig
from daemon.log import logging
from daemon.system.tuning import configure_gc_and_switch_interval

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class RulesOrder:
    """Configuration of the process.

    Attributes:
        cache: where compiled code is kept; see `daemon.analytics.loops`.
    """

    log: LogConfig
    cache: Path | None


def main(order: RulesOrder, incoming: int, outgoing: int) -> int:
    """
    Args:
        incoming, outgoing: pipes from the daemon and to it.
    """
    reader, writer = PipeReader(incoming, ToRules), PipeWriter(outgoing)
    with logging(order.log):
        try:
            _RulesProcess(order, reader, writer).run()
        except BrokenPipeError:
            return 0  # the daemon is gone
        except Exception as error:
            log.exception("rules failed")
            with suppress(OSError):
                writer.send([Failed(f"{type(error).__name__}: {error}")])
            return 1
    return 0


class _RulesProcess:
    """Hands each message to a `RuleBook`, and its events back."""

    def __init__(self, order: RulesOrder, reader: PipeReader, writer: PipeWriter) -> None:
        self._order, self._reader, self._writer = order, reader, writer
        self._found: list[Event] = []
        self._unsent: list[RulesMessage] = []
        self._search: Search | None = None
        self._compiler = threading.Thread(target=self._compile, name="compile-rules", daemon=True)
        self._book = RuleBook(self._found.append, search=lambda: self._search)
        self._labels: dict[int, tuple[str, ...]] = {}
        book = self._book
        self._handlers: Mapping[type[RulesMessage], Callable[[Any], None]] = {
            Configured: self._on_configured,
            Forgotten: lambda message: book.forget(message.source),
            StateChanged: lambda message: book.on_state(message.source, message.state, message.now_ns),
            Ticked: lambda message: book.tick(message.now_ns),
            Labelled: lambda message: self._labels.update({message.number: message.labels}),
            Observed: self._on_observed,
            Mark: self._on_mark,
        }

    def run(self) -> None:
        configure_gc_and_switch_interval(captures=False)
        while (messages := self._reader.receive()) is not None:
            for message in messages:
                self._handlers[type(message)](message)
            self._take_found()
            if self._unsent:
                self._writer.send(self._unsent)
                self._unsent.clear()

    def _compile(self) -> None:
        self._search = compiled_search(self._order.cache)

    def _on_configured(self, message: Configured) -> None:
        if self._compiler.ident is None:
            self._compiler.start()
        self._book.configure(message.rules)

    def _on_observed(self, message: Observed) -> None:
        self._book.observe(message.frames, message.tracks(), self._labels[message.labels])

    def _on_mark(self, message: Mark) -> None:
        self._take_found()
        self._unsent.append(Passed(message.number))

    def _take_found(self) -> None:
        if self._found:
            self._unsent.append(Found([msgspec.structs.replace(event, config=None) for event in self._found]))
            self._found.clear()
