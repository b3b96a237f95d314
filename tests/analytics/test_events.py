"""Events on their way out: messages, numbers, order, totals, occupancy."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, get_args

import jsonschema
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daemon.analytics import totals as module
from daemon.analytics.event import Event, Unseen
from daemon.analytics.journal_file import Query
from daemon.analytics.stages import AnalyticsStages
from daemon.config.model import ModelConfig
from daemon.config.root import Config
from daemon.pipeline.ledger import Ledger
from lookout import messages
from lookout.messages import Counts, decode, encoder, topic
from tests.daemon.test_messages import DOCS
from tests.support.clock import ManualClock
from tests.support.events import Rig, crossing, frame


def test_an_event_becomes_a_message(clock: ManualClock) -> None:
    with Rig(None, clock) as rig:
        rig.events.on_event(crossing(3, unseen=Unseen(2, 400), dwell_ns=None))
        (message,) = rig.reports()
    assert message == messages.Event(
        id=f"run-1-{message.number}",
        number=message.number,
        instance="run-1",
        source="street",
        session="session",
        index=0,
        kind="line",
        phase="crossed",
        seq=3,
        pts=300_000_000,
        at=1_700_000_000_300_000_000,
        confirmed_seq=5,
        confirmed_at=1_700_000_000_500_000_000,
        rule="door",
        direction="forward",
        track=7,
        label="car",
        box=(1.23, 2.0, 30.0, 40.0),
        unseen=messages.Unseen(2, 400),
    )


_numbers = st.integers(0, (1 << 62) - 1)
_names = st.none() | st.text(max_size=20)
_events = st.builds(
    Event,
    kind=st.sampled_from(get_args(messages.EventKind)),
    phase=st.sampled_from(get_args(messages.EventPhase)),
    source=st.from_regex(r"[A-Za-z0-9_.-]{1,20}", fullmatch=True),
    rule=_names,
    began=st.builds(frame, st.integers(0, 1 << 20)),
    confirmed=st.builds(frame, st.integers(0, 1 << 20)),
    track=st.none() | _numbers,
    label=_names,
    box=st.none() | st.tuples(*[st.floats(-1e5, 1e5, width=32)] * 4),
    direction=st.none() | st.sampled_from(get_args(messages.Direction)),
    dwell_ns=st.none() | _numbers,
    count=st.none() | _numbers,
    reason=st.none() | st.sampled_from(get_args(messages.EndReason)),
    unseen=st.builds(Unseen, _numbers, _numbers),
)
_SCHEMAS = {
    kind: jsonschema.Draft202012Validator(msgspec.json.decode((DOCS / "schema" / f"{kind}.schema.json").read_bytes()))
    for kind in ("events", "counts")
}


@settings(max_examples=50)
@given(event=_events)
def test_every_event_and_its_counts_pass_the_wire(event: Event) -> None:
    """In both encodings, and as the schemas say."""
    with Rig(None, ManualClock()) as rig:
        rig.events.on_event(event)
        rig.events.flush()
        found, counts = rig.reports()
    for kind, message in (("events", found), ("counts", counts)):
        name = topic(kind, event.source)
        for encoding in get_args(messages.Encoding):
            assert decode(name, encoder(encoding)(message)) == message
        _SCHEMAS[kind].validate(msgspec.json.decode(msgspec.json.encode(message)))


@settings(max_examples=25)
@given(rows=st.lists(_events, max_size=20))
def test_the_journal_gives_back_what_it_got(rows: list[Event], tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("journal") / "events.sqlite"
    with Rig(path, ManualClock()) as rig:
        for event in rows:
            rig.events.on_event(event)
        rig.write()
        assert rig.journal is not None
        assert rig.journal.read(Query(since=0, limit=100)) == rig.reports()
        totals = dict(rig.events.totals())
    with Rig(path, ManualClock()) as rig:
        assert dict(rig.events.totals()) == totals


def _publish(rig: Rig, source: str) -> None:
    for number in range(200):
        rig.events.on_event(crossing(number, source))


def test_events_of_many_lanes_have_numbers_in_the_order_of_the_outbox(clock: ManualClock) -> None:
    with Rig(None, clock) as rig:
        lanes = [threading.Thread(target=_publish, args=(rig, name)) for name in "abcd"]
        for lane in lanes:
            lane.start()
        for lane in lanes:
            lane.join()
        numbers = [message.number for message in rig.reports()]
    assert numbers == list(range(numbers[0], numbers[0] + 800))


def test_events_of_a_batch_come_in_order_before_one_of_another_thread(clock: ManualClock) -> None:
    with Rig(None, clock) as rig:
        rig.events.hold(crossing(0))
        rig.events.hold(crossing(1))
        assert rig.reports() == []
        rig.events.on_event(crossing(2, reason="source_down"))
        rig.events.deliver()
        messages = rig.reports()
        assert [message.seq for message in messages] == [0, 1, 2]
        assert [message.number - messages[0].number for message in messages] == [0, 1, 2]
        rig.events.deliver()
        assert rig.reports() == []
        assert [row.totals[0].count for row in rig.events.counts()] == [3]


def test_events_held_by_many_lanes_come_once_and_before_their_lane_goes_on(clock: ManualClock) -> None:
    """Whichever lane delivers them."""
    late: list[int] = []

    def publish(source: str) -> None:
        for seq in range(100):
            rig.events.hold(crossing(seq, source))
            rig.events.deliver()
            late.extend(0 for row in rig.events.totals() if row[0].source == source and row[1] != seq + 1)

    with Rig(None, clock) as rig:
        lanes = [threading.Thread(target=publish, args=(name,)) for name in "abcd"]
        for lane in lanes:
            lane.start()
        for lane in lanes:
            lane.join()
        found = rig.reports()
    assert late == []
    assert [message.number for message in found] == list(range(found[0].number, found[0].number + 400))
    assert [message.seq for message in found if message.source == "a"] == [*range(100)]


def _phases(rig: Rig) -> list[Any]:
    return [type(message).__name__ for message in rig.reports()]


def test_counts_come_soon_after_a_change_and_at_the_interval(clock: ManualClock) -> None:
    """And not with every event."""
    with Rig(None, clock, counts_interval_s=10) as rig:

        def tick(seconds: float = 1.0) -> list[Any]:
            clock.advance(seconds)
            rig.events.tick(clock.monotonic_ns())
            return _phases(rig)

        assert tick() == []
        for seq in range(3):
            rig.events.on_event(crossing(seq))
        assert tick() == ["Event"] * 3 + ["Counts"]
        assert [tick() for _ in range(9)] == [[]] * 9
        assert tick() == ["Counts"]
        rig.events.on_event(crossing(4))
        assert tick(0.5) == ["Event"]
        assert tick(0.5) == ["Counts"]
        rig.events.forget("street")
        assert tick(20.0) == []


def test_an_event_that_a_lane_holds_does_not_bring_a_removed_source_back(clock: ManualClock) -> None:
    with Rig(None, clock) as rig:
        stages = AnalyticsStages(
            Config(model=ModelConfig(Path("none")), sources=[]), Ledger([]), rig.events, lambda _source, _note: None
        )
        rig.events.hold(crossing())  # a lane is in the middle of a batch
        rig.events.forget("street")
        stages.forget("street")
        rig.events.deliver()
        clock.advance(20)
        rig.events.tick(clock.monotonic_ns())
        assert _phases(rig) == ["Event"]


def test_sources_with_rules_have_counts_before_their_first_event(clock: ManualClock) -> None:
    with Rig(None, clock) as rig:
        rig.events.expect(["street", "yard"])
        clock.advance(1)
        rig.events.tick(clock.monotonic_ns())
        found = rig.reports()
    assert [(row.source, row.totals, row.occupancy) for row in found] == [("street", [], []), ("yard", [], [])]


def test_what_has_changed_is_told_at_the_end(clock: ManualClock) -> None:
    with Rig(None, clock) as rig:
        rig.events.hold(crossing())  # a lane did not come to deliver it
        rig.events.flush()
        rig.events.flush()
        event, counts = rig.reports()
    assert isinstance(event, messages.Event)
    assert isinstance(counts, Counts)
    assert counts.totals == [messages.Total("door", "line", "crossed", "forward", "car", 1)]
    assert counts.since <= counts.at


def _stay(phase: str, track: int, label: str = "car", rule: str = "yard", **more: Any) -> Event:
    return crossing(kind="zone", phase=phase, rule=rule, direction=None, label=label, track=track, **more)


def test_occupancy_follows_the_stays(clock: ManualClock) -> None:
    """Whatever ends a stay, and whatever the track is called by then."""
    with Rig(None, clock) as rig:
        for event in (_stay("entered", 1), _stay("entered", 2), _stay("dwell", 2), _stay("entered", 3, "bus"),
                      _stay("entered", 1, rule="gate"), _stay("left", 2, "truck", reason="lost"),
                      _stay("left", 1, rule="gate", reason="source_down")):  # fmt: skip
            rig.events.on_event(event)
        (counts,) = rig.events.counts()
        assert counts.occupancy == [messages.Occupancy("yard", "car", 1), messages.Occupancy("yard", "bus", 1)]
        assert rig.events.occupancies() == [("street", "yard", 2), ("street", "gate", 0)]
        for track in (1, 1, 3):  # one too many takes nothing from another
            rig.events.on_event(_stay("left", track))
        assert rig.events.counts()[0].occupancy == []
        for phase, track in (("appeared", 4), ("appeared", 5), ("left", 4)):
            rig.events.on_event(crossing(kind="object", phase=phase, rule=None, track=track))
        assert rig.events.counts()[0].occupancy == [messages.Occupancy(None, "car", 1)]


def test_there_are_not_more_totals_than_fit(clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_KEYS", 3)
    with Rig(None, clock) as rig:
        for number in range(5):
            rig.events.on_event(crossing(label=f"label-{number}"))
        rig.events.on_event(crossing(label="label-0"))
        assert sum(row.count for row in rig.events.counts()[0].totals) == 4
        assert rig.events.uncounted == 2


def test_totals_say_since_when_they_count(tmp_path: Path, clock: ManualClock) -> None:
    path = tmp_path / "events.sqlite"
    began = clock.utc_ns()
    with Rig(path, clock) as rig:
        rig.events.on_event(crossing())
        rig.events.on_event(crossing(source="yard"))
        rig.write()
    clock.advance(100)
    with Rig(path, clock, instance="run-2") as rig:
        rig.events.on_event(crossing())
        found = {row.source: (row.since, row.instance, row.totals[0].count) for row in rig.events.counts()}
        assert found == {"street": (began, "run-2", 2), "yard": (began, "run-2", 1)}
        clock.advance(1)
        rig.events.tick(clock.monotonic_ns())
        assert [row.source for row in rig.reports() if isinstance(row, Counts)] == ["street"]  # yard may be gone
    with Rig(None, clock) as rig:
        rig.events.on_event(crossing())
        assert rig.events.counts()[0].since == clock.utc_ns()
