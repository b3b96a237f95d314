"""Verbs of what comes after the detector: rules, their process, the journal, classifiers, and who looks at the page.

They do nothing to a daemon without analysis.
"""

from __future__ import annotations

import itertools
import os
import signal
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import msgspec

from daemon.clock import SystemClock
from daemon.config.http import DashboardConfig
from daemon.dashboard.server import Dashboard
from daemon.peers.addresses import DaemonAddress
from daemon.rule_config import ObjectConfig
from tests.lifetimes.gate import Gate
from tests.lifetimes.rig import PATIENCE_S, Rig, settle, wait_until
from tests.support.events import crossing
from tests.support.websocket import WebSocketClient

End = Callable[[], None]
_names = itertools.count(1)
_BURST = 60  # events: more than fit into the pages that a journal has


def _nothing() -> None:
    """To let go of."""


def reload(rig: Rig, hold: bool) -> End:
    """A reload of `rig.file` by a signal, held while the file is read."""
    if hold:
        rig.reading.close()
    before = len(rig.reloads)
    os.kill(os.getpid(), signal.SIGHUP)
    wait_until(lambda: len(rig.reloads) > before or rig.app.is_stopping, "the signal is heard")
    future = rig.reloads[-1] if len(rig.reloads) > before else None
    if hold and future:
        held_or_done(rig.reading, future)

    def end() -> None:
        rig.reading.open()
        if future:
            settle(future)

    return end


def held_or_done(gate: Gate, future: Future[Any]) -> None:
    """The change waits at the gate, or was refused before."""
    wait_until(lambda: gate.holds or future.done(), "the change comes to its gate")


def rules_change(rig: Rig, hold: bool) -> End:
    """By a reload: each source with a rule has another one."""
    now, rule = rig.app.changes.config, ObjectConfig(name=f"all-{next(_names)}")
    sources = [msgspec.structs.replace(row, rules=[rule]) if row.rules else row for row in now.sources]
    rig.file = msgspec.structs.replace(now, sources=sources)
    return reload(rig, hold)


def rules_hang(rig: Rig, hold: bool) -> End:
    """For a moment, if they are not held: a change waits for them."""
    pid = rig.rules
    if pid is None:
        return _nothing

    def go_on() -> None:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)

    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)
    if not hold:
        threading.Timer(0.1, go_on).start()
    return go_on


def rules_die(rig: Rig, hold: bool) -> End:
    """The daemon fails; held until it has begun to end."""
    pid = rig.rules
    if pid is None:
        return _nothing
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    if hold:
        wait_until(lambda: rig.app.is_stopping, "the death of the rules' process ends the daemon")
    return _nothing


def journal_full(rig: Rig, hold: bool) -> End:
    """The database may not grow, while events come; held until one is lost."""
    journal = rig.app.events.journal
    if journal is None:
        return _nothing
    rig.disk.is_full = True
    lost = journal.lost
    _send_events(rig)
    if hold and rig.app.health.is_ready:
        wait_until(lambda: journal.lost > lost or rig.app.is_stopping, "an event finds no room")

    def end() -> None:
        rig.disk.is_full = False

    return end


def journal_locked(rig: Rig, hold: bool) -> End:
    """Another program writes to the database, while events come; held until they wait for it."""
    journal = rig.app.events.journal
    if journal is None:
        return _nothing
    other = sqlite3.connect(f"file:{journal.path}?mode=rw", uri=True, isolation_level=None, check_same_thread=False)
    with suppress(sqlite3.OperationalError):  # another one has it already
        other.execute("BEGIN IMMEDIATE")
    _send_events(rig)
    if hold and rig.app.health.is_ready:
        wait_until(lambda: not journal._waiting or rig.app.is_stopping, "the journal has taken the events")
    return other.close


def _send_events(rig: Rig) -> None:
    """As a classifier's thread does, once somebody listens. Nobody waits for the disk."""

    def send() -> None:
        for seq in range(_BURST):
            if rig.app.health.is_ready and not rig.app.is_stopping:
                rig.app.events.on_event(crossing(seq, "drawn"))

    sender = threading.Thread(target=send, name="sender", daemon=True)
    sender.start()
    sender.join(PATIENCE_S)
    assert not sender.is_alive(), "an event waits for the journal"


def classifier_hangs(rig: Rig, hold: bool) -> End:
    if not rig.classifiers:
        return _nothing
    rig.looking.close()
    if hold and rig.app.health.is_ready and any(row.state == "up" for row in rig.app.sources.captures):
        rig.looking.wait_for_one()
    return rig.looking.open


def page(rig: Rig, hold: bool) -> End:
    """Somebody looks at the page, and at live video on it; held once the feed has begun."""
    address, config = DaemonAddress("here", rig.app.endpoint, None), DashboardConfig(port=0)
    dashboard = Dashboard(config, [address], SystemClock())
    dashboard.start()
    port = urlsplit(dashboard.url).port or 0
    feed, live = WebSocketClient(port, "/api/feed"), WebSocketClient(port, "/api/live/here/lib")
    if hold:
        feed.next()

    def end() -> None:
        feed.close()
        live.close()
        dashboard.close()

    return end


ANALYSIS_VERBS: dict[str, Callable[[Rig, bool], End]] = {
    "rules change": rules_change,
    "rules hang": rules_hang,
    "rules die": rules_die,
    "journal full": journal_full,
    "journal locked": journal_locked,
    "classifier hangs": classifier_hangs,
    "page": page,
}
