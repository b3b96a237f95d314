"""Rules in a process of their own: the same events, and what happens when it dies, hangs, or is to end."""

from __future__ import annotations

import os
import resource
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from daemon.analytics.process.main import RulesOrder
from daemon.analytics.process.remote import RulesProcess
from daemon.analytics.rules import RuleBook, Rules, RulesStage
from daemon.analytics.source_rules import RuleSet
from daemon.clock import SystemClock
from daemon.config.load import parse
from daemon.config.root import LogConfig
from daemon.control.plan import separates_rules
from daemon.errors import ConfigError, LookoutError
from daemon.system.runtime import Runtime
from daemon.system.watchdog import Watchdog
from detectors.detections import TrackNews
from lookout import messages
from tests.analytics.feed import LABELS, SECOND, frame_at, rules_of, standing_at, tracks_of
from tests.support.daemon import wait_until
from tests.support.events import Rig, logged

_PATIENCE_S = float(os.environ.get("LOOKOUT_PATIENCE_S", "180"))
_SOURCES = ("hall", "yard", "street")
_ZONE = {"type": "zone", "name": "zone", "points": [[0.3, 0.3], [0.7, 0.3], [0.7, 0.7], [0.3, 0.7]], "dwell_s": [0.5]}
_LINE = {"type": "line", "name": "line", "points": [[0.5, 0.1], [0.5, 0.9]]}
_CROWD = {**_ZONE, "name": "crowd", "crowd": {"over": 2, "for_s": 0.3}, "labels": ["person"]}
_OBJECT = {"type": "object", "name": "all"}
_RULES = rules_of(_ZONE, _LINE, _CROWD, _OBJECT)
_APPEARED = {source: RuleSet(rules_of(_OBJECT), SECOND, 3) for source in _SOURCES}


class Remote:
    """Rules in a process, its failures, and the events that have come."""

    def __init__(self) -> None:
        clock = SystemClock()
        self.failures: list[str] = []
        self.failed = threading.Event()
        self.watchdog = Watchdog(0.2, clock, lambda _: None)
        self._rig = Rig(None, clock)
        self.rules = RulesProcess(
            RulesOrder(LogConfig(), None), self._rig.events, Runtime(clock, self.watchdog, self._fail)
        )
        self.stage = RulesStage(self.rules, LABELS)

    def _fail(self, reason: str) -> None:
        self.failures.append(reason)
        self.failed.set()

    def appear(self, id: int, seq: int, source: str = "hall") -> None:
        self.stage([frame_at(seq / 10, seq, source=source)], [tracks_of({id: standing_at(500, 500)})])

    def settle(self) -> None:
        done = threading.Event()
        self.rules.after(done.set)
        assert done.wait(_PATIENCE_S)

    def events(self) -> list[messages.Event]:
        """The events since the last call."""
        return self._rig.reports()

    def signal(self, number: int) -> None:
        (pid,) = self.rules.pids
        os.kill(pid, number)


@pytest.fixture
def remote() -> Iterator[Remote]:
    found = Remote()
    yield found
    found.rules.stop(_PATIENCE_S)


def _story(rules: Rules, labels: tuple[str, ...] = LABELS) -> None:
    """Batches of all sources, with everything that may happen between them."""
    random, stage, other = np.random.default_rng(5), RulesStage(rules, labels), RulesStage(rules, ("cat", "dog", "cow"))
    rules.configure({source: RuleSet(_RULES, SECOND, 3) for source in _SOURCES})
    at = random.uniform(100, 900, (len(_SOURCES), 6, 2))
    for seq in range(200):
        at = np.clip(at + random.normal(0, 40, at.shape), 0, 1000)
        frames = [frame_at(seq / 10, seq, source=source, utc=1.7e9) for source in _SOURCES]
        first = 1 + seq // 25 * 6
        boxes = [{first + id: standing_at(*row[id]) for id in range(6) if random.random() < 0.9} for row in at]
        news = _news(seq, first) if seq % 5 == 0 else None
        found = [tracks_of(row, dict.fromkeys(row, "car"), news) for row in boxes]
        (other if seq % 50 > 40 else stage)(frames, found)
        if seq == 60:
            rules.configure({"hall": RuleSet(_RULES[:2], SECOND, 3), "yard": RuleSet(_RULES, SECOND, 3)})
        elif seq == 90:
            rules.forget("yard")
        elif seq == 120:
            rules.configure({source: RuleSet(_RULES, SECOND, 3) for source in _SOURCES})
        elif seq == 150:
            rules.on_state("hall", "ended", 0)
            rules.on_state("yard", "down", 0)
            rules.tick(2 * SECOND)
    rules.configure({})


def _news(seq: int, first: int) -> TrackNews:
    """All tracks are new every 25 frames, and have a path. Some are lost now and then."""
    path = np.linspace((100, 100, 140, 200), (700, 300, 740, 500), 2, dtype=np.float32)
    is_new = seq % 25 == 0
    earlier = {first + id: path + 20 * id for id in range(6)} if is_new else {}
    return TrackNews(
        earlier, [] if is_new else [first + seq % 4], [first - 6 + id for id in range(6)] if is_new else []
    )


def test_the_events_are_those_of_rules_in_this_process(remote: Remote) -> None:
    """To the last bit and in the same order, with reloads, lost sources and two models."""
    rig = Rig(None, SystemClock())
    _story(RuleBook(rig.events.on_event))
    _story(remote.rules)
    expected, found = rig.reports(), remote.events()
    first, other = expected[0].number, found[0].number

    def told(events: list[Any], begin: int) -> list[Any]:
        return [(event.number - begin, *[getattr(event, name) for name in _told]) for event in events]

    _told = [name for name in messages.Event.__struct_fields__ if name not in ("id", "number", "instance")]
    assert told(found, other) == told(expected, first)
    assert {event.reason for event in found} > {"source_down", "rule_removed", "lost"}
    assert {event.confirmed_seq - event.seq for event in found if event.phase == "appeared"} >= {0, 2}
    assert len(found) > 150


def test_without_rules_there_is_no_process(remote: Remote) -> None:
    remote.rules.configure({"hall": RuleSet((), SECOND, 3)})
    called: list[int] = []
    remote.rules.after(lambda: called.append(1))
    remote.appear(1, 0)
    assert (remote.rules.pids, remote.rules.has_rules, called) == ([], False, [1])


def test_a_change_returns_when_the_events_of_before_are_delivered(remote: Remote) -> None:
    remote.rules.configure(_APPEARED)
    for seq in range(50):
        remote.appear(seq + 1, seq)
    remote.rules.configure(_APPEARED)
    assert [event.track for event in remote.events() if event.phase == "appeared"] == list(range(1, 51))
    remote.rules.forget("hall")
    assert {event.reason for event in remote.events()} == {"source_down"}
    remote.appear(99, 60)
    remote.settle()
    assert remote.events() == []


def test_the_state_of_a_source_waits_for_its_last_events(remote: Remote) -> None:
    remote.rules.configure(_APPEARED)
    remote.appear(1, 0)
    phases: list[list[str]] = []
    done = threading.Event()
    remote.rules.on_state("hall", "ended", 0)
    remote.rules.after(lambda: phases.append([event.phase for event in remote.events()]))
    remote.rules.after(done.set)
    assert done.wait(_PATIENCE_S)
    assert phases == [["appeared", "left"]]


def test_a_stop_takes_the_last_events(remote: Remote) -> None:
    remote.rules.configure(_APPEARED)
    for seq in range(300):
        remote.appear(seq + 1, seq)
    (pid,) = remote.rules.pids
    remote.rules.stop(_PATIENCE_S)
    assert len([event for event in remote.events() if event.phase == "appeared"]) == 300
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    _all_return(remote)
    assert remote.failures == []


def _all_return(remote: Remote) -> None:
    """Whatever comes too late does nothing."""
    remote.appear(500, 1000)
    remote.rules.on_state("hall", "ended", 0)
    remote.rules.tick(0)
    remote.settle()
    remote.rules.forget("hall")
    remote.rules.configure(_APPEARED)
    remote.rules.stop(_PATIENCE_S)


def test_the_daemon_ends_if_the_process_is_killed(remote: Remote) -> None:
    remote.rules.configure(_APPEARED)
    remote.appear(1, 0)
    remote.signal(signal.SIGKILL)
    assert remote.failed.wait(_PATIENCE_S)
    assert remote.failures == ["the process of rules ended: signal 9"]
    _all_return(remote)


def test_a_fault_of_a_rule_is_told(remote: Remote) -> None:
    remote.rules.configure(_APPEARED)
    remote.stage([frame_at(0, 0, size=(0, 0), source="hall")], [tracks_of({1: standing_at(1, 1)})])
    assert remote.failed.wait(_PATIENCE_S)
    assert remote.failures == ["the process of rules ended: ZeroDivisionError: float division by zero"]


def _in_thread(work: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def test_a_process_that_hangs_is_found_and_a_stop_ends_it(remote: Remote) -> None:
    """Lanes wait once the pipe is full, and so does a change. The stop frees all."""
    remote.rules.configure(_APPEARED)
    remote.settle()
    remote.signal(signal.SIGSTOP)
    ending = threading.Event()

    def lane() -> None:
        seq = 0
        while not ending.is_set():
            remote.appear(1, seq)
            seq += 1

    remote.rules.tick(0)
    threads = [_in_thread(lane), _in_thread(lambda: remote.rules.configure(_APPEARED))]
    wait_until(lambda: any(row.part == "rules" and row.vital for row in remote.watchdog.stuck_parts()), "it is found")
    remote.rules.stop(0.1)
    ending.set()
    for thread in threads:
        thread.join(_PATIENCE_S)
        assert not thread.is_alive()
    assert remote.failures == []
    _all_return(remote)


def test_all_that_wait_for_a_process_that_hangs_go_on_by_the_end(remote: Remote) -> None:
    """The thread that would call `stop` may wait itself, because it announces the end of a source."""
    remote.rules.configure(_APPEARED)
    remote.settle()
    remote.signal(signal.SIGSTOP)
    remote.rules.end_by(0.2)
    for _ in range(40):
        remote.rules.on_state("x" * 100_000, "ended", 0)
    remote.settle()
    remote.rules.stop(_PATIENCE_S)
    assert remote.failures == []


def test_last_events_that_are_lost_are_told(remote: Remote) -> None:
    """The process dies while it is asked for them."""
    remote.rules.configure(_APPEARED)
    remote.settle()
    remote.signal(signal.SIGSTOP)
    remote.appear(1, 0)
    with logged() as lines:
        stopping = _in_thread(lambda: remote.rules.stop(_PATIENCE_S))
        assert remote.rules._closing.wait(_PATIENCE_S)
        remote.signal(signal.SIGKILL)
        stopping.join(_PATIENCE_S)
    told = [(line["event"], line["reason"]) for line in lines if line["log_level"] == "warning"]
    assert told == [("the process of rules ended: its last events are lost", "signal 9")]
    assert remote.failures == []


def test_what_comes_after_the_last_events_loses_none(remote: Remote) -> None:
    """Ticks go on while the process ends."""
    remote.rules.configure(_APPEARED)
    remote.settle()
    ending = threading.Event()

    def tick() -> None:
        while not ending.is_set():
            remote.rules.tick(0)

    with logged() as lines:
        ticking = _in_thread(tick)
        remote.rules.stop(_PATIENCE_S)
        remote.rules.join(_PATIENCE_S)
        ending.set()
        ticking.join(_PATIENCE_S)
    assert [line["event"] for line in lines if line["log_level"] == "warning"] == []


def test_where_the_daemon_does_not_begin_the_reason_stands_alone(remote: Remote) -> None:
    """It may be a mistake in the configuration, which is found when the process runs already."""
    with logged() as lines:
        remote.rules.configure(_APPEARED)
        remote.rules.stop(0.0)
    assert (lines, remote.failures, remote.rules.pids) == ([], [], [])


def test_a_process_may_wait_for_its_rules(remote: Remote) -> None:
    """A change may be refused after it has begun, and come again later. States and ticks go on meanwhile."""
    remote.rules.prepare(_APPEARED)
    remote.rules.on_state("hall", "up", 0)
    remote.rules.tick(0)
    remote.appear(1, 0)
    pids = remote.rules.pids
    remote.rules.prepare(_APPEARED)
    remote.rules.configure(_APPEARED)
    remote.appear(1, 1)
    remote.settle()
    assert [event.phase for event in remote.events()] == ["appeared"]
    assert (remote.rules.pids, len(pids), remote.failures) == (pids, 1, [])


def test_after_a_stop_no_process_begins(remote: Remote) -> None:
    """A change may be under way, and bring the first rule."""
    remote.rules.stop(_PATIENCE_S)
    remote.rules.configure(_APPEARED)
    assert (remote.rules.pids, remote.rules.is_alive(), remote.rules.has_rules) == ([], False, False)


def test_where_no_thread_can_be_started_the_reason_is_told(remote: Remote, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as system:
        system.setattr(threading.Thread, "start", start)
        with pytest.raises(LookoutError, match="no thread can be started for rules: can't start new thread"):
            remote.rules.configure(_APPEARED)
    assert remote.rules.pids == []
    remote.rules.configure(_APPEARED)
    assert len(remote.rules.pids) == 1


def test_a_change_beside_lanes_loses_no_event(remote: Remote) -> None:
    """Two lanes and a thread of changes, which keeps the rule."""
    remote.rules.configure(_APPEARED)

    def lane(source: str) -> None:
        for seq in range(500):
            remote.appear(seq + 1, seq, source)

    threads = [_in_thread(lambda: lane("hall")), _in_thread(lambda: lane("yard"))]
    while any(thread.is_alive() for thread in threads):
        remote.rules.configure(_APPEARED)
    remote.settle()
    events = remote.events()
    for source in ("hall", "yard"):
        found = [event.track for event in events if event.phase == "appeared" and event.source == source]
        assert found == list(range(1, 501))


def test_where_no_process_can_be_started_the_reason_is_told(remote: Remote) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = os.dup(0)
    resource.setrlimit(resource.RLIMIT_NOFILE, (taken, hard))
    try:
        with pytest.raises(LookoutError, match="no process can be started for rules: Too many open files"):
            remote.rules.configure(_APPEARED)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        os.close(taken)
    remote.rules.configure(_APPEARED)
    assert len(remote.rules.pids) == 1


@pytest.mark.parametrize(
    ("sources", "events", "expected"),
    [
        (17, "{}", True),
        (16, "{}", False),
        (17, "{snapshots: {folder: pictures}}", False),
        (17, "{own_process: false}", False),
        (1, "{own_process: true}", True),
    ],
)
def test_many_sources_have_a_process_for_their_rules(sources: int, events: str, expected: bool) -> None:
    rows = "".join(f"  - {{id: cam-{number}, type: av, url: rtsp://192.0.2.1/{number}}}\n" for number in range(sources))
    assert separates_rules(parse(f"model: {{path: x}}\nevents: {events}\nsources:\n{rows}")) is expected


def test_pictures_of_events_need_rules_beside_the_frames() -> None:
    text = "{own_process: true, snapshots: {folder: pictures}}"
    with pytest.raises(ConfigError, match=r"^events\.own_process: pictures of events are made where the frames are"):
        parse(f"model: {{path: x}}\nevents: {text}\nsources: [{{id: a, type: synthetic}}]")
