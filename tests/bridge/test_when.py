"""What a target wants to be told, and that a change of its configuration says what is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from daemon.bridge.account import Account
from daemon.bridge.messages import Loss, Notice
from daemon.bridge.plan import Planner
from daemon.bridge.records import Entry, Record, RecordKind
from daemon.bridge.spool import Spool
from daemon.bridge.when import When
from daemon.clock import SystemClock
from daemon.config.bridge import BridgeConfig, check_bridge
from daemon.config.http import HttpConfig
from daemon.config.targets import MqttTarget
from daemon.config.text import hook
from daemon.errors import ConfigError
from daemon.validation import convert
from lookout.messages import Event, EventAttribute

NIGHT = 1_795_737_600_000_000_000  # 2026-11-27T00:00:00Z


def _when(kind: str = "file", **when: Any) -> When:
    more = {"file": {"path": "lines"}, "ntfy": {"url": "https://ntfy.example/topic"}}[kind]
    config: BridgeConfig = convert({"targets": [{"name": "t", "type": kind, "when": when, **more}]}, BridgeConfig, hook)
    check_bridge(config, HttpConfig())
    return When(config.targets[0])


def _record(
    message: Event | Notice | Loss, kind: RecordKind = "event", source: str = "door", at: int = NIGHT
) -> Record:
    return Record(1, 1, kind, "here", source, "id", at, msgspec.json.encode(message))


def _event(**fields: Any) -> Event:
    common: dict[str, Any] = {
        "id": "1", "number": 1, "instance": "i", "source": "door", "session": "s", "index": 0, "kind": "zone",
        "phase": "entered", "seq": 1, "pts": None, "at": NIGHT, "confirmed_seq": 1, "confirmed_at": NIGHT,
        "rule": "porch", "label": "person",
    }  # fmt: skip
    return Event(**{**common, **fields})


@pytest.mark.parametrize(
    ("when", "wanted", "unwanted"),
    [
        ({}, _event(), None),
        ({"sources": ["door"]}, _event(), _event(source="yard")),
        ({"rules": ["porch"]}, _event(), _event(rule=None)),
        ({"labels": ["person"]}, _event(), _event(label=None)),
        ({"events": ["zone"]}, _event(), _event(kind="line", phase="crossed")),
        ({"events": ["zone.entered", "line.crossed"]}, _event(), _event(phase="left")),
        ({"attributes": ["colour"]}, _event(attribute=EventAttribute("colour", "red", 1.0)), _event()),
        (
            {"attributes": ["colour=red"]},
            _event(attribute=EventAttribute("colour", "red", 1.0)),
            _event(attribute=EventAttribute("colour", "blue", 1.0)),
        ),
    ],
)
def test_an_event_is_wanted_or_not(when: dict[str, Any], wanted: Event, unwanted: Event | None) -> None:
    rule = _when(**when)
    assert rule.wants(_record(wanted))
    assert unwanted is None or not rule.wants(_record(unwanted, source=unwanted.source))


@pytest.mark.parametrize(
    ("more", "outcomes"),
    [
        ({"format": "frigate"}, ["filtered", None]),
        ({"format": "deepstream-full"}, ["filtered", None]),
        ({"format": "deepstream-minimal"}, ["filtered", "filtered"]),
        ({"format": "lookout"}, [None, None]),
        ({"format": "frigate", "homeassistant": True}, [None, None]),
        ({"format": "frigate", "picture": True}, [None, None]),
    ],
)
def test_what_a_format_has_nothing_for_is_filtered(
    tmp_path: Path, more: dict[str, Any], outcomes: list[str | None]
) -> None:
    """Unless something is told beside it."""
    target = convert({"name": "t", "type": "mqtt", "url": "mqtt://127.0.0.1", **more}, MqttTarget, hook)
    crowd = _event(kind="crowd", phase="over", label=None, count=9)
    person = _event(kind="object", phase="appeared", track=1, box=(0.0, 0.0, 9.0, 9.0))
    before = Spool(tmp_path / "spool", 64, SystemClock())
    before.need(target.name, 0)
    before.start()
    before.append([Entry("event", "here", "door", "id", NIGHT, msgspec.json.encode(row)) for row in (crowd, person)])
    assert before.close(60)
    spool = Spool(tmp_path / "spool", 64, SystemClock())
    spool.need(target.name, 0)
    spool.start()
    try:
        assert [step.count for step in Planner(target, spool, None).plan(Account(0, 0), 10)] == outcomes
    finally:
        spool.close(60)


def test_times_of_the_week_count_when_it_happened() -> None:
    rule = _when(active="22:00-06:00", timezone="Europe/Berlin")
    assert rule.wants(_record(_event()))
    assert not rule.wants(_record(_event(), at=NIGHT + 12 * 3_600_000_000_000))


def test_kinds_are_told_apart_and_a_daemon_concerns_every_source() -> None:
    notice = Notice(id="n", daemon="here", about="daemon", name="", condition="down", since=1, at=1)
    source = Notice(id="n", daemon="here", about="source", name="yard", condition="down", since=1, at=1)
    rule = _when(kinds=["status"], sources=["door"])
    assert rule.wants(_record(notice, "status", source=""))
    assert not rule.wants(_record(source, "status", source="yard"))
    assert not rule.wants(_record(_event()))


def test_losses_go_to_programs_always_and_to_people_who_want_states() -> None:
    loss = _record(Loss(id="l", daemon="here", count=3, at=1, cause="wire"), "loss", source="")
    assert _when().wants(loss)
    assert not _when("ntfy").wants(loss)
    assert _when("ntfy", kinds=["event", "status"]).wants(loss)


@pytest.mark.parametrize(
    ("targets", "words"),
    [
        ([{"name": "a b", "type": "file", "path": "x"}], r"targets\[0\]\.name: 'a b' may hold letters"),
        ([{"name": "a", "type": "file", "path": "x"}] * 2, r"targets\[1\]\.name: 'a' is used twice"),
        (
            [{"name": "a", "type": "file", "path": "x", "when": {"kinds": []}}],
            r"targets\[0\]\.when\.kinds: is empty: nothing would be told",
        ),
        (
            [{"name": "a", "type": "file", "path": "x", "when": {"kinds": ["status"], "labels": ["cat"]}}],
            r"targets\[0\]\.when\.labels: is of events, which kinds leaves out",
        ),
        (
            [{"name": "a", "type": "file", "path": "x", "when": {"active": "22:00-06:00"}}],
            r"targets\[0\]\.when\.active: needs a `timezone`",
        ),
    ],
)
def test_what_cannot_be_is_refused_with_its_key(targets: list[dict[str, Any]], words: str) -> None:
    config: BridgeConfig = convert({"targets": targets}, BridgeConfig, hook)
    with pytest.raises(ConfigError, match=words):
        check_bridge(config, HttpConfig())
