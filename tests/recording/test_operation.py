"""What operators see of recording: the trial of a store, figures for Prometheus, rows of the API."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from daemon.config.load import parse
from daemon.config.recording import StoreConfig
from daemon.config.root import Config
from daemon.config.sources import SourceRecord
from daemon.http.recording_exposition import RecordingExposition
from daemon.http.recording_rows import RecordingRows
from daemon.lifecycle import Lifecycle
from daemon.pipeline.core import Core
from daemon.pipeline.ledger import Ledger
from daemon.pipeline.outbox import Outbox
from daemon.recording import trial
from daemon.recording.index import Index
from daemon.recording.kit import open_recording
from daemon.recording.process.protocol import Others
from daemon.recording.process.store_process import StoreFigures
from daemon.recording.reconcile import rebuild
from daemon.recording.recording import Recording
from daemon.recording.source_recorder import Account
from daemon.recording.store import Store
from daemon.recording.trial import Trial, TrialOrder, try_store
from daemon.system.opener import Opener
from daemon.system.stop_token import StopToken
from daemon.system.time_limits import Limits
from lookout.messages import Owner
from tests.recording.playback_rig import locked_index
from tests.support import recorded
from tests.support.clock import ManualClock
from tests.support.runtime import runtime_of

SECOND = 1_000_000_000
MIB = 1 << 20
EMPTY = Account("door", 0, 0, {}, 0, 0, {}, None, None)


def order(path: Path, size: int = MIB, *, must_be_mount: bool = False, alone: bool = True) -> TrialOrder:
    return TrialOrder(str(path), must_be_mount, alone, ["door", "yard"], size)


def _files(folder: Path) -> list[Path]:
    """Without those that SQLite makes for as long as a database is open."""
    return sorted(path for path in folder.rglob("*") if not path.name.startswith("index."))


# --- the trial of a store --------------------------------------------------------------------------------------------


def test_a_store_is_tried_and_nothing_is_left_in_it(tmp_path: Path, store: Store, clips: Path) -> None:
    facts = recorded.record(store, recorded.clip(clips, "h264"))
    index = Index(store)
    rebuild(store, index)
    index.close()
    before = _files(tmp_path)
    found = try_store(order(store.path))
    assert _files(tmp_path) == before
    assert (found.problem, found.is_new, found.bytes) == (None, False, facts.size)
    assert found.bytes_per_s is not None
    assert found.bytes_per_s > 0
    assert found.rates.keys() == {"door"}
    assert found.rates["door"] == pytest.approx(facts.size / 3, rel=0.05)


def test_a_store_that_is_not_there_yet_is_tried_and_is_still_not_there(tmp_path: Path) -> None:
    found = try_store(order(tmp_path / "a" / "b"))
    assert (found.problem, found.is_new) == (None, True)
    assert [*tmp_path.iterdir()] == []


def test_a_store_that_does_not_answer_holds_nobody_up(store: Store) -> None:
    with locked_index(store.path):
        found = try_store(order(store.path), silent_s=0.1)
    assert found.problem is not None
    assert found.problem.startswith(f"{store.path}: does not answer: ")
    assert found.problem.endswith(" takes longer than 0.1 s")


@contextmanager
def _small_files(most: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_write_that_is_refused_leaves_nothing(store: Store) -> None:
    mine, theirs = os.pipe()
    with _small_files(5 * MIB):
        assert trial.main(order(store.path, 8 * MIB), theirs) == 0
    os.close(theirs)
    with os.fdopen(mine, "rb") as told:
        found = msgspec.json.decode(told.read().splitlines()[-1], type=Trial)
    assert found.problem == f"{store.path}: File too large"
    assert os.listdir(store.path) == ["lookout-store.json"]


def test_a_store_that_somebody_records_into_is_no_place_for_another(store: Store) -> None:
    store.claim()
    assert try_store(order(store.path)).problem == f"{store.path}: another process records into it"
    assert try_store(order(store.path, alone=False)).problem is None


# --- figures ---------------------------------------------------------------------------------------------------------


def _figures(account: Account, cause: str | None = None) -> list[StoreFigures]:
    return [StoreFigures("main", cause, "words" if cause else None, 1000, 5000, (account,))]  # type: ignore[arg-type]


def _samples(exposition: RecordingExposition) -> Mapping[tuple[str, ...], float]:
    found: dict[tuple[str, ...], float] = {}
    for family in exposition.collect():
        for row in family.samples:
            name = row.name.removeprefix("lookout_recording_")
            labels = [value for label, value in row.labels.items() if label != "store"]
            key = (name, *labels)
            found[key] = row.value
    return found


def test_packets_and_seconds_are_counted_by_their_fate() -> None:
    gap_ns = {"off": SECOND, "disk_full": 15 * SECOND}
    account = Account("door", 90, 9, {"network": 1}, 4096, 60 * SECOND, gap_ns, None, None)
    config = {"main": StoreConfig(Path("/x"), max_gib=1, min_free_gib=2)}
    found = _samples(RecordingExposition(lambda: _figures(account, "disk_full"), config))
    assert found["store_up", "disk_full"] == 0
    assert (found["store_bytes",], found["store_free_bytes",]) == (1000, 5000)
    assert (found["store_limit_bytes",], found["store_min_free_bytes",]) == (1 << 30, 2 << 30)
    assert found["packets_total", "door", "written"] == 90
    assert found["packets_total", "door", "released"] == 9
    assert found["packets_lost_total", "door", "network"] == 1
    assert found["waiting_bytes", "door"] == 4096
    assert found["recorded_seconds_total", "door"] == 60
    assert found["gap_seconds_total", "door", "disk_full"] == 15
    assert found["gap_seconds_total", "door", "store_hung"] == 0  # so that its first second is an increase
    assert found["covered_ratio", "door"] == pytest.approx(0.8)


def test_the_seconds_of_a_gap_do_not_fall_when_an_event_takes_the_last_of_them() -> None:
    accounts = [EMPTY]
    exposition = RecordingExposition(lambda: _figures(accounts[-1]), {})
    seen = []
    for released, seconds in ((300, 20), (300, 12), (450, 30), (3, 0.2)):  # the last one is another ring
        accounts.append(Account("door", 0, released, {}, 0, 0, {"no_event": round(seconds * SECOND)}, None, None))
        seen.append(_samples(exposition)["gap_seconds_total", "door", "no_event"])
    assert seen == [20, 20, 30, 0.2]


# --- the part of the daemon ------------------------------------------------------------------------------------------


@contextmanager
def _built(owner: Callable[[str], Owner | None] | None = None) -> Iterator[tuple[Recording, Lifecycle]]:
    """The part as the daemon builds it, before it starts."""
    config, clock, ledger = parse(_CONFIG), ManualClock(), Ledger()
    life, opener = Lifecycle(clock, Limits()), Opener(StopToken(), 1.0, Limits(), clock, lambda: None)
    core = Core(config, "run", ledger, Outbox(1, ledger, lossless=False), life, opener, runtime_of(clock))
    try:
        yield open_recording(core, owner), life
    finally:
        life.undo()


def test_a_change_that_comes_before_the_start_is_not_undone_by_it() -> None:
    config = parse(_CONFIG)
    with _built() as (recording, life):
        changed = [msgspec.structs.replace(row, record=SourceRecord(mode="off")) for row in config.sources[:1]]
        recording.configure(msgspec.structs.replace(config, sources=[*changed, *config.sources[1:]]))
        (start,) = (part for part, _ in life._parts if part.name == "recording")
        start.start()
        assert not recording.packets.rings_of("door")
        assert recording.packets.rings_of("main")


@pytest.mark.parametrize("in_fleet", [False, True])
def test_why_a_source_is_recorded_no_more(*, in_fleet: bool) -> None:
    config = parse(_CONFIG)
    off = msgspec.structs.replace(config.sources[0], record=SourceRecord(mode="off"))
    with _built((lambda _: None) if in_fleet else None) as (recording, _):
        recording.configure(config)
        recording.configure(msgspec.structs.replace(config, sources=[off, *config.sources[3:]]))
        (store,) = recording._stores.values()
        causes = {order.source: order.cause for order, *_ in store._leaving.values()}
        assert causes == {"door": "off", "main": "fenced" if in_fleet else "off"}


@pytest.mark.parametrize("in_fleet", [False, True])
def test_a_store_is_told_why_it_gets_nothing_of_other_sources(*, in_fleet: bool) -> None:
    with _built((lambda _: None) if in_fleet else None) as (recording, _):
        recording.configure(parse(_CONFIG))
        (store,) = recording._stores.values()
        (told,) = (message.absence for message, _ in store._waiting if isinstance(message, Others))
    assert told.recorded == {"door", "main"}
    causes = {source: told.why(source)[0] for source in ("yard", "gone", "unknown")}
    away = "fenced" if in_fleet else "off"
    assert causes == {"yard": "off", "gone": away, "unknown": away}


# --- sources ---------------------------------------------------------------------------------------------------------

_CONFIG = """
model: {path: model.onnx}
record: {stores: {main: {path: /x}}, mode: events}
sources:
  - {id: door, type: av, url: "rtsp://192.0.2.1/"}
  - {id: yard, type: av, url: "rtsp://192.0.2.1/", record: "off"}
  - {id: main, type: av, url: "http://192.0.2.1/mjpg", record: {url: "rtsp://192.0.2.1/main"}}
  - {id: file, type: av, url: /clips/a.mp4}
  - {id: street, type: synthetic}
  - {id: usb, type: camera}
  - {id: gone, type: av, url: "rtsp://192.0.2.1/", enabled: false}
"""


def _rows(config: Config, figures: list[StoreFigures], codec: str | None = None) -> dict[str, dict[str, object]]:
    rows = RecordingRows(lambda: figures, lambda: config)
    stores = rows.by_source()
    return {row.id: rows.of_source(row, codec, stores.get(row.id, {})) for row in config.sources}


def test_each_source_says_why_it_is_not_recorded() -> None:
    reasons = {id: row["reason"] for id, row in _rows(parse(_CONFIG), []).items()}
    assert reasons == {
        "door": None,
        "yard": "its record is off",
        "main": None,
        "file": "a recording itself",
        "street": "drawn",
        "usb": "a camera of this machine, which sends pictures and no video",
        "gone": "disabled",
    }
    of_mjpeg = _rows(parse(_CONFIG), [], "mjpeg")
    assert of_mjpeg["door"]["reason"] == "video in mjpeg is not recorded, H.264 and HEVC are"
    assert of_mjpeg["main"]["reason"] is None  # another stream of it is recorded


def test_a_source_says_what_its_store_or_its_camera_lacks() -> None:
    down = msgspec.structs.replace(EMPTY, cause="source_down", detail="cannot open rtsp://me:pa55@192.0.2.1/")
    told = {"cause": "source_down", "detail": "cannot open rtsp://***@192.0.2.1/"}
    assert _rows(parse(_CONFIG), _figures(down))["door"]["stores"] == {"main": told}
    told = {"cause": "store_away", "detail": "words"}
    assert _rows(parse(_CONFIG), _figures(down, "store_away"))["door"]["stores"] == {"main": told}
