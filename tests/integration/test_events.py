"""Events through the whole daemon: rules over a drawn street, at the subscriber."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from lookout.messages import Counts, Detections, Event, Message
from tests.support.daemon import DEMO_MODEL, PATIENCE_S, Lookout, all_of, is_state, receive_until

_SOURCES = ("street", "yard")
_LINE = {"name": "mid", "type": "line", "points": [[0.5, 0.0], [0.5, 1.0]]}
_LEFT = [[0.0, 0.0], [0.5, 0.0], [0.5, 1.0], [0.0, 1.0]]
_RULES: list[dict[str, Any]] = [
    {"name": "all", "type": "object"},
    _LINE,
    {"name": "left", "type": "zone", "points": _LEFT, "dwell_s": [1]},
]


def _config(frames: int, rules: list[dict[str, Any]], **keys: Any) -> dict[str, Any]:
    drawn = {"type": "synthetic", "pace": "fast", "frames": frames, "fps": 15, "objects": 4, "rules": rules}
    return {
        "model": {"path": str(DEMO_MODEL), "threads": 1, "max_batch": keys.pop("batch", 8)},
        "sources": [{"id": source, "seed": seed, **drawn} for seed, source in enumerate(_SOURCES)],
        "tracking": {"enabled": True},
        "board": {"mode": "lossless"},
        "publisher": {"wait_for_subscriber_s": PATIENCE_S, "high_water_mark": 100_000},
        **keys,
    }


def _replay(folder: Path, **keys: Any) -> list[Any]:
    folder.mkdir()
    kinds = ("detections", "status", "events", "counts")
    with Lookout(folder, _config(45, _RULES, **keys)) as lookout, lookout.subscribe(*kinds) as subscriber:
        ended = all_of(*(is_state(source, "ended") for source in _SOURCES))
        messages = receive_until(subscriber, ended, timeout_s=4 * PATIENCE_S)
        assert lookout.process.wait(PATIENCE_S) == 0
        while message := subscriber.receive(2.0):  # counts
            messages.append(message)
    return messages


def _events(messages: list[Any]) -> dict[str, list[dict[str, Any]]]:
    """The events of each source, without what differs from run to run."""
    rows: dict[str, list[dict[str, Any]]] = {source: [] for source in _SOURCES}
    for event in messages:
        if isinstance(event, Event):
            row = msgspec.to_builtins(event)
            for name in ("id", "number", "instance", "session", "index", "at", "confirmed_at"):
                del row[name]
            rows[event.source].append(row)
    return rows


def test_a_replay_gives_the_same_events_twice(tmp_path: Path) -> None:
    """With other batches and lanes and a process of rules, too. The last events are out before the source has ended."""
    first = _replay(tmp_path / "first")
    second = _replay(tmp_path / "second", batch=3, lanes=2, events={"own_process": True})
    events = _events(first)
    assert events == _events(second)
    for rows in events.values():
        kinds = {(row["kind"], row["phase"]) for row in rows}
        assert {("object", "appeared"), ("zone", "entered"), ("zone", "dwell")} <= kinds
        stays = Counter((row["rule"], row["track"], row["phase"]) for row in rows if row["kind"] == "zone")
        entered = {key[:2]: count for key, count in stays.items() if key[2] == "entered"}
        assert entered == {key[:2]: count for key, count in stays.items() if key[2] == "left"}
        assert all(row["unseen"]["frames"] == 0 for row in rows)


def test_the_counts_are_those_of_the_events(tmp_path: Path) -> None:
    messages = _replay(tmp_path / "one")
    for source in _SOURCES:
        counted = Counter(
            (event.rule, event.kind, event.phase, event.direction, event.label)
            for event in messages
            if isinstance(event, Event) and event.source == source
        )
        last = [message for message in messages if isinstance(message, Counts) and message.source == source][-1]
        assert {(row.rule, row.kind, row.phase, row.direction, row.label): row.count for row in last.totals} == counted


def _seen(rule: str, count: int) -> Callable[[Message], bool]:
    """Whether so many events of a rule have come."""
    left = [count]

    def seen(message: Message) -> bool:
        left[0] -= isinstance(message, Event) and message.rule == rule
        return left[0] <= 0

    return seen


def test_new_rules_cost_no_track_and_no_count(tmp_path: Path) -> None:
    """A zone is added while frames come: no frame is lost, no source connects again, tracks and totals go on."""
    config = _config(100_000, [_LINE])
    zone = {"name": "left", "type": "zone", "points": _LEFT}
    with Lookout(tmp_path, config) as lookout, lookout.subscribe("detections", "events", "counts") as subscriber:
        messages = receive_until(subscriber, _seen("mid", 3), timeout_s=4 * PATIENCE_S)
        written = yaml.safe_load(lookout.config.read_text())
        for source in written["sources"]:
            source["rules"] = [_LINE, zone]
        lookout.config.write_text(yaml.safe_dump(written))
        lookout.process.send_signal(signal.SIGHUP)
        both = all_of(_seen("left", 1), _seen("mid", 3))
        messages += receive_until(subscriber, both, timeout_s=4 * PATIENCE_S)
        lookout.stop()
    for source in _SOURCES:
        frames = [one for one in messages if isinstance(one, Detections) and one.source == source]
        assert [frame.seq for frame in frames] == list(range(len(frames)))
        assert len({frame.session for frame in frames}) == 1
        ages: dict[int, int] = {}
        for box in (box for frame in frames for box in frame.detections):
            if box.track_id is not None:
                assert isinstance(box.age, int)
                assert box.age >= ages.get(box.track_id, 0)  # no track began anew
                ages[box.track_id] = box.age
        assert sorted(ages) == list(range(1, len(ages) + 1))
        counts = [one for one in messages if isinstance(one, Counts) and one.source == source]
        crossed = [sum(row.count for row in one.totals if row.rule == "mid") for one in counts]
        assert crossed == sorted(crossed)


@pytest.mark.parametrize(
    ("number", "code", "reason"),
    [
        (signal.SIGKILL, 3, "the process of rules ended: signal 9"),
        (signal.SIGSTOP, 4, "rules is stuck for"),
    ],
)
def test_the_daemon_ends_with_the_process_of_its_rules(
    tmp_path: Path, number: signal.Signals, code: int, reason: str
) -> None:
    """What the rules know of their tracks is gone: the service manager starts the daemon again."""
    street = {"id": "street", "type": "synthetic", "fps": 25, "rules": [_RULES[0]]}
    config: dict[str, Any] = {
        "model": {"path": str(DEMO_MODEL), "backend": "fake"},
        "sources": [street],
        "tracking": {"enabled": True},
        "events": {"own_process": True},
        "monitor": {"stuck_after_s": 5 if number == signal.SIGSTOP else 60},
    }
    with Lookout(tmp_path, config) as lookout:
        with lookout.subscribe("events") as subscriber:
            next(iter(subscriber))
        (child,) = lookout.children("daemon.analytics.process.main")
        child.send_signal(number)
        assert lookout.process.wait(PATIENCE_S) == code
        child.wait(PATIENCE_S)
        assert [line for line in lookout.log().splitlines() if '"ended by a failure"' in line and reason in line]
        assert "Traceback" not in lookout.log()
