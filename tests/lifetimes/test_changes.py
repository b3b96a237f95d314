"""Changes beside each other, beside a model that does not open, and while the daemon stops: complete, or not at all."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import threading
from concurrent.futures import Future
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import msgspec
import psutil
import pytest

from daemon.config.events import EventsConfig
from daemon.config.http import HttpConfig
from daemon.config.sources import SourceConfig, SyntheticConfig, TrackingConfig
from daemon.daemon import Daemon
from daemon.errors import ConfigError, LookoutError, StoppingError
from daemon.redact import Secret
from daemon.rule_config import ObjectConfig
from daemon.sources.decode import DecoderPool
from daemon.sources.factory import make_source
from daemon.sources.port import Source
from daemon.system.stop_token import StopToken
from daemon.system.time_limits import Limits
from detectors.fake.detector import FakeDetector
from detectors.port import DetectorError
from tests.lifetimes.gate import Gate
from tests.lifetimes.parts import Camera, Detector
from tests.lifetimes.rig import wait_until
from tests.lifetimes.running import STREET, edit, running, wait_up
from tests.support.daemon import DEMO_MODEL, Lookout, children_of
from tests.support.held_file import HeldFile
from tests.support.models import endless_model
from tests.support.ports import free_port

_GARDEN = SyntheticConfig(id="garden", fps=50, width=16, height=16)
_TOKEN = "a-token-of-forty-characters-or-so-00001"  # noqa: S105 - of these tests


def _rows(lookout: Lookout, event: str) -> list[dict[str, Any]]:
    """Lines of its log."""
    found = [json.loads(line) for line in lookout.log().splitlines() if line.startswith("{")]
    return [row for row in found if row["event"] == event]


def _trials(lookout: Lookout) -> list[psutil.Process]:
    """Processes that try a model."""
    return lookout.children("daemon.control.model_trial")


class Real:
    """A daemon process with the demo model, the HTTP API, and a configuration file to reload."""

    def __init__(self, folder: Path, open_timeout_s: float = 900) -> None:
        self.model: dict[str, object] = {"path": str(DEMO_MODEL), "open_timeout_s": open_timeout_s}
        source = {"id": "street", "type": "synthetic", "fps": 20, "width": 64, "height": 64}
        self.url = f"http://127.0.0.1:{(port := free_port())}/api/v1/sources"
        settings = {"enabled": True, "port": port, "token": _TOKEN}
        self.lookout = Lookout(folder, {"model": self.model, "sources": [source], "http": settings})
        wait_until(lambda: _rows(self.lookout, "ready"), "it is ready", self.lookout.log)

    def reload_to(self, model: Path) -> None:
        """Change the model, by signal."""
        text = self.lookout.config.read_text()
        self.lookout.config.write_text(text.replace(str(self.model["path"]), str(model)))
        self.model["path"] = str(model)
        self.lookout.process.send_signal(signal.SIGHUP)

    def add(self, id: str) -> int:
        """Add a source over HTTP; returns the status code."""
        body = {"id": id, "type": "synthetic", "fps": 20, "width": 64, "height": 64}
        return httpx.post(self.url, json=body, headers={"Authorization": f"Bearer {_TOKEN}"}, timeout=60).status_code


@pytest.fixture
def real(tmp_path: Path, request: pytest.FixtureRequest) -> Any:
    found = Real(tmp_path, getattr(request, "param", 900))
    try:
        yield found
    finally:
        found.lookout.close()


@pytest.mark.parametrize("real", [5.0], indirect=True, ids=["given-up-after-5-s"])
def test_a_model_that_never_opens_holds_up_nothing(real: Real, tmp_path: Path) -> None:
    """A8: it is tried in a process of its own, other changes go on, and when its time is over it is given up."""
    real.reload_to(endless_model(tmp_path / "endless.onnx"))
    wait_until(lambda: _trials(real.lookout), "it is tried", real.lookout.log)
    assert real.add("garden") == 201
    wait_until(lambda: _rows(real.lookout, "reload refused: nothing has changed"), "it is refused", real.lookout.log)
    reason = _rows(real.lookout, "reload refused: nothing has changed")[0]["reason"]
    assert "endless.onnx did not open within 5 s" in reason
    assert "model.open_timeout_s" in reason
    wait_until(lambda: not _trials(real.lookout), "its process is gone")
    real.reload_to(DEMO_MODEL)  # what the file says again is heard
    wait_until(lambda: _rows(real.lookout, "reloaded"), "the next reload", real.lookout.log)
    assert real.lookout.stop(60) == 0


def test_a_model_that_crashes_is_refused(real: Real, tmp_path: Path) -> None:
    """A8: the process in which it is tried ends as at a crash, or for want of memory; the daemon does not notice."""
    real.reload_to(endless_model(tmp_path / "endless.onnx"))
    wait_until(lambda: _trials(real.lookout), "it is tried", real.lookout.log)
    _trials(real.lookout)[0].send_signal(signal.SIGSEGV)
    wait_until(lambda: _rows(real.lookout, "reload refused: nothing has changed"), "it is refused", real.lookout.log)
    reason = _rows(real.lookout, "reload refused: nothing has changed")[0]["reason"]
    assert "the process that tried it was ended by SIGSEGV" in reason
    assert real.add("garden") == 201
    assert real.lookout.stop(60) == 0


def test_a_daemon_that_opens_a_model_ends_when_it_is_told(real: Real, tmp_path: Path) -> None:
    """D11: what is opened does not outlive the daemon, nor keep it."""
    real.reload_to(endless_model(tmp_path / "endless.onnx"))
    wait_until(lambda: _trials(real.lookout), "it is tried", real.lookout.log)
    trial = _trials(real.lookout)[0]
    assert real.lookout.stop(60) == 0
    wait_until(lambda: not trial.is_running() or trial.status() == psutil.STATUS_ZOMBIE, "its process is gone")


def test_a_model_on_a_disk_that_does_not_answer_keeps_nobody(tmp_path: Path) -> None:
    """D11: as the first, too, and in the daemon's own process."""
    model = tmp_path / "model.onnx"
    shutil.copyfile(DEMO_MODEL, model)
    source = {"id": "street", "type": "synthetic", "fps": 20}
    config: dict[str, object] = {"model": {"path": str(DEMO_MODEL)}, "sources": [source]}
    with closing(HeldFile(model)) as held, Lookout(tmp_path, config) as lookout:
        wait_until(lambda: _rows(lookout, "ready"), "it is ready", lookout.log)
        lookout.config.write_text(lookout.config.read_text().replace(str(DEMO_MODEL), str(model)))
        lookout.process.send_signal(signal.SIGHUP)
        wait_until(lambda: held.is_wanted, "it is opened", lookout.log)
        lookout.config.write_text(lookout.config.read_text().replace("street", "avenue"))
        assert lookout.stop(60) == 0
        assert "Traceback" not in lookout.log()


# --- in this process, where libraries may be held ------------------------------------------------------------------


class Models:
    """Opens detectors; all but the first pass a gate."""

    def __init__(self) -> None:
        self.gate, self._none = Gate(), Gate()
        self.opened: list[Detector] = []
        self.gate.close()

    def __call__(self, _: object, options: Any) -> Detector:
        if self.opened:
            self.gate()
        self.opened.append(Detector(options, self._none, self._none, StopToken()))
        return self.opened[-1]


def _swap(app: Daemon, name: str) -> Future[Any]:
    return app.changes.submit(
        lambda now: msgspec.structs.replace(now, model=msgspec.structs.replace(now.model, path=Path(name)))
    )


def test_a_model_that_comes_after_the_end_is_closed(tmp_path: Path) -> None:
    """D11: the library returns when the daemon has stopped already; whoever asked was told before."""
    models = Models()
    with running(tmp_path, STREET, open_detector=models) as app:
        swap = _swap(app, "other")
        models.gate.wait_for_one()
        assert app.stop() == 0
        with pytest.raises(StoppingError, match="stopping"):
            swap.result(0)
        models.gate.open()
        wait_until(lambda: [row.closed for row in models.opened] == [1, 1], "both are closed")


def test_sources_change_while_a_model_is_opened(tmp_path: Path) -> None:
    """A8: and the model that comes in the end serves those there are by then."""
    models = Models()
    with running(tmp_path, STREET, open_detector=models) as app:
        swap = _swap(app, "other")
        models.gate.wait_for_one()
        edit(app, lambda rows: [*rows, _GARDEN]).result(60)
        wait_up(app, "street", "garden")
        models.gate.open()
        swap.result(60)
        assert app.changes.config.model.path == Path("other")
        assert [source.id for source in app.changes.config.sources] == ["street", "garden"]
        wait_up(app, "street", "garden")
        wait_until(lambda: [row.closed for row in models.opened] == [1, 0], "the first is closed")


def test_the_last_of_several_models_is_the_one(tmp_path: Path) -> None:
    """A request that is superseded gets its error at once."""
    models = Models()
    with running(tmp_path, STREET, open_detector=models) as app:
        first = _swap(app, "first")
        models.gate.wait_for_one()
        second = _swap(app, "second")
        with pytest.raises(LookoutError, match="another change of the model"):
            first.result(60)
        models.gate.open()
        second.result(60)
        assert app.changes.config.model.path == Path("second")
        wait_until(lambda: sorted(row.closed for row in models.opened) == [0, 1, 1], "the others are closed")


def test_a_change_that_is_refused_changes_nothing(tmp_path: Path) -> None:
    """D21: a model that opens, and a source that cannot be made: neither is taken, and nobody notices."""
    models = Models()
    models.gate.open()

    def make(config: SourceConfig, hardware: DecoderPool) -> Source:
        if config.id == "bad":
            raise ConfigError("source 'bad': there is no such thing")
        return make_source(config, hardware)

    bad = SyntheticConfig(id="bad", fps=50, width=16, height=16)
    with running(tmp_path, STREET, _GARDEN, open_detector=models, make_source=make) as app:
        wait_up(app, "street", "garden")
        before = {capture.id: id(capture) for capture in app.sources.captures}

        def all_at_once(now: Any) -> Any:
            model = msgspec.structs.replace(now.model, path=Path("other"))
            changed = msgspec.structs.replace(STREET, fps=25)
            return msgspec.structs.replace(now, model=model, sources=[changed, bad])

        with pytest.raises(ConfigError, match="no such thing"):
            app.changes.submit(all_at_once).result(60)
        assert [source.id for source in app.changes.config.sources] == ["street", "garden"]
        assert app.changes.config.model.path == Path("none")
        assert {capture.id: id(capture) for capture in app.sources.captures} == before
        wait_up(app, "street", "garden")
        wait_until(lambda: [row.closed for row in models.opened] == [0, 1], "what was opened is closed")
        assert app.health.problems() == []


def test_a_first_rule_without_a_process_for_it_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as where there are too many. The daemon goes on, and takes the rule as soon as there is one."""
    own = {"tracking": TrackingConfig(enabled=True), "events": EventsConfig(own_process=True)}
    ruled = msgspec.structs.replace(STREET, rules=[ObjectConfig(name="all")])
    with running(tmp_path, STREET, config=own) as app:
        with monkeypatch.context() as system:
            system.setattr(sys, "executable", str(tmp_path / "nothing"))
            for template in children_of(os.getpid(), "daemon.system.process_template"):
                template.kill()
                template.wait()
            with pytest.raises(LookoutError, match="no process can be started for rules: No such file"):
                edit(app, lambda _: [ruled]).result(60)
        assert app.changes.config.sources == [STREET]
        wait_up(app, "street")
        edit(app, lambda _: [ruled]).result(60)
        assert len(app.parts.pids) == 2
        wait_until(app.events.totals, "the rule counts")
        assert app.health.problems() == []


def test_a_model_is_closed_where_the_sources_of_its_change_cannot_be_written(tmp_path: Path) -> None:
    """The model is open by then; the old one stays in use."""
    models = Models()
    models.gate.open()

    def persist(_: object) -> None:
        raise ConfigError("http.sources_file: cannot be written")

    def weaker(now: Any) -> Any:
        return msgspec.structs.replace(now, sources=[msgspec.structs.replace(STREET, confidence=0.01)])

    with running(tmp_path, STREET, open_detector=models) as app:
        with pytest.raises(ConfigError, match="cannot be written"):
            app.changes.submit(weaker, persist=persist).result(60)
        assert app.changes.config.sources == [STREET]
        wait_until(lambda: [row.closed for row in models.opened] == [0, 1], "what was opened is closed")
        wait_up(app, "street")


def test_an_error_that_is_not_foreseen_changes_nothing_either(tmp_path: Path) -> None:
    """D21, D22: such as a bug in a library, while a source is made in this process."""

    def make(config: SourceConfig, hardware: DecoderPool) -> Source:
        if config.id == "bad":
            raise RuntimeError("a bug")
        return make_source(config, hardware)

    bad = SyntheticConfig(id="bad", fps=50, width=16, height=16)
    with running(tmp_path, STREET, make_source=make) as app:
        with pytest.raises(RuntimeError, match="a bug"):
            edit(app, lambda rows: [bad, *rows]).result(60)
        assert [source.id for source in app.changes.config.sources] == ["street"]
        edit(app, lambda rows: [*rows, _GARDEN]).result(60)
        wait_up(app, "street", "garden")


def test_a_model_that_fails_to_open_is_refused_with_its_reason(tmp_path: Path) -> None:
    def open_detector(_: object, options: Any) -> FakeDetector:
        if options.path.name == "broken":
            raise DetectorError("model broken: it is cut off")
        return FakeDetector(options)

    with running(tmp_path, STREET, open_detector=open_detector) as app:
        with pytest.raises(DetectorError, match="cut off"):
            _swap(app, "broken").result(60)
        wait_up(app, "street")
        _swap(app, "whole").result(60)
        assert app.changes.config.model.path == Path("whole")


def test_a_change_over_http_while_it_stops_is_told_to_try_later(tmp_path: Path) -> None:
    """The answer is 503, not an internal error."""
    gate, port = Gate(), free_port()
    http = HttpConfig(enabled=True, port=port, token=Secret(_TOKEN))

    def make(_: SourceConfig, __: DecoderPool) -> Source:
        return Camera(gate)

    with running(tmp_path, STREET, config={"http": http}, make_source=make, limits=Limits(stop=20)) as app:
        wait_up(app, "street")
        gate.close()
        gate.wait_for_one()
        stopping = threading.Thread(target=app.stop)
        stopping.start()
        wait_until(lambda: app.is_stopping, "it stops")
        url, headers = f"http://127.0.0.1:{port}/api/v1/sources", {"Authorization": f"Bearer {_TOKEN}"}

        def answer() -> int:
            return httpx.delete(f"{url}/street", headers=headers, timeout=60).status_code

        wait_until(lambda: answer() == 503, "it refuses")
        gate.open()
        stopping.join(60)


def test_changes_asked_for_from_many_threads_are_done_one_after_another(tmp_path: Path) -> None:
    """Each change sees the ones before it; those that come during the stop are refused, and none waits for ever."""
    answers: list[Future[Any]] = []
    lock, told = threading.Lock(), threading.Event()

    def add_many(number: int) -> None:
        for turn in range(8):
            source = msgspec.structs.replace(_GARDEN, id=f"s{number}-{turn}", fps=1)
            answer = edit(app, lambda rows, source=source: [*rows, source])  # type: ignore[misc]
            with lock:
                answers.append(answer)
            if len(answers) > 16:
                told.set()

    with running(tmp_path, STREET) as app:
        threads = [threading.Thread(target=add_many, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        assert told.wait(60)
        app.stop()
        for thread in threads:
            thread.join(60)
        done = [answer for answer in answers if answer.exception(60) is None]
        refused = [answer.exception(0) for answer in answers if answer not in done]
        assert len(answers) == 32
        assert all(isinstance(error, StoppingError) for error in refused)
        assert len(app.changes.config.sources) == 1 + len(done)
