"""Parts of a member: what it says of itself, what it wants, and at which pace it connects."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
import structlog
from structlog.testing import capture_logs

from daemon.config.http import HttpConfig
from daemon.config.load import parse
from daemon.config.model import ModelConfig
from daemon.config.publisher import CurveConfig, PublisherConfig
from daemon.config.root import Config, check
from daemon.control.overload import Overload
from daemon.control.plan import planned_processes
from daemon.control.reload import least_confidence
from daemon.errors import ConfigError
from daemon.fleet.connection_limit import Pace
from daemon.fleet.description import Machine, capacity_of, endpoints_of, lowered
from daemon.fleet.missing_claims import TIMEOUT_NS, MissingClaims
from daemon.fleet.records import Capacity, FleetView, Owned, SourceRecord, Want
from daemon.fleet.reports import Reports
from daemon.fleet.wanted import WantedSources
from daemon.fleet_config import FleetConfig
from daemon.publish.curve_keys import new_pair
from daemon.sources.decode import NoHardwareDecoder
from daemon.sources.nvdec.backend import NvdecBackend
from detectors.port import ModelInfo
from lookout.messages import Dropped, Metrics, ModelMetrics, ProcessMetrics, PublisherMetrics, SourceMetrics
from tests.fleet.views import view
from tests.support.clock import ManualClock
from tests.support.hardware import CAPABILITY

_CAPACITY = Capacity(detector=100.0, decoders={"h264": 1e9}, cpu_decoding=60e6)
_MODEL = ModelInfo(
    name="m",
    digest="0" * 12,
    precision="fp32",
    backend="fake",
    head="none",
    input_size=(1, 1),
    labels=("a",),
    max_batch=4,
    lanes=2,
)


def _metrics(captured: int, fps: float = 40.0, **dropped: int) -> Metrics:
    row = SourceMetrics(
        state="up",
        captured_fps=0.0,
        published_fps=0.0,
        captured=captured,
        published=0,
        dropped=Dropped(**dropped),
        in_flight=0,
        latency=None,
    )
    return Metrics(
        instance="i",
        index=0,
        at=0,
        interval_s=10.0,
        uptime_s=0.0,
        fps=fps,
        latency=None,
        sources={"cam": row},
        process=ProcessMetrics(0.0, 0, 0, 0),
        gpus=None,
        gpus_reason=None,
        publisher=PublisherMetrics(0, 0, 0),
    )


def _lose(overload: Overload, clock: ManualClock, seconds: int, cause: str, share: float) -> None:
    """Each second 100 frames more, and this share of them lost."""
    for second in range(seconds + 1):
        overload.learn(_metrics(1000 + 100 * second, **{cause: round(100 * second * share)}))
        clock.advance(1.0)


def test_a_member_that_loses_frames_for_long_says_so_and_what_it_can_do() -> None:
    clock = ManualClock()
    overload = Overload(clock)
    _lose(overload, clock, 25, "superseded", 0.2)
    assert (overload.reason, lowered(_CAPACITY, overload)) == (None, _CAPACITY)
    _lose(overload, clock, 35, "superseded", 0.2)
    assert overload.reason == "detection does not keep up: 20% of all frames are lost"
    assert lowered(_CAPACITY, overload).detector == 40.0
    _lose(overload, clock, 5, "superseded", 0.0)
    assert overload.reason is None
    assert lowered(_CAPACITY, overload).detector == 40.0  # it would be too much again
    _lose(overload, clock, 700, "superseded", 0.0)
    assert lowered(_CAPACITY, overload) == _CAPACITY


def test_what_a_member_with_several_models_can_do_is_in_pictures_of_the_first() -> None:
    clock = ManualClock()
    overload = Overload(clock, {"people": 1.0, "plates": 3.0})
    row = ModelMetrics(
        name="m", digest="0", precision="fp32", backend="fake", sources=1, published_fps=20.0,
        captured=0, published=0, dropped=Dropped(), in_flight=0, latency=None,
    )  # fmt: skip
    for second in range(40):
        metrics = _metrics(1000 + 100 * second, superseded=20 * second)
        overload.learn(msgspec.structs.replace(metrics, models={"people": row, "plates": row}))
        clock.advance(1.0)
    assert lowered(_CAPACITY, overload).detector == 80.0


def test_too_much_is_said_once_a_while() -> None:
    """In the log, which a daemon of no fleet has as well; and when it is over."""
    clock = ManualClock()
    overload = Overload(clock)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(20))
    with capture_logs() as lines:
        _lose(overload, clock, 900, "superseded", 0.9)
        _lose(overload, clock, 5, "superseded", 0.0)
    assert [line["event"] for line in lines] == ["too much for this machine"] * 2 + ["no longer too much"]
    assert lines[0]["reason"] == "detection does not keep up: 90% of all frames are lost"


def test_late_decoding_lowers_what_decoders_can_do() -> None:
    clock = ManualClock()
    overload = Overload(clock)
    _lose(overload, clock, 40, "late", 0.5)
    less = lowered(_CAPACITY, overload)
    assert (less.detector, less.cpu_decoding, less.decoders) == (100.0, 30e6, {"h264": 5e8})


def test_frames_that_are_left_out_on_purpose_are_no_overload() -> None:
    clock = ManualClock()
    overload = Overload(clock)
    _lose(overload, clock, 60, "rate_limit", 0.5)
    assert overload.reason is None


def _config(**more: Any) -> Config:
    fleet = FleetConfig(coordinator="etcd://a:1", address="192.0.2.9")
    return Config(**{"model": ModelConfig(path=Path("m")), "sources": [], "fleet": fleet, **more})


def test_capacity_is_measured_and_has_no_decoder_where_there_is_none() -> None:
    found = capacity_of(_config(), Machine(123.44, NoHardwareDecoder("none")), _MODEL, None, 1.0)
    assert (found.detector, found.decoders, found.memory, found.sessions) == (123.4, {}, None, None)
    assert found.cores >= 1


def test_the_capacity_of_a_gpus_decoder_follows_what_it_was_seen_to_do() -> None:
    machine = Machine(100.0, NvdecBackend(0, CAPABILITY, 4, None))
    first = capacity_of(_config(), machine, _MODEL, None, 1.0)
    slower = capacity_of(_config(), machine, _MODEL, None, 2.0)
    assert first.decoders.keys() == {"h264", "hevc"} == first.source_memory.keys()
    assert slower.decoders["h264"] == pytest.approx(first.decoders["h264"] / 2, abs=1)


@pytest.mark.parametrize(
    ("bound", "told"),
    [
        ("tcp://0.0.0.0:5556", "tcp://192.0.2.9:5556"),
        ("tcp://[::]:5556", "tcp://192.0.2.9:5556"),
        ("tcp://127.0.0.1:5556", "tcp://127.0.0.1:5556"),
        ("ipc:///run/lookout", "ipc:///run/lookout"),
    ],
)
def test_others_are_told_an_address_that_they_can_reach(bound: str, told: str) -> None:
    config = _config(http=HttpConfig(enabled=True, host="0.0.0.0"))  # noqa: S104 - nothing is bound
    found = endpoints_of(config, bound, "https://127.0.0.1:9105")
    assert (found.messages, found.http, found.server_key) == (told, "https://192.0.2.9:9105", None)


def test_a_daemon_of_a_fleet_is_made_for_sources_that_come_later() -> None:
    assert planned_processes(_config()) == 4
    assert least_confidence(_config()) == 0.1  # sources that are tracked need weak boxes


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("sources: [{id: a, type: synthetic}]", "lookout fleet add"),
        ("sources: []\nhttp: {enabled: true, sources_file: x}", "http.sources_file"),
    ],
)
def test_sources_beside_those_of_a_fleet_are_refused(text: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        parse(f"model: {{path: m}}\nfleet: {{coordinator: 'etcd://a:1'}}\n{text}\n")


def test_classifiers_do_not_ask_for_sources_that_come_later() -> None:
    text = "model: {path: m}\nfleet: {coordinator: 'etcd://a:1'}\nsources: []\n"
    text += "classifiers: [{name: c, path: c, for: [a]}]\n"
    assert check(parse(text)).classifiers


# --- wanted sources --------------------------------------------------------------------------------------------------


def _view(wants: dict[str, str | None], owned: dict[str, str] | None = None, **config: Any) -> FleetView:
    row = {"type": "synthetic", **config}
    return FleetView(
        revision=1,
        members={},
        joined={},
        drained={},
        sources={id: SourceRecord(config={"id": id, **row}, priority=int(id == "first")) for id in wants},
        wants={id: Want(member=member) for id, member in wants.items()},
        owned={id: Owned(member, 5) for id, member in (owned or {}).items()},
        refused={},
        seen={},
        losses={},
        held={},
        placer=None,
        problems={},
    )


def test_what_is_claimed_and_given_up() -> None:
    wanted = WantedSources("me")
    wanted.update(_view({"a": "me", "b": "other", "c": None, "d": "me", "first": "me"}, {"b": "me", "d": "other"}))
    assert wanted.usable.keys() == {"a", "d", "first"}
    assert wanted.claimable(set()) == ["first", "a"]
    assert wanted.claimable({"first"}) == ["a"]
    assert wanted.orphans(set()) == {"b"}
    assert wanted.orphans({"b"}) == set()


def test_members_connect_in_orders_of_their_own() -> None:
    orders = []
    for member in ("one", "two"):
        wanted = WantedSources(member)
        wanted.update(_view({f"s{number}": member for number in range(20)}))
        orders.append(wanted.claimable(set()))
    assert orders[0] != orders[1]
    assert {*orders[0]} == {*orders[1]}


def test_a_refusal_lasts_until_the_record_changes() -> None:
    wanted = WantedSources("me")
    bad = _view({"a": "me"}, label="x")
    wanted.update(bad)
    assert "label" in wanted.refused["a"]
    assert wanted.usable == {}
    wanted.update(bad)
    assert wanted.refused.keys() == {"a"}
    wanted.update(_view({"a": "me"}))
    assert wanted.refused == {}
    assert {*wanted.usable} == {"a"}
    wanted.refuse({"a": "it has no such label"})
    wanted.update(_view({"a": "me"}))
    assert wanted.refused == {"a": "it has no such label"}


def test_an_unchanged_record_keeps_its_configuration() -> None:
    """So that nothing is compared, or read again, at each change of the fleet."""
    wanted, view = WantedSources("me"), _view({"a": "me"})
    wanted.update(view)
    first = wanted.usable["a"]
    wanted.update(view)
    assert wanted.usable["a"] is first


def test_a_recording_that_plays_as_fast_as_possible_is_for_a_batch() -> None:
    wanted = WantedSources("me")
    wanted.update(_view({"a": "me"}, type="av", url="/clips/a.mp4", pace="fast"))
    assert "lookout batch" in wanted.refused["a"]


def test_reports_are_of_changes() -> None:
    clock = ManualClock()
    reports = Reports(clock)
    assert reports.new_refusals({"a": "x"}) == {"a": "x"}
    reports.note_refusals({"a": "x"})
    assert reports.new_refusals({"a": "x"}) == {}
    assert reports.new_refusals({"b": "y"}) == {"a": None, "b": "y"}


def test_a_pace_allows_a_seconds_number_at_once() -> None:
    clock = ManualClock()
    pace = Pace(2.0, clock)
    assert pace.room == 2
    pace.spend(2)
    assert pace.room == 0
    clock.advance(0.6)
    assert pace.room == 1
    clock.advance(60.0)
    assert pace.room == 2
    slow = Pace(0.1, clock)
    slow.spend(1)
    clock.advance(9.0)
    assert slow.room == 0
    clock.advance(1.5)
    assert slow.room == 1


def test_many_connections_begin_a_few_at_a_time() -> None:
    clock = ManualClock()
    pace = Pace(50.0, clock)
    assert pace.room_for(64) == 50
    pace.spend(50)
    clock.advance(0.1)
    assert pace.room_for(64) == 0
    assert pace.room_for(5) == 5
    clock.advance(0.1)
    assert pace.room_for(64) == 10


def test_members_tell_their_public_key(tmp_path: Path) -> None:
    public, secret = new_pair(tmp_path, "lookout")
    curve = CurveConfig(secret_key_file=secret)
    config = _config(publisher=PublisherConfig(endpoint="tcp://127.0.0.1:*", curve=curve))
    found = endpoints_of(config, "tcp://127.0.0.1:1234", None)
    assert found.http is None
    assert found.server_key is not None
    assert found.server_key in public.read_text()


def test_a_claim_is_doubted_when_the_records_do_not_show_it_for_long() -> None:
    clock = ManualClock()
    doubts, timeout_s = MissingClaims("me", clock), TIMEOUT_NS / 1e9
    shown = replace(view({}, {}), owned={"a": Owned("me", 5), "b": Owned("me", 4), "c": Owned("other", 5)})
    later = replace(shown, owned={**shown.owned, "d": Owned("me", 5)})

    def due_after(seconds: float, records: FleetView | None, *sources: str) -> list[str]:
        clock.advance(seconds)
        return [*doubts.due(lambda: dict.fromkeys(sources, 5), records)]

    assert due_after(0, shown, "a", "b", "c", "d") == []
    assert due_after(timeout_s + 1, shown, "a", "b", "c", "d") == ["b", "c", "d"]
    assert due_after(0, shown, "d") == []  # it has just looked
    doubts.settle({"b", "c"})
    assert due_after(timeout_s / 2, shown, "a", "b", "c", "d") == ["d"]
    assert due_after(timeout_s / 2, later, "a", "b", "c", "d") == []
    assert due_after(timeout_s + 1, shown, "a", "d") == []  # it was shown meanwhile: the time begins anew
    assert due_after(timeout_s + 1, None, "a", "d") == ["d"]
