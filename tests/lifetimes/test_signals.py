"""Signals at every moment: during the start, a reload, the stop, and by the hundred."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

from daemon.build import build
from daemon.seams import Seams
from daemon.system.signals import stopping_on_signals
from daemon.system.stop_token import StopToken
from detectors.fake.detector import FakeDetector
from tests.lifetimes.gate import Gate
from tests.lifetimes.parts import Detector
from tests.lifetimes.rig import wait_until
from tests.lifetimes.running import STREET, config_of
from tests.support.daemon import DEMO_MODEL, ROOT, Lookout
from tests.support.held_file import HeldFile

_STREET: dict[str, object] = {"id": "street", "type": "synthetic", "width": 64, "height": 36, "fps": 10}


def test_signals_are_acted_on_by_a_thread_of_their_own() -> None:
    """D16: a handler runs in the main thread, which may hold the very lock that it wants."""
    stopped_in: list[str] = []
    reloaded_in: list[str] = []
    done = threading.Event()

    def stop() -> None:
        stopped_in.append(threading.current_thread().name)
        done.set()

    with stopping_on_signals(stop, lambda: reloaded_in.append(threading.current_thread().name)):
        os.kill(os.getpid(), signal.SIGHUP)
        wait_until(lambda: bool(reloaded_in), "SIGHUP is heard")
        os.kill(os.getpid(), signal.SIGTERM)
        assert done.wait(30)
        os.kill(os.getpid(), signal.SIGHUP)  # there is nothing to reload any more
    assert (stopped_in, reloaded_in) == (["signals"], ["signals"])


def test_signals_are_heard_after_one_whose_callback_failed() -> None:
    """A daemon whose reload fails must end on SIGTERM."""
    calls: list[str] = []

    def fail(name: str) -> None:
        calls.append(name)
        raise RuntimeError(name)

    with stopping_on_signals(lambda: fail("stop"), lambda: fail("reload")):
        for number, told in ((signal.SIGHUP, ["reload"]), (signal.SIGTERM, ["reload", "stop"])):
            os.kill(os.getpid(), number)
            wait_until(lambda: calls == told, f"{number.name} is heard")  # noqa: B023


def test_a_token_may_be_set_while_the_same_thread_waits_on_it() -> None:
    """D16: by a signal handler, hundreds of times; a `threading.Event` blocks for ever."""
    tokens = [StopToken() for _ in range(500)]
    now = [tokens[0]]
    before = signal.signal(signal.SIGUSR1, lambda _number, _frame: now[0].set())
    me, ending = threading.main_thread().ident, threading.Event()
    assert me is not None

    def shoot() -> None:
        while not ending.is_set():
            signal.pthread_kill(me, signal.SIGUSR1)
            time.sleep(0)  # give way: the main thread is to wait, and be hit while it does

    shooter = threading.Thread(target=shoot)
    shooter.start()
    try:
        for token in tokens:
            now[0] = token
            assert token.wait(60)
    finally:
        ending.set()
        shooter.join()
        signal.signal(signal.SIGUSR1, before)


def test_a_token_wakes_all_and_is_never_taken_back() -> None:
    stop = StopToken()
    woken: list[bool] = []
    threads = [threading.Thread(target=lambda: woken.append(stop.wait(60))) for _ in range(20)]
    told: list[str] = []
    stop.on_set(lambda: told.append("before"))
    for thread in threads:
        thread.start()
    stop.set()
    stop.set()
    for thread in threads:
        thread.join(60)
    assert woken == [True] * 20
    stop.on_set(lambda: told.append("after"))
    assert told == ["before", "after"]
    assert stop.wait(0)
    assert StopToken().wait(0) is False


def test_a_reload_that_comes_while_it_stops_disturbs_nothing() -> None:
    """D4: SIGHUP while a lane is in the detector and the stop waits for it."""
    detecting, opening = Gate(), Gate()
    detecting.close()
    app = build(config_of(STREET), Seams(open_detector=lambda _, o: Detector(o, opening, detecting, StopToken())))
    with stopping_on_signals(app.request_stop, app.reload):
        app.start()
        detecting.wait_for_one()
        stopper = threading.Thread(target=app.stop)
        stopper.start()
        wait_until(lambda: app.is_stopping, "it stops")
        os.kill(os.getpid(), signal.SIGHUP)
        detecting.open()
        stopper.join(60)
    assert not stopper.is_alive()
    assert app.stop() == 0
    own = {"publisher", "monitor", "changes", "watchdog"}
    wait_until(lambda: not own & {thread.name for thread in threading.enumerate()}, "no thread is left")


@pytest.mark.parametrize("pause_s", [0.0, 0.001])
def test_a_storm_of_reloads_is_survived(tmp_path: Path, pause_s: float) -> None:
    """A7: a loop in a deploy script. It reads the file at least once after the last, and ends well on SIGTERM."""
    model = {"path": "none", "backend": "fake"}
    with Lookout(tmp_path, {"sources": [_STREET], "model": model}) as lookout:
        wait_until(lambda: '"event": "ready"' in lookout.log(), "it is ready")
        for _ in range(500):
            lookout.process.send_signal(signal.SIGHUP)
            if pause_s:
                threading.Event().wait(pause_s)
        more = lookout.config.read_text().replace("street", "avenue")
        lookout.config.write_text(more)
        lookout.process.send_signal(signal.SIGHUP)
        wait_until(lambda: '"added": ["avenue"]' in lookout.log(), "the last is heard")
        assert lookout.process.poll() is None
        assert lookout.stop(60) == 0
        assert "Traceback" not in lookout.log()


def _start(folder: Path, config: Path | str) -> subprocess.Popen[bytes]:
    return _start_command(folder, "run", "-c", str(config))


def _start_command(folder: Path, *words: str) -> subprocess.Popen[bytes]:
    with (folder / "log").open("wb") as log:
        return subprocess.Popen([sys.executable, "-m", "daemon", *words], cwd=ROOT, stderr=log, stdout=log)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("where", ["configuration", "model"])
def test_a_signal_before_it_is_ready_ends_it_well(tmp_path: Path, number: signal.Signals, where: str) -> None:
    """A disk, or a library, does not answer."""
    model, config = tmp_path / "model.onnx", tmp_path / "config.yaml"
    shutil.copyfile(DEMO_MODEL, model)
    config.write_text(
        f"model: {{path: {model}}}\nsources: [{{id: street, type: synthetic}}]\n"
        "publisher: {endpoint: 'tcp://127.0.0.1:*'}\n"
    )
    with closing(HeldFile(config if where == "configuration" else model)) as held:
        process = _start(tmp_path, config)
        try:
            wait_until(lambda: held.is_wanted, f"it reads the {where}")
            process.send_signal(number)
            assert process.wait(60) == 0
        finally:
            process.kill()
            process.wait()
    assert "Traceback" not in (tmp_path / "log").read_text()


def test_a_signal_while_it_is_being_loaded_ends_it_well(tmp_path: Path) -> None:
    """Whatever library it is loading, there is nothing to clean up yet."""
    config = tmp_path / "config.yaml"
    config.write_text(
        f"model: {{path: {DEMO_MODEL}}}\nsources: [{{id: street, type: synthetic}}]\n"
        "publisher: {endpoint: 'tcp://127.0.0.1:*'}\n"
    )
    for library in ("msgspec", "numpy", "zmq", "cv2", "onnxruntime"):  # which Python itself never has built in
        process = _start(tmp_path, config)
        try:
            wait_until(lambda: library in Path(f"/proc/{process.pid}/maps").read_text(), f"{library} is loaded")  # noqa: B023
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0, library
        finally:
            process.kill()
            process.wait()
        assert "Traceback" not in (tmp_path / "log").read_text()


def test_a_stop_does_not_wait_for_the_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose first time on a machine takes longer than a service manager may wait."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "numba"))
    config = tmp_path / "config.yaml"
    config.write_text(
        f"model: {{path: {DEMO_MODEL}}}\nsources: [{{id: street, type: synthetic}}]\n"
        "publisher: {endpoint: 'tcp://127.0.0.1:*'}\ntracking: {enabled: true}\n"
    )
    process = _start(tmp_path, config)
    try:
        wait_until(lambda: "llvmlite" in Path(f"/proc/{process.pid}/maps").read_text(), "the compiler is loaded")
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
    log = (tmp_path / "log").read_text()
    assert ("tracking is compiled" in log, "Traceback" in log) == (False, False)


@pytest.mark.parametrize("library", ["msgspec", "numpy"])
def test_an_interrupt_while_a_command_is_being_loaded_says_nothing(tmp_path: Path, library: str) -> None:
    """A traceback of an import tells nobody anything."""
    process = _start_command(tmp_path, "watch", "--json", f"ipc://{tmp_path}/nobody")
    try:
        wait_until(lambda: library in Path(f"/proc/{process.pid}/maps").read_text(), f"{library} is loaded")
        process.send_signal(signal.SIGINT)
        assert process.wait(60) in (-signal.SIGINT, 130)
    finally:
        process.kill()
        process.wait()
    assert (tmp_path / "log").read_text() == ""


def test_the_fake_needs_no_model() -> None:
    """The tests of this folder rely on this."""
    app = build(config_of(STREET), Seams(open_detector=lambda _, options: FakeDetector(options)))
    assert app.stop() == 0
