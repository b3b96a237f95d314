"""The state of a source for an operator: since when it is in trouble, and why, however often it is tried again."""

from __future__ import annotations

from daemon.build import build
from daemon.config.load import parse
from daemon.control.source_states import SourceState, SourceStates
from daemon.http.source_rows import SourceRows
from daemon.http.status import report
from daemon.monitoring.health import Health
from daemon.seams import Seams
from daemon.system.stop_token import StopToken
from detectors.fake.detector import FakeDetector
from tests.support.clock import ManualClock


class Heard:
    """Announcements of one source."""

    def __init__(self, clock: ManualClock) -> None:
        self.states, self.passed_on = SourceStates(clock), list[str]()
        self._announce = self.states.heard_by(lambda *told: self.passed_on.append(told[2]))

    def tell(self, state: str, reason: str | None = None, retry_in_s: float | None = None) -> SourceState:
        self._announce("door", None, state, reason, retry_in_s, None)  # type: ignore[arg-type]
        found = self.states.of("door")
        assert found is not None
        return found


def test_a_source_that_is_tried_again_is_down_since_the_first_time(clock: ManualClock) -> None:
    heard = Heard(clock)
    begun = clock.utc_ns()
    assert heard.tell("connecting") == SourceState("connecting", begun, None, None, was_down=False)
    clock.advance(5)
    assert heard.tell("up").since == clock.utc_ns()
    clock.advance(5)
    lost = clock.utc_ns()
    down = heard.tell("down", "rtsp://me:hunter2@cam/1: refused", 2.0)
    assert (down.since, down.retry_ns, down.was_down) == (lost, clock.monotonic_ns() + 2_000_000_000, True)
    assert "hunter2" not in str(down.reason)
    clock.advance(2)
    again = heard.tell("connecting")
    assert (again.since, again.reason, again.retry_ns, again.was_down) == (lost, down.reason, None, True)
    assert heard.tell("down", "another", 4.0).since == lost
    clock.advance(4)
    up = heard.tell("up", "at half its rate")
    assert (up.since, up.reason, up.was_down) == (clock.utc_ns(), "at half its rate", False)
    assert heard.tell("up").reason is None
    assert heard.passed_on == ["connecting", "up", "down", "connecting", "down", "up", "up"]
    heard.states.forget("door")
    assert heard.states.of("door") is None


def test_a_trouble_is_since_it_was_noticed_until_it_is_over(clock: ManualClock) -> None:
    """Its words may change meanwhile; when it comes again it is a new one."""
    health = Health(30, clock, StopToken())
    said: list[str | None] = [None]
    health.notes["load"] = lambda: said[0]
    health.tick(0)
    assert health.troubles() == []
    clock.advance(1)
    said[0], first = "23 % are lost", clock.utc_ns()
    health.tick(0)
    clock.advance(60)
    said[0] = "25 % are lost"
    assert [(row.what, row.since, row.reason) for row in health.troubles()] == [("load", first, "25 % are lost")]
    said[0] = None
    health.tick(0)
    clock.advance(60)
    said[0] = "5 % are lost"
    health.degrade("classifier-light", "out of memory")
    assert {row.what: row.since for row in health.troubles()} == dict.fromkeys(
        ("load", "classifier-light"), clock.utc_ns()
    )


def test_a_source_that_is_being_changed_has_not_ended() -> None:
    """A change takes its capture out, which may need seconds to end, and puts the new one in."""
    text = "model: {path: none}\nsources: [{id: cam, type: synthetic}, {id: second, type: synthetic, enabled: false}]\n"
    text += "publisher: {endpoint: 'tcp://127.0.0.1:*'}\n"
    app = build(parse(text), Seams(open_detector=lambda _, options: FakeDetector(options)))
    try:
        app.sources.remove(["cam"])
        found = report(app.parts, {"stores": [], "bridge": None, "fleet": None})
        states = {"cam": "connecting", "second": "disabled"}
        assert {row.id: row.state for row in found.sources} == states
        assert {row["config"]["id"]: row["state"] for row in SourceRows(app.changes, app.sources).all()} == states
    finally:
        app.stop()
