"""A running daemon's sources and model change; those that stay the same must not notice."""

from __future__ import annotations

import os
import signal
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from daemon.build import build
from daemon.capture.processes.run import PROGRAM
from daemon.config.load import parse
from daemon.config.root import Config
from daemon.control.reload import difference
from daemon.errors import ConfigError
from daemon.monitoring.health import PART_STUCK
from daemon.seams import Seams
from detectors.detections import Detections as Found
from detectors.fake.detector import FakeDetector, FakeLane
from detectors.port import Image, PreparedImage, StageTimes
from lookout.messages import Detections, Message, Metrics, Status
from tests.support.daemon import DEMO_MODEL, ROOT, Lookout, all_of, has_seen, is_state, lost, receive_until

_PATIENT = {"stall_after_s": 600}  # a crowded machine is no word of a source


def _street(number: int, **more: object) -> dict[str, object]:
    return {"id": f"street-{number}", "type": "synthetic", "width": 160, "height": 96, "fps": 5, "seed": number, **more}


def _rewrite(lookout: Lookout, **sections: Any) -> None:
    """Another configuration in the file, and the word to read it."""
    whole = yaml.safe_load(lookout.config.read_text()) | sections
    lookout.config.write_text(yaml.safe_dump(whole))
    lookout.process.send_signal(signal.SIGHUP)


def _logged(lookout: Lookout, words: str) -> Callable[[Message], bool]:
    """Whether the log has some words, asked at each message."""
    return lambda _: words in lookout.log()


def _seqs(messages: Sequence[Message]) -> dict[str, list[int]]:
    rows: dict[str, list[int]] = defaultdict(list)
    for message in messages:
        if isinstance(message, Detections):
            rows[message.source].append(message.seq)
    return rows


@pytest.mark.slow
def test_nineteen_of_twenty_do_not_notice(tmp_path: Path) -> None:
    """One is changed, one is gone, one is new: the others lose no frame and are not connected anew."""
    config: dict[str, object] = {
        "sources": [_street(number) for number in range(20)],
        "model": {"path": str(DEMO_MODEL), "backend": "fake"},
        "monitor": _PATIENT,
    }
    same = [f"street-{number}" for number in range(1, 19)]
    with Lookout(tmp_path, config) as lookout:
        with lookout.subscribe() as subscriber:
            before = receive_until(subscriber, lambda message: isinstance(message, Detections) and message.seq >= 10)
            _rewrite(lookout, sources=[*map(_street, range(1, 19)), _street(19, width=320), _street(20)])
            messages = receive_until(subscriber, all_of(is_state("street-19", "up"), is_state("street-20", "up")))
            messages += receive_until(subscriber, has_seen(5, *same, "street-19"))
            assert subscriber.lost == {}
        assert lookout.stop() == 0
        log = lookout.log()
    everything = _seqs([*before, *messages])
    assert {source: lost(messages, source) for source in same} == dict.fromkeys(same, 0)
    statuses = [message for message in messages if isinstance(message, Status)]
    assert {status.source for status in statuses if status.source in same} == set()
    gone = [status.state for status in statuses if status.source == "street-0"]
    assert gone == ["ended"]
    anew = [status.state for status in statuses if status.source == "street-19"]
    assert anew == ["ended", "connecting", "up"]
    wide = [message.image.width for message in messages if isinstance(message, Detections)
            and message.source == "street-19"]  # fmt: skip
    assert wide[-1] == 320
    assert everything["street-19"] == sorted(set(everything["street-19"]))
    assert '"event": "reloaded"' in log
    assert "Traceback" not in log


def test_a_bad_configuration_is_refused_whole(tmp_path: Path) -> None:
    """And in one line of the log; a good one after it is taken."""
    model = {"path": str(DEMO_MODEL), "backend": "fake"}
    with Lookout(tmp_path, {"sources": [_street(0)], "model": model, "monitor": _PATIENT}) as lookout:
        with lookout.subscribe() as subscriber:
            receive_until(subscriber, is_state("street-0", "up"))
            for words, change in (
                ("did you mean `fps`", {"sources": [_street(0), _street(1, fpps=3)]}),
                ("lanes: cannot change while running", {"sources": [_street(0), _street(1)], "lanes": 4}),
                ("has no label 'zebra'", {"sources": [_street(0), _street(1, labels=["zebra"])], "lanes": 1}),
            ):
                _rewrite(lookout, **change)
                receive_until(subscriber, _logged(lookout, words))
            _rewrite(lookout, sources=[_street(0), _street(1)])
            messages = receive_until(subscriber, is_state("street-1", "up"))
        assert lookout.stop() == 0
        assert lookout.log().count("reload refused") == 3
    assert not any(isinstance(message, Status) and message.source == "street-0" for message in messages)


def test_thresholds_and_labels_change_without_a_new_connection(tmp_path: Path) -> None:
    model = {"path": str(DEMO_MODEL), "confidence": 0.1}
    street = _street(0, width=640, height=360)
    with Lookout(tmp_path, {"sources": [street], "model": model, "monitor": _PATIENT}) as lookout:
        with lookout.subscribe() as subscriber:
            receive_until(subscriber, lambda message: isinstance(message, Detections) and bool(message.detections))
            _rewrite(lookout, sources=[{**street, "labels": []}])
            messages = receive_until(
                subscriber, lambda message: isinstance(message, Detections) and not message.detections
            )
        assert lookout.stop() == 0
    states = {message.state for message in messages if isinstance(message, Status)}
    assert states <= {"up"}  # the last status comes again to a new subscriber
    assert len({message.session for message in messages if isinstance(message, Detections)}) == 1


def _reloaded(lookout: Lookout) -> Callable[[Message], bool]:
    """Whether the daemon has reloaded once more, asked at each message."""
    before = lookout.log().count('"event": "reloaded"')
    return lambda _: lookout.log().count('"event": "reloaded"') > before


def _tracks(messages: Sequence[Message]) -> set[int]:
    found = [box for message in messages if isinstance(message, Detections) for box in message.detections]
    return {box.track_id for box in found if box.track_id is not None}


def test_views_change_without_a_new_connection(tmp_path: Path) -> None:
    """Tiles and a region of interest come and go: no frame is lost, no connection is made anew, tracks go on. Boxes lie
    in the polygon, in coordinates of the picture."""
    street = _street(0, width=640, height=360, tracking=True, objects=3)
    boxes: dict[str, list[list[float]]] = {}
    tracks: dict[str, set[int]] = {}
    everything: list[Message] = []
    with Lookout(tmp_path, {"sources": [street], "model": {"path": str(DEMO_MODEL)}, "monitor": _PATIENT}) as lookout:
        with lookout.subscribe() as subscriber:
            everything += receive_until(subscriber, has_seen(12, "street-0"))
            before = _tracks(everything)
            for name, view in (
                ("tiles", {"tiles": "2x2"}),
                ("roi", {"roi": [[0.5, 0.1], [1, 0.1], [1, 0.9], [0.5, 0.9]]}),
                ("both", {"tiles": {"columns": 2, "rows": 1}, "roi": [[0.1, 0], [0.9, 0], [0.9, 1], [0.1, 1]]}),
                ("none", {}),
            ):
                reloaded = _reloaded(lookout)
                _rewrite(lookout, sources=[{**street, **view}])
                everything += receive_until(subscriber, reloaded)
                everything += receive_until(subscriber, has_seen(2, "street-0"))
                seen = receive_until(subscriber, has_seen(8, "street-0"))
                everything += seen
                tracks[name] = _tracks(seen)
                boxes[name] = [
                    [*box.box] for message in seen if isinstance(message, Detections) for box in message.detections
                ]
            assert subscriber.lost == {}
        assert lookout.stop() == 0
        assert "Traceback" not in lookout.log()
    assert lost(everything, "street-0") == 0
    found = [message for message in everything if isinstance(message, Detections)]
    assert len({message.session for message in found}) == 1
    assert tracks["tiles"] & before
    for name, left, right in (("tiles", 0.0, 640.0), ("roi", 320.0, 640.0), ("both", 64.0, 576.0)):
        centres = np.array(boxes[name]).reshape(-1, 4)
        assert len(centres)
        middle = (centres[:, 0] + centres[:, 2]) / 2
        assert (middle >= left).all()
        assert (middle <= right).all()


def test_tiles_do_not_suit_every_model(tmp_path: Path) -> None:
    """Masks of tiles cannot be joined: the start and a reload are refused in one line."""
    file = ROOT / "tests/data/heads/yolo11-seg.onnx"
    street = _street(0)
    with Lookout(tmp_path, {"sources": [street], "model": {"path": str(file)}, "monitor": _PATIENT}) as lookout:
        with lookout.subscribe() as subscriber:
            receive_until(subscriber, is_state("street-0", "up"))
            _rewrite(lookout, sources=[{**street, "tiles": "2x2"}])
            receive_until(subscriber, _logged(lookout, "tiles: the model yolo11-seg gives masks"))
            _rewrite(lookout, sources=[{**street, "roi": [[0, 0], [0.5, 0], [0.5, 1], [0, 1]]}])
            receive_until(subscriber, _logged(lookout, '"event": "reloaded"'))
            receive_until(subscriber, has_seen(3, "street-0"))
        assert lookout.stop() == 0
        assert lookout.log().count("reload refused") == 1


def _made_by(model: str) -> Callable[[Message], bool]:
    return lambda message: isinstance(message, Detections) and message.model.name == model


def test_a_model_is_swapped_while_it_works(tmp_path: Path) -> None:
    """Every message names the model that made it, in order, and none is lost. How long it takes: tests/speed."""
    other = tmp_path / "other.onnx"
    import onnx

    model = onnx.load(DEMO_MODEL)
    model.producer_name = "another"
    onnx.save(model, other)
    streets = ["street-0", "street-1", "street-2"]
    sources = [_street(number, width=320, height=180, fps=10) for number in range(3)]
    with Lookout(tmp_path, {"sources": sources, "model": {"path": str(DEMO_MODEL), "threads": 1}}) as lookout:
        with lookout.subscribe() as subscriber:
            receive_until(subscriber, lambda message: isinstance(message, Detections) and message.seq >= 10)
            found = list[Message]()
            for path in (other, DEMO_MODEL):
                found += receive_until(subscriber, has_seen(5, *streets))
                _rewrite(lookout, model={"path": str(path), "threads": 1})
                found += receive_until(subscriber, _made_by(path.stem))
                found += receive_until(subscriber, has_seen(5, *streets))
            assert subscriber.lost == {}
            _rewrite(lookout, model={"path": str(tmp_path / "none.onnx"), "threads": 1})
            receive_until(subscriber, _logged(lookout, "none.onnx"))
            found += receive_until(subscriber, has_seen(5, *streets))
        assert lookout.stop() == 0
    made = [message for message in found if isinstance(message, Detections)]
    assert len({(message.model.name, message.model.digest) for message in made}) == 2
    for source in streets:
        assert lost(found, source) == 0
        own = [message for message in made if message.source == source]
        assert [name for name, _ in groupby(own, lambda message: message.model.name)] == ["demo", "other", "demo"]


class _StuckLane(FakeLane):
    """Works, and then does not come back."""

    left = 3

    def detect(self, images: Sequence[Image | PreparedImage]) -> tuple[list[Found], StageTimes]:
        self.left -= 1
        if self.left < 0:
            self._sleep(60)
        return super().detect(images)


class _StuckDetector(FakeDetector):
    def lane(self) -> FakeLane:
        return _StuckLane(0.1, 0.0, _wait)


def _wait(seconds: float) -> None:
    threading.Event().wait(seconds)


@pytest.mark.parametrize("watchdog", [True, False])
@pytest.mark.slow
def test_a_lane_that_hangs_is_named_and_ends_the_process(monkeypatch: pytest.MonkeyPatch, watchdog: bool) -> None:
    """With a code of its own, and with the watchdog not fed meanwhile, if there is one."""
    if watchdog:
        monkeypatch.setenv("WATCHDOG_USEC", "400000")
        monkeypatch.setenv("WATCHDOG_PID", str(os.getpid()))
    text = "model: {path: none}\nsources: [{id: cam, type: synthetic, fps: 20}]\n"
    text += "publisher: {endpoint: 'tcp://127.0.0.1:*'}\nmonitor: {stuck_after_s: 3}\n"
    app = build(parse(text), Seams(open_detector=lambda _, options: _StuckDetector(options)))
    assert app.run() == PART_STUCK
    counts = app.ledger.counts()["cam"]
    assert counts.published == 3


def _config(text: str) -> Config:
    return parse("model: {path: m}\nsources:\n" + text)


def test_what_a_reload_changes() -> None:
    old = _config("  - {id: a, type: synthetic}\n  - {id: b, type: synthetic}\n  - {id: c, type: synthetic}\n")
    new = _config("  - {id: b, type: synthetic, fps: 3}\n  - {id: c, type: synthetic, confidence: 0.5}\n"
                  "  - {id: d, type: synthetic}\n")  # fmt: skip
    change = difference(old, new)
    assert [source.id for source in change.added] == ["d"]
    assert change.removed == ["a"]
    assert [source.id for source in change.changed] == ["b"]
    assert [source.id for source in change.refiltered] == ["c"]
    assert not change.models
    weaker = _config("  - {id: a, type: synthetic, confidence: 0.1}\n")
    assert difference(old, weaker).models
    sized = _config("  - {id: a, type: synthetic, input_size: 640}\n  - {id: b, type: synthetic, input_size: 320}\n")
    fewer = _config("  - {id: a, type: synthetic, input_size: 320}\n  - {id: b, type: synthetic}\n")
    assert difference(fewer, sized).models
    assert not difference(sized, fewer).models
    assert [source.id for source in difference(sized, fewer).refiltered] == ["a", "b"]
    with pytest.raises(ConfigError, match="board, publisher: cannot change while running"):
        difference(old, parse("model: {path: m}\nsources: [{id: a, type: synthetic}]\nboard: {depth: 3}\n"
                              "publisher: {outbox: 3}\n"))  # fmt: skip


def _of(source: str) -> Callable[[Message], bool]:
    return lambda message: isinstance(message, Detections) and message.source == source


def test_the_accounts_of_a_source_that_comes_back_go_on(tmp_path: Path) -> None:
    """captured = published + dropped + in flight over its whole life; its numbers never repeat."""
    sources = [_street(0), _street(1, fps=20)]
    with Lookout(tmp_path, {"sources": sources, "model": {"path": str(DEMO_MODEL), "backend": "fake"},
                            "monitor": {"interval_s": 0.5}}) as lookout:  # fmt: skip
        messages: list[Message] = []
        with lookout.subscribe() as subscriber:
            for _ in range(3):
                messages += receive_until(subscriber, is_state("street-1", "up"))
                messages += receive_until(
                    subscriber, lambda row: isinstance(row, Detections) and row.source == "street-1"
                )
                _rewrite(lookout, sources=sources[:1])
                messages += receive_until(subscriber, is_state("street-1", "ended"))
                _rewrite(lookout, sources=sources)
            messages += receive_until(subscriber, is_state("street-1", "up"))
            for _ in range(2):
                messages += receive_until(subscriber, lambda message: isinstance(message, Metrics))
        assert lookout.stop() == 0
    seqs = _seqs(messages)["street-1"]
    assert seqs == sorted(set(seqs))
    metrics = [message for message in messages if isinstance(message, Metrics)]
    for row in metrics:
        for figures in row.sources.values():
            assert figures.captured == figures.published + figures.in_flight + sum(
                getattr(figures.dropped, name) for name in figures.dropped.__struct_fields__
            )
    assert np.diff([row.sources["street-0"].captured for row in metrics]).min() >= 0


@pytest.mark.needs("ffmpeg")
def test_sources_of_capture_processes_come_and_go(clip: Path, tmp_path: Path) -> None:
    """In the process that is there; the source it had before does not notice. The last one takes the process along."""

    def source(name: str, **more: object) -> dict[str, object]:
        return {"id": name, "type": "av", "url": str(clip), "loop": True, **more}

    config: dict[str, object] = {
        "sources": [source("first")],
        "capture_processes": 1,
        "model": {"path": str(DEMO_MODEL), "backend": "fake"},
    }
    with Lookout(tmp_path, config) as lookout:
        with lookout.subscribe() as subscriber:
            messages = receive_until(subscriber, _of("first"))
            children = {child.pid for child in lookout.children(PROGRAM)}
            _rewrite(lookout, sources=[source("first"), source("second")])
            messages += receive_until(subscriber, _of("second"))
            assert {child.pid for child in lookout.children(PROGRAM)} == children
            _rewrite(lookout, sources=[source("first"), source("second", max_fps=5)])
            messages += receive_until(subscriber, is_state("second", "ended"))
            messages += receive_until(subscriber, _of("second"))
            _rewrite(lookout, sources=[source("first")])
            messages += receive_until(subscriber, is_state("second", "ended"))
            messages += receive_until(subscriber, _of("first"))
            street = {"id": "street", "type": "synthetic", "width": 64, "height": 64}
            _rewrite(lookout, sources=[street])
            messages += receive_until(subscriber, is_state("first", "ended"))
            _rewrite(lookout, sources=[street, source("third")])
            receive_until(subscriber, _of("third"))
        assert lookout.stop() == 0
        assert "Traceback" not in lookout.log()
    states = [message.state for message in messages if isinstance(message, Status) and message.source == "first"]
    assert states[-1] == "ended"
    assert states.count("ended") == 1
    assert lost(messages, "first") == 0
    second = _seqs(messages)["second"]
    assert second == sorted(set(second))
