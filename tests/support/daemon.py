"""A Lookout process for tests: started from a configuration, watched over its socket, stopped by signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import psutil
import yaml

from lookout.client import Subscriber
from lookout.messages import Detections, Message, Status
from tests.support.ports import free_port
from tests.support.zygote import Started

ROOT = Path(__file__).resolve().parents[2]
DEMO_MODEL = ROOT / "models" / "demo.onnx"
PATIENCE_S = 180.0  # time limit of a test's wait: where ten processes share a core a daemon starts in a minute

_AT_A_TERMINAL = ["setsid", "--ctty", "env", "--default-signal=HUP"]  # even if tests run under nohup
Process = subprocess.Popen[bytes] | Started


class Lookout:
    """`lookout run` with `config`, by default with the demo model.

    Args:
        environment: added to this process's.
        files: limit of descriptors; this process's if None.
        tree: the code's folder.
        terminal: its controlling terminal; none if None.
        options: of `lookout run`.
    """

    def __init__(
        self,
        folder: Path,
        config: dict[str, object],
        environment: dict[str, str] | None = None,
        files: int | None = None,
        tree: Path = ROOT,
        terminal: int | None = None,
        options: Sequence[str] = (),
    ) -> None:
        publisher = {"endpoint": f"tcp://127.0.0.1:{free_port()}", **dict(config.pop("publisher", {}))}  # type: ignore[call-overload]
        self.endpoint = str(publisher["endpoint"])
        whole = {
            **({} if "models" in config else {"model": {"path": str(DEMO_MODEL), "threads": 1}}),
            "publisher": publisher,
            "log": {"format": "json"},
            **config,
        }
        self.config = folder / "config.yaml"
        self.config.write_text(yaml.safe_dump(whole))
        self._log = (folder / "log.jsonl").open("w+")
        words = ["run", "-c", str(self.config), *options]
        self._start = partial(self._fork, words)
        if environment or files is not None or terminal is not None or tree != ROOT:
            limit = [] if files is None else ["prlimit", f"--nofile={files}"]
            command = [*limit, sys.executable, "-m", "daemon", *words]
            self._start = partial(self._execute, command, terminal, tree, {**os.environ, **(environment or {})})
        self.restart()

    def restart(self) -> None:
        """Start it, again after it has ended."""
        self.process = self._start()
        self.inspect = psutil.Process(self.process.pid)

    def _fork(self, words: Sequence[str]) -> Process:
        with open(os.devnull, "r+") as nothing:
            return Started(words, (nothing.fileno(), nothing.fileno(), self._log.fileno()), str(ROOT))

    def _execute(
        self, command: Sequence[str], terminal: int | None, tree: Path, environment: Mapping[str, str]
    ) -> Process:
        stream = subprocess.DEVNULL if terminal is None else terminal
        return subprocess.Popen(
            command if terminal is None else [*_AT_A_TERMINAL, *command],
            stdin=stream,
            stdout=stream,
            stderr=self._log,
            cwd=tree,
            env=environment,
        )

    def subscribe(self, *kinds: str, sources: tuple[str, ...] = ()) -> Subscriber:
        return Subscriber(self.endpoint, kinds=kinds or ("detections", "status", "metrics"), sources=sources)

    def children(self, module: str) -> list[psutil.Process]:
        """Its processes that run this."""
        return children_of(self.process.pid, module)

    def log(self) -> str:
        self._log.flush()
        return Path(self._log.name).read_text()

    def stop(self, timeout_s: float = PATIENCE_S) -> int:
        """Send SIGTERM; returns the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout_s)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self._log.close()

    def __enter__(self) -> Lookout:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def halt(pid: int) -> None:
    """Stop a process by SIGSTOP, and wait until none of its threads goes on: a signal takes its time."""
    os.kill(pid, signal.SIGSTOP)

    def is_halted() -> bool:
        # The state stands behind the name, which may hold anything.
        rows = [file.read_text().rpartition(")")[2].split()[0] for file in Path(f"/proc/{pid}/task").glob("*/stat")]
        return {*rows} == {"T"}

    wait_until(is_halted, "it is halted")


def children_of(pid: int, module: str) -> list[psutil.Process]:
    """Processes of a daemon that run this."""
    found = []
    for row in psutil.Process(pid).children(recursive=True):
        with suppress(psutil.Error):  # it ends just now
            found += [row] if module in row.cmdline() else []
    return found


def wait_until(condition: Callable[[], Any], what: str, timeout_s: float = PATIENCE_S) -> None:
    """Wait until a condition holds.

    Raises:
        AssertionError: it does not hold in time.
    """
    until = monotonic() + timeout_s
    while not condition():
        assert monotonic() < until, f"{what}: not within {timeout_s:g} s"
        sleep(0.05)


def receive_until(
    subscriber: Subscriber, wanted: Callable[[Message], bool], timeout_s: float = PATIENCE_S
) -> list[Message]:
    """All messages up to the first that satisfies the condition, included."""
    messages: list[Message] = []
    until = monotonic() + timeout_s
    while monotonic() < until:
        message = subscriber.receive(0.2)
        if message is not None:
            messages.append(message)
            if wanted(message):
                return messages
    raise AssertionError(f"the message did not come in {timeout_s} s; the last of {len(messages)}: {messages[-3:]}")


def is_state(source: str, state: str) -> Callable[[Message], bool]:
    """A condition: a message reports a state of a source."""
    return lambda message: isinstance(message, Status) and message.source == source and message.state == state


def all_of(*wanted: Callable[[Message], bool]) -> Callable[[Message], bool]:
    """A condition: each of these has come, in any order."""
    left = list(wanted)

    def seen(message: Message) -> bool:
        left[:] = [one for one in left if not one(message)]
        return not left

    return seen


def has_seen(count: int, *sources: str) -> Callable[[Message], bool]:
    """A condition: so many frames of each source have come."""
    left = dict.fromkeys(sources, count)

    def seen(message: Message) -> bool:
        if isinstance(message, Detections) and message.source in left:
            left[message.source] -= 1
        return max(left.values()) <= 0

    return seen


def lost(messages: Iterable[Message], source: str) -> int:
    """Frames of a source that were lost on their way through the daemon, up to the last frame here.

    A busy machine drops frames as superseded, stale or late. They are not counted here.
    """
    *_, last = (message for message in messages if isinstance(message, Detections) and message.source == source)
    told = last.dropped.superseded + last.dropped.stale + last.dropped.late
    return max(0, last.seq - last.index - told)
