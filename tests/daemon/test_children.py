"""Child processes: what they find, how their end is told, and those that end later than they are waited for."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from typing import Any

import psutil
import pytest

from daemon.config.http import DashboardConfig, HttpConfig
from daemon.config.root import LogConfig
from daemon.dashboard.process import PageOrder
from daemon.http.server import bind
from daemon.playback.process import PlaybackOrder
from daemon.system import children
from daemon.system.children import Child, prepare, reap, spawn
from tests.support.daemon import PATIENCE_S, ROOT, wait_until

_MODULE = "tests.support.born"
_ENDLESS = "threading.Event().wait()"


def _born(expression: str, **more: Any) -> tuple[Child, int]:
    """A process that evaluates this, and where its answer comes."""
    answer, told = os.pipe()
    try:
        return spawn(_MODULE, expression, [told], **more), answer
    finally:
        os.close(told)


def _answer(expression: str, **more: Any) -> Any:
    child, answer = _born(expression, **more)
    with os.fdopen(answer, "rb") as file:
        text = file.read()
    child.wait(PATIENCE_S)
    return json.loads(text)


def _endless() -> Child:
    child, answer = _born(_ENDLESS)
    os.close(answer)
    return child


def test_a_process_has_what_one_has_that_is_executed(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    prepare(_MODULE)
    monkeypatch.setenv("SINCE", "the template began \udcff")
    assert _answer("os.environ['SINCE']") == "the template began \udcff"
    assert _answer("[*os.environ]", environment={"ONLY": "this"}) == ["ONLY"]
    assert _answer("sys.argv[0]") == _MODULE
    assert _answer("threading.active_count()") == 1
    assert _answer("[os.get_inheritable(int(word)) for word in sys.argv[1:]]") == [False]
    own = 2  # the pipe, and the folder that is listed
    assert len(_answer("os.listdir('/proc/self/fd')")) == len((0, 1, 2)) + own
    assert _answer("[signal.getsignal(signal.SIGCHLD) == signal.SIG_DFL, signal.set_wakeup_fd(-1)]") == [True, -1]
    capfd.readouterr()
    _answer("print('said', file=sys.stderr)")
    assert capfd.readouterr().err == "said\n"


def test_stop_signals_are_left_to_the_daemon() -> None:
    for name in ("SIGTERM", "SIGINT", "SIGHUP"):
        assert _answer(f"os.kill(os.getpid(), signal.{name})") is None
    assert _answer("[*signal.pthread_sigmask(signal.SIG_BLOCK, [])]") == []


def test_the_system_shows_what_a_process_is() -> None:
    child = _endless()
    wait_until(lambda: psutil.Process(child.pid).cmdline()[:2] == ["lookout", _MODULE], "its title")
    assert psutil.Process(child.pid).name() == _MODULE[:15]
    child.kill()
    child.wait(PATIENCE_S)


@pytest.mark.parametrize(
    ("expression", "code"), [("7", 7), ("'done'", 0), ("1 / 0", 1), ("os.abort()", -signal.SIGABRT), ("os._exit(3)", 3)]
)
def test_an_end_is_told_to_all_that_wait(expression: str, code: int) -> None:
    child, answer = _born(expression)
    codes = list[int]()
    waiting = [threading.Thread(target=lambda: codes.append(child.wait(PATIENCE_S))) for _ in range(3)]
    for thread in waiting:
        thread.start()
    for thread in waiting:
        thread.join()
    assert codes == [code] * 3
    assert child.poll() == child.wait(0) == child.returncode == code
    child.kill()  # nothing happens
    os.close(answer)


def test_one_that_runs_is_not_waited_for_longer_than_asked() -> None:
    child = _endless()
    assert child.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        child.wait(0.01)
    child.kill()
    assert child.wait(PATIENCE_S) == -signal.SIGKILL


def test_a_module_that_cannot_be_imported_fails_alone(capfd: pytest.CaptureFixture[str]) -> None:
    """The template, in which something may be half loaded, ends with its last process."""
    lives = _endless()
    template = psutil.Process(lives.pid).parent()
    assert template
    child = spawn("tests.support.absent", None, [])
    assert child.wait(PATIENCE_S) == 1
    assert "No module named 'tests.support.absent'" in capfd.readouterr().err
    assert lives.poll() is None
    lives.kill()
    lives.wait(PATIENCE_S)
    wait_until(lambda: template.status() == psutil.STATUS_ZOMBIE, "the template has ended")
    assert _answer("1") == 1


def test_without_a_template_processes_end_and_the_next_has_another() -> None:
    """Nothing else tells of a process whose parent has ended."""
    first, second = _endless(), _endless()
    template = psutil.Process(first.pid).parent()
    assert template
    template.kill()
    assert [child.wait(PATIENCE_S) for child in (first, second)] == [-signal.SIGKILL] * 2
    wait_until(lambda: not psutil.pid_exists(first.pid), "it is gone")
    assert _answer("1") == 1


def test_a_template_that_does_not_answer_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be stopped, or an import may hang. What was forked from it ends with it."""
    lives = _endless()
    template = psutil.Process(lives.pid).parent()
    assert template
    template.suspend()
    with monkeypatch.context() as hasty:
        hasty.setattr(children, "_BEGIN_S", 0.1)
        with pytest.raises(OSError, match="it did not begin within"):
            _endless()
    assert lives.wait(PATIENCE_S) == -signal.SIGKILL
    assert _answer("1") == 1


def test_a_daemon_with_many_files_has_processes() -> None:
    """The template's socket has a number that is too large for select(2)."""
    code = f"""
import os, resource
from daemon.system.children import spawn
resource.setrlimit(resource.RLIMIT_NOFILE, (2048, max(2048, resource.getrlimit(resource.RLIMIT_NOFILE)[1])))
nowhere = [os.open(os.devnull, os.O_WRONLY) for _ in range(1100)]
print(spawn("{_MODULE}", "5", nowhere[:1]).wait(60))
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout == "5\n", done.stderr


def test_there_is_no_process_where_the_system_gives_none() -> None:
    """The template stays, and so do its processes."""
    code = f"""
import os, psutil, resource
from daemon.system.children import spawn
nowhere = os.open(os.devnull, os.O_WRONLY)
lives = spawn("{_MODULE}", "{_ENDLESS}", [nowhere])
template = psutil.Process(lives.pid).parent()
limits, held = template.rlimit(resource.RLIMIT_NOFILE), template.num_fds()
for free in (1, 4):
    template.rlimit(resource.RLIMIT_NOFILE, (held + free, limits[1]))
    try:
        spawn("{_MODULE}", "1", [nowhere])
    except OSError as error:
        print(error.strerror)
template.rlimit(resource.RLIMIT_NOFILE, limits)
print(spawn("{_MODULE}", "5", [nowhere]).wait(60), lives.poll())
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout == 2 * "Too many open files\n" + "5 None\n", done.stderr


def test_nothing_is_left_of_a_daemon_that_was_killed() -> None:
    """Even of a process that does not answer."""
    code = f"""
from daemon.system.children import spawn
print(spawn("{_MODULE}", "{_ENDLESS}", [2]).pid, flush=True)
input()
"""
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout
        born = psutil.Process(int(parent.stdout.readline()))
        template = born.parent()
        assert template
        parent.kill()
    assert not psutil.wait_procs([born, template], PATIENCE_S)[1]


def _until_told() -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)


def test_the_page_of_a_daemon_that_ends_at_once_ends_well() -> None:
    """Ctrl-C comes while it starts: nobody hears its address any more."""
    mine, theirs = socket.socketpair()
    mine.close()
    with theirs:
        child = spawn("daemon.dashboard.main", PageOrder(DashboardConfig(port=0), [], LogConfig()), [theirs.fileno()])
    assert child.wait(PATIENCE_S) == 0


def test_the_api_of_recordings_of_a_daemon_that_ends_at_once_ends_well() -> None:
    mine, theirs = socket.socketpair()
    mine.close()
    order = PlaybackOrder(HttpConfig(enabled=True, port=0), [], LogConfig())
    with theirs, bind(order.http, "record") as port:
        child = spawn("daemon.playback.main", order, [theirs.fileno(), port.fileno()])
    assert child.wait(PATIENCE_S) == 0


def test_one_that_takes_long_is_reaped_when_it_ends() -> None:
    process = _until_told()
    assert process.stdin
    reap(process, 0)
    assert process.returncode is None
    process.stdin.close()
    wait_until(lambda: process.returncode is not None, "it is reaped")


def test_one_that_ends_is_waited_for() -> None:
    process = _until_told()
    assert process.stdin
    process.stdin.close()
    reap(process, 60)
    assert process.returncode is not None
