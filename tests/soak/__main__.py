"""`python -m tests.soak --minutes N`: breaks what is around a daemon, over and over, and looks at what is left.

Two drawn sources and two of a steady RTSP server must get on all the time as they do in a second daemon, which has no
others and no troubles: what a busy machine takes it takes from both. Two more sources come through a proxy and from a
server that break. A capture process that is killed or stopped takes the steady cameras with it: the time until they
are back is not judged, but back they must come. Objects are tracked, with rules, a classifier, a journal and
snapshots, and are seen on the page, which is another process.

At the end: how the steady ones got on, captured = published + dropped for each source, threads, descriptors and
processes as they were when everything had happened before, the least memory of the last third as that of the first, in
the daemon and in the page's process, a journal and snapshots within their limits, and no traceback in a log.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import signal
import socket
import sqlite3
import struct
import subprocess
import sys
import tempfile
from collections import defaultdict, deque
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from time import monotonic
from typing import Any

import httpx
import psutil
import yaml
from rich.console import Console
from rich.table import Table

from daemon.capture.processes.run import PROGRAM
from daemon.pipeline.drop_causes import CAUSES
from lookout.client import Subscriber
from lookout.messages import Detections, Metrics
from tests.support import clips
from tests.support.browsing import Dashboard
from tests.support.daemon import DEMO_MODEL, PATIENCE_S, ROOT, Lookout
from tests.support.models import endless_model
from tests.support.ports import free_port
from tests.support.proxy import Proxy
from tests.support.rtsp import RtspServer
from tests.support.websocket import ClosedError, WebSocketClient

_STEADY = {"street-0": 5.0, "street-1": 5.0, "steady-0": 8.0, "steady-1": 8.0}
_WINDOW_S = 6.0
_MOMENT_S = 2.0
_BEHIND_S = 1.2  # by which a steady source may fall behind the other daemon's in that time
_BEHIND = 0.05  # and in all, of the time
_TOKEN = "a-token-that-is-long-enough"  # noqa: S105 - of this test
_INTERVAL_S = 2.0
_OPEN_S = 5.0  # after which a model that hangs is given up
_STORM = 200  # signals
_LONG_S = 35.0  # that a capture process may be stopped: it is taken for stuck after 30 s
_RELOADED = ("reloaded",)
_REFUSED = ("reload refused",)
_LOG = Path("soak-failed.log")
_MAX_ROWS = 2000  # of the journal
_MAX_MIB = 4  # of snapshots
_RULES: list[list[dict[str, Any]]] = [
    [
        {
            "type": "zone",
            "name": "street",
            "polygons": [[[0, 0], [1, 0], [1, 1], [0, 1]]],
            "enter_s": 0,
            "dwell_s": [2],
        },
        {"type": "line", "name": "kerb", "points": [[x, 0], [x, 1]]},
    ]
    for x in (0.5, 0.4)
]
_LABELS = {"cpu": ["person", "car", "bus"], "fake": ["dark", "bright"]}  # of the model
_STEPPED_CLOCK = Path(__file__).parents[1] / "support" / "stepped_clock.c"
_COUNTED = (
    "added", "disabled", "reloads", "storms", "swaps", "hung", "killed", "stopped", "rules", "locked", "visits"
)  # fmt: skip
_WORDS = (
    "{added} sources added and removed, {disabled} disabled and enabled, {reloads} reloads, {storms} storms of "
    "signals, {swaps} swaps of the model, {hung} to one that hangs, {killed} capture processes killed, {stopped} times "
    "a process stopped, {rules} changes of rules, {locked} times a locked journal, {visits} visits of the page"
)


class Race:
    """How far the steady sources of two daemons have come, by the numbers of their frames.

    Who stops for a moment and catches up has lost nothing: of each moment the two seconds around it count, by the best
    in them.

    Attributes:
        seconds: in which both were looked at.
        worst: s by which each source fell behind the other daemon's in any so many seconds, at its own rate.
        worst_at: when those seconds ended.
        total: and in all.
    """

    def __init__(self, here: Subscriber, there: Subscriber) -> None:
        self._subscribers = here, there
        self._at = dict[str, int](), dict[str, int]()
        self._rows: deque[tuple[float, dict[str, float]]] = deque()
        self.seconds = 0.0
        self.worst = dict.fromkeys(_STEADY, 0.0)
        self.worst_at = dict.fromkeys(_STEADY, monotonic())
        self.total = dict.fromkeys(_STEADY, 0.0)

    def progress(self) -> dict[str, int]:
        """Of the daemon with troubles: the number of each steady source's latest frame."""
        return dict.fromkeys(_STEADY, -1) | self._at[0]

    def look(self, *, judge: bool) -> None:
        """Take in what has come; a look that is not judged begins anew."""
        for subscriber, at in zip(self._subscribers, self._at):
            while (message := subscriber.receive(0)) is not None:
                if isinstance(message, Detections):
                    at[message.source] = message.seq
        here, there = self._at
        now = monotonic()
        if not judge or len(here) < len(_STEADY) or len(there) < len(_STEADY):
            self._rows.clear()
            return
        behind = {source: (there[source] - here[source]) / fps for source, fps in _STEADY.items()}
        if self._rows:
            then, last = self._rows[-1]
            self.seconds += now - then
            for source in _STEADY:
                self.total[source] += behind[source] - last[source]
        self._rows.append((now, behind))
        since = now - _WINDOW_S - _MOMENT_S
        while len(self._rows) > 1 and self._rows[1][0] <= since:  # where looks were few, the one before
            self._rows.popleft()
        if self._rows[0][0] > since:
            return
        before = [row for at, row in self._rows if at <= now - _WINDOW_S]
        lately = [row for at, row in self._rows if at > now - _MOMENT_S]
        for source in _STEADY:
            grown = min(row[source] for row in lately) - min(row[source] for row in before)
            if grown > self.worst[source]:
                self.worst[source], self.worst_at[source] = grown, now


@dataclass
class Used:
    """Of the daemon."""

    threads: int
    files: int
    processes: int


class Soak:
    """One daemon and everything around it."""

    def __init__(self, folder: Path, stack: ExitStack, seed: int, minutes: float, backend: str) -> None:
        self.chance = random.Random(seed)
        clip = clips.pattern(folder / "clip.mkv", seconds=round(60 * minutes) + 300, fps=8)  # not to its end
        self.steady = RtspServer({"0": clip, "1": clip})
        stack.callback(self.steady.kill)
        self.victim = RtspServer({"0": clip, "1": clip})
        stack.callback(self.victim.kill)
        self.proxy = Proxy(self.steady.port)
        stack.callback(self.proxy.close)
        drawn = {"type": "synthetic", "width": 320, "height": 180, "fps": 5}
        broken = {"type": "av", "read_timeout_s": 2}
        steady: list[dict[str, Any]] = [
            *({"id": f"street-{n}", "seed": n, **drawn} for n in (0, 1)),
            *({"id": f"steady-{n}", "type": "av", "url": self.steady.url(str(n))} for n in (0, 1)),
        ]
        self.sources = [
            *(row | {"rules": _RULES[0]} for row in steady),
            {"id": "proxied", "url": f"rtsp://127.0.0.1:{self.proxy.port}/0", **broken},
            {"id": "victim", "url": self.victim.url("0"), **broken},
            {"id": "nowhere", "url": "rtsp://camera.invalid/0", **broken},
        ]
        self.files = folder / "frames.jsonl"
        self.journal, self.snapshots = folder / "journal.sqlite", folder / "snapshots"
        port = free_port()
        self.endless = endless_model(folder / "endless.onnx") if backend == "cpu" else None
        self.model: dict[str, object] = {"path": str(DEMO_MODEL), "threads": 1, "backend": backend}
        model = self.model | {"open_timeout_s": _OPEN_S}
        config: dict[str, object] = {
            "sources": self.sources,
            "model": model,
            "http": {"enabled": True, "port": port, "token": _TOKEN},
            "monitor": {"interval_s": _INTERVAL_S, "frames_file": str(self.files)},
            "reconnect": {"initial_s": 0.2, "max_s": 1},
            "tracking": {"enabled": True},
            "classifiers": [
                {
                    "name": "kind",
                    "path": str(ROOT / "tests/data/heads/yolov8-cls.onnx"),
                    "for": _LABELS[backend],
                    "min_px": 8,
                    "every_s": 1.0,
                    "attempts": 100,
                }
            ],
            "events": {
                "journal": str(self.journal),
                "max_rows": _MAX_ROWS,
                "snapshots": {"folder": str(self.snapshots), "max_mib": _MAX_MIB, "min_free_mib": 0},
            },
        }
        self.clock = folder / "clock"
        self.clock.write_bytes(bytes(8))
        preload = folder / "stepped_clock.so"
        subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "-o", str(preload), str(_STEPPED_CLOCK)], check=True)
        stepped = {"LD_PRELOAD": str(preload), "STEPPED_CLOCK": str(self.clock)}
        self.lookout = stack.enter_context(Lookout(folder, config, stepped))
        (folder / "control").mkdir()
        self.control = stack.enter_context(Lookout(folder / "control", {"sources": steady, "model": self.model}))
        here, there = (
            stack.enter_context(Subscriber(daemon.endpoint, sources=tuple(_STEADY), high_water_mark=100_000))
            for daemon in (self.lookout, self.control)
        )
        self.race = Race(here, there)
        self.api = stack.enter_context(
            httpx.Client(base_url=f"http://127.0.0.1:{port}", headers={"Authorization": f"Bearer {_TOKEN}"}, timeout=20)
        )
        self.ports = int(self.lookout.endpoint.rpartition(":")[2]), port
        here_too = {
            "name": "here",
            "endpoint": self.lookout.endpoint,
            "http": f"http://127.0.0.1:{port}",
            "token": _TOKEN,
        }
        self.page = stack.enter_context(closing(Dashboard(folder, [here_too], roles={})))
        self.metrics = stack.enter_context(self.lookout.subscribe("metrics"))
        command = [sys.executable, "-m", "daemon", "watch", self.lookout.endpoint, "--json"]
        self.reader = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        stack.callback(self._end_reader)
        self.count = dict.fromkeys(_COUNTED, 0)
        self.lost: list[str] = []  # steady sources that did not come back
        self.has_time = minutes > 5  # for troubles that take half a minute
        self.diary: list[tuple[float, str]] = []  # when each trouble began
        self.readings = defaultdict[str, list[int]](list)  # RSS of each part after each trouble
        self.last: Metrics | None = None

    def _end_reader(self) -> None:
        self.reader.send_signal(signal.SIGCONT)
        self.reader.kill()
        self.reader.wait()

    def look(self, seconds: float, *, judge: bool = True) -> None:
        """Let time pass; note how far healthy sources have come."""
        until = monotonic() + seconds
        while monotonic() < until:
            message = self.metrics.receive(max(0.0, min(0.2, until - monotonic())))
            if isinstance(message, Metrics):
                self.last = message
            self.race.look(judge=judge)

    def begin(self, trouble: Callable[[], None]) -> None:
        """One more, and a line in the diary."""
        self.diary.append((monotonic(), trouble.__name__))
        trouble()

    def used(self) -> Used:
        """The least of some looks, over the time in which the daemon tidies up once."""
        rows = []
        for _ in range(40):
            inspect = self.lookout.inspect
            rows.append((inspect.num_threads(), inspect.num_fds(), len(inspect.children(recursive=True))))
            self.look(0.3, judge=False)
        return Used(*map(min, zip(*rows)))

    def rows(self) -> int:
        """Events in the journal."""
        with closing(sqlite3.connect(self.journal)) as journal:
            return int(journal.execute("SELECT count(*) FROM events").fetchone()[0])

    def snapshot_bytes(self) -> int:
        return sum(path.stat().st_size for path in self.snapshots.rglob("*") if path.is_file())

    def recover(self) -> None:
        """Until every steady source gets on again."""
        since = self.race.progress()
        until = monotonic() + PATIENCE_S
        while late := [source for source, seq in self.race.progress().items() if seq < since[source] + 8]:
            if monotonic() > until:
                self.lost += late
                return
            self.look(0.2, judge=False)

    def _workers(self) -> list[psutil.Process]:
        """Its capture processes."""
        return self.lookout.children(PROGRAM)

    def read(self) -> None:
        """Note the memory of each part."""
        parts = {"daemon": self.lookout.inspect, "page": psutil.Process(self.page.process.pid)}
        for name, process in parts.items():
            self.readings[name].append(process.memory_info().rss)

    def _worker(self) -> psutil.Process | None:
        workers = self._workers()
        return self.chance.choice(workers) if workers else None

    def _wait_for_another(self, gone: psutil.Process) -> None:
        """In place of a capture process; what that one sent may still come meanwhile."""
        until = monotonic() + PATIENCE_S
        while monotonic() < until and {row.pid for row in self._workers()} <= {gone.pid}:
            self.look(0.2, judge=False)

    def _wait_for(self, events: tuple[str, ...], before: int) -> None:
        """A line more of any of these in the log."""
        until = monotonic() + PATIENCE_S
        while self._told(events) == before and monotonic() < until:
            self.look(0.1)

    def _told(self, events: tuple[str, ...]) -> int:
        log = self.lookout.log()
        return sum(log.count(f'"event": "{event}') for event in events)

    def _edit(self, **more: object) -> None:
        """Of the configuration, and tell the daemon."""
        whole = yaml.safe_load(self.lookout.config.read_text()) | more
        self.lookout.config.write_text(yaml.safe_dump(whole))
        self.lookout.process.send_signal(signal.SIGHUP)

    # --- what goes wrong -------------------------------------------------------------------------------------------

    def kill_server(self) -> None:
        self.victim.kill()
        self.look(self.chance.uniform(1, 3))
        self.victim.start()

    def freeze_server(self) -> None:
        self.victim.freeze()
        self.look(self.chance.uniform(2, 5))
        self.victim.kill()
        self.victim.start()

    def cut_network(self) -> None:
        self.proxy.cut()
        self.look(1)

    def corrupt_network(self) -> None:
        self.proxy.corrupt = 0.3
        self.look(2)
        self.proxy.corrupt = 0.0

    def delay_network(self) -> None:
        self.proxy.delay_s = 0.8
        self.look(2)
        self.proxy.delay_s = 0.0

    def drop_network(self) -> None:
        self.proxy.silent = True
        self.look(3)
        self.proxy.silent = False

    def fill_disk(self) -> None:
        """No file of the daemon's may grow: its writes fail as on a full disk."""
        pid, (_, most) = self.lookout.process.pid, resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (1, most))
        self.look(3)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (most, most))

    def step_clock(self) -> None:
        """As a machine does that finds a time server, or loses its battery."""
        for offset in (7200, -86400, 0):
            with self.clock.open("r+b") as file:  # written in place: the daemon has it mapped
                file.write(struct.pack("=q", offset))
            self.look(1)

    def exhaust_files(self) -> None:
        """No descriptor more than there are, while a source connects anew and peers come."""
        pid = self.lookout.process.pid
        soft, most = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (self.lookout.inspect.num_fds(), most))
        self.proxy.cut()
        for port in self.ports:
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1) as peer:
                peer.sendall(b"GET /live HTTP/1.1\r\n\r\n")
        self.look(3)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, most))

    def stop_subscriber(self) -> None:
        self.reader.send_signal(signal.SIGSTOP)
        self.look(3)
        self.reader.send_signal(signal.SIGCONT)

    def add_and_remove(self) -> None:
        """Of the drawn kind, ten at once."""
        ids = [f"guest-{number}" for number in range(10)]
        guest = {"type": "synthetic", "width": 64, "height": 64, "fps": 2}
        for id in ids:
            answer = self.api.post("/api/v1/sources", json={"id": id, **guest})
            assert answer.status_code == 201, answer.text
        self.look(0.5)
        for id in ids:
            assert self.api.delete(f"/api/v1/sources/{id}").status_code == 204
        self.count["added"] += len(ids)

    def reload(self) -> None:
        """The victim looks elsewhere, and back."""
        for path in ("1", "0"):
            rows = [row | {"url": self.victim.url(path)} if row["id"] == "victim" else row for row in self.sources]
            before = self._told(_RELOADED)
            self._edit(sources=rows)
            self._wait_for(_RELOADED, before)
            self.count["reloads"] += 1

    def disable_and_enable(self) -> None:
        """The victim, by HTTP, once more than it takes, and back."""
        victim = next(row for row in self.sources if row["id"] == "victim")
        body = victim | {"type": "av", "url": self.victim.url("0")}
        for enabled in (False, False, True):
            answer = self.api.put("/api/v1/sources/victim", json=body | {"enabled": enabled})
            assert answer.status_code == 200, answer.text
            self.look(self.chance.uniform(0, 0.5))
        self.count["disabled"] += 1

    def storm(self) -> None:
        """Signals a millisecond apart."""
        for _ in range(_STORM):
            self.lookout.process.send_signal(signal.SIGHUP)
            self.look(0.001)
        self.count["storms"] += 1

    def swap_model(self) -> None:
        """To the same with another confidence, and back."""
        for confidence in (0.3, 0.25):
            before = self._told(_RELOADED)
            self._edit(model=self.model | {"open_timeout_s": _OPEN_S, "confidence": confidence})
            self._wait_for(_RELOADED, before)
            self.count["swaps"] += 1

    def swap_to_a_model_that_hangs(self) -> None:
        """A source is added meanwhile."""
        if not self.endless:
            return
        before = self._told(_REFUSED)
        self._edit(model=self.model | {"open_timeout_s": _OPEN_S, "path": str(self.endless)})
        self.add_and_remove()
        self._wait_for(_REFUSED, before)
        self._edit(model=self.model | {"open_timeout_s": _OPEN_S})
        self.count["hung"] += 1

    def kill_worker(self) -> None:
        if worker := self._worker():
            worker.kill()
            self._wait_for_another(worker)
            self.recover()
            self.count["killed"] += 1

    def stop_worker(self) -> None:
        """For a moment, or until it is taken for stuck."""
        if worker := self._worker():
            long = self.has_time and self.chance.random() < 0.2
            worker.suspend()
            self.look(_LONG_S if long else self.chance.uniform(0.5, 3), judge=False)
            try:
                worker.resume()
            except psutil.Error:  # it was taken for stuck
                self._wait_for_another(worker)
            self.recover()
            self.count["stopped"] += 1

    def stop_daemon(self) -> None:
        self.lookout.process.send_signal(signal.SIGSTOP)
        self.look(self.chance.uniform(0.5, 3), judge=False)
        self.lookout.process.send_signal(signal.SIGCONT)
        self.recover()
        self.count["stopped"] += 1

    def change_rules(self) -> None:
        """A line lies elsewhere, and back."""
        for rules in reversed(_RULES):
            rows = [row | {"rules": rules} if "rules" in row else row for row in self.sources]
            before = self._told(_RELOADED)
            self._edit(sources=rows)
            self._wait_for(_RELOADED, before)
            self.count["rules"] += 1

    def lock_journal(self) -> None:
        """Somebody reads it with a tool that locks it."""
        with closing(sqlite3.connect(self.journal, timeout=5)) as other:
            with suppress(sqlite3.Error):
                other.execute("BEGIN EXCLUSIVE")
            self.look(self.chance.uniform(1, 3))
            other.rollback()
        self.count["locked"] += 1

    def visit_page(self) -> None:
        """Some look at the feed and at live video, and are gone without a word."""
        with ExitStack() as stack:
            for path in ("/api/feed", "/api/live/here/street-0", "/api/live/here/steady-0"):
                with suppress(ClosedError, OSError):  # the daemon is away just now
                    stack.enter_context(WebSocketClient(self.page.port, path))
            self.look(self.chance.uniform(0.5, 3))
        self.count["visits"] += 1

    def flood(self) -> None:
        """Peers that talk nonsense to both sockets."""
        for port in self.ports:
            for _ in range(100):
                with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=2) as peer:
                    peer.sendall(self.chance.randbytes(100))

    @property
    def troubles(self) -> list[Callable[[], None]]:
        return [
            self.kill_server, self.freeze_server, self.cut_network, self.corrupt_network, self.delay_network,
            self.drop_network, self.fill_disk, self.step_clock, self.exhaust_files, self.stop_subscriber,
            self.add_and_remove, self.reload, self.flood, self.disable_and_enable, self.storm, self.swap_model,
            self.swap_to_a_model_that_hangs, self.kill_worker, self.stop_worker, self.stop_daemon,
            self.change_rules, self.lock_journal, self.visit_page,
        ]  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--backend", choices=["cpu", "fake"], default="cpu", help="fake takes no time for a frame")
    args = parser.parse_args()
    os.environ.setdefault("NUMBA_CACHE_DIR", str(ROOT / ".pytest_cache" / "numba"))  # as the tests, see conftest.py
    console = Console()
    with tempfile.TemporaryDirectory(prefix="lookout-soak-") as folder, ExitStack() as stack:
        soak = Soak(Path(folder), stack, args.seed, args.minutes, args.backend)
        began = monotonic()
        soak.look(8, judge=False)
        # Libraries' buffers grow to the worst that they have seen, which is peers by the thousand, and models.
        part = args.minutes / 5
        before_that = soak.troubles * (2 if part >= 1 else 1) + [soak.swap_model] * (10 if soak.has_time else 0)
        for trouble in [*before_that, *[soak.flood] * 40]:
            soak.begin(trouble)
        soak.look(8, judge=False)
        before = soak.used()
        # In five minutes 200 sources are added and removed, and 20 reloads done; the rest is left to chance.
        due = [soak.add_and_remove] * round(20 * part) + [soak.reload] * round(10 * part)
        due += soak.troubles * max(1, round(2 * part))
        soak.chance.shuffle(due)
        # What went before counts as time of the soak, but of a short one it leaves a quarter.
        start = monotonic()
        until = max(began + 60 * args.minutes - 15, start + 15 * args.minutes)
        while monotonic() < until or (due and monotonic() < until + 60 * args.minutes / 4):
            soak.begin(due.pop() if due else soak.chance.choice(soak.troubles))
            soak.look(soak.chance.uniform(0.1, 0.6))
            soak.read()
        soak.look(10)
        soak.recover()
        after = soak.used()
        problems = _problems(soak, before, after) + _grown(soak) + _of_events(soak)
        code = soak.lookout.stop()
        if code:
            problems.append(f"exit code {code}")
        logs = soak.lookout.log() + soak.page.log()
        problems += [line for line in logs.splitlines() if "Traceback" in line][:3]
        _say(console, soak, before, after, monotonic() - began)
        if problems:
            _LOG.write_text(soak.lookout.log())
            problems.append(f"the daemon's log is kept in {_LOG}")
        for problem in problems:
            console.print(problem, style="red")
    return 1 if problems else 0


def _problems(soak: Soak, before: Used, after: Used) -> list[str]:
    metrics = soak.last
    if metrics is None:
        return ["no metrics came"]
    found = _fallen_behind(soak.race) + [f"{source} did not come back" for source in soak.lost]
    for source, row in metrics.sources.items():
        dropped = sum(getattr(row.dropped, cause) for cause in CAUSES)
        if row.captured != row.published + dropped + row.in_flight:
            found.append(f"{source}: {row.captured} captured, {row.published} published, {dropped} dropped")
        if row.in_flight > 4:
            found.append(f"{source}: {row.in_flight} frames are nowhere")
    if set(metrics.sources) != {str(row["id"]) for row in soak.sources}:
        found.append(f"sources are {sorted(metrics.sources)}")
    for source in ("proxied", "victim"):
        if metrics.sources[source].state != "up":
            rows = [line for line in soak.lookout.log().splitlines() if f'"source": "{source}"' in line]
            found += [f"{source} has not come back: {metrics.sources[source].state}", *rows[-20:]]
    if after.threads > before.threads:
        found.append(f"threads went from {before.threads} to {after.threads}")
    if after.files > before.files:
        found.append(f"descriptors went from {before.files} to {after.files}")
    if after.processes > before.processes:
        found.append(f"processes went from {before.processes} to {after.processes}")
    return found


def _thirds(readings: list[int]) -> tuple[int, int]:
    """The least memory of the first third and of the last, bytes. Each swap leaves other holes in the heap, some MiB
    more or less. What leaks is there at the best of moments."""
    third = len(readings) // 3
    return min(readings[: third + 1]), min(readings[-third - 1 :])


def _grown(soak: Soak) -> list[str]:
    thirds = {name: _thirds(readings) for name, readings in soak.readings.items()}
    return [
        f"memory of the {name} grew from {first >> 20} to {last >> 20} MiB"
        for name, (first, last) in thirds.items()
        if last > first + max(0.03 * first, 5 << 20)
    ]


def _of_events(soak: Soak) -> list[str]:
    """What is wrong with what tracks and rules have found."""
    found, rows, snapshots = [], soak.rows(), soak.snapshot_bytes()
    if not rows or not snapshots:
        found.append(f"{rows} events are in the journal, and {snapshots} bytes of snapshots are kept")
    if rows > _MAX_ROWS * 1.1 + 100:
        found.append(f"the journal has {rows} events")
    if snapshots > (_MAX_MIB + 1) << 20:
        found.append(f"snapshots take {snapshots >> 20} MiB")
    looks = soak.last.classifiers["kind"] if soak.last else None
    if looks is None or not looks.classified:
        found.append("nothing was classified")
    return found


def _fallen_behind(race: Race) -> list[str]:
    if race.seconds < _WINDOW_S:
        return ["healthy sources were not looked at"]
    there = "behind that of a daemon without troubles"
    return [
        *(f"{source} fell {s:.1f} s {there} in {_WINDOW_S:g} s" for source, s in race.worst.items() if s > _BEHIND_S),
        *(
            f"{source} fell {s:.1f} s {there} in {race.seconds:.0f} s"
            for source, s in race.total.items()
            if s > max(_BEHIND_S, _BEHIND * race.seconds)
        ),
    ]


def _say(console: Console, soak: Soak, before: Used, after: Used, seconds: float) -> None:
    table = Table("", "after all had happened", "at the end")
    table.add_row("threads", str(before.threads), str(after.threads))
    table.add_row("descriptors", str(before.files), str(after.files))
    table.add_row("processes of its own", str(before.processes), str(after.processes))
    console.print(table)
    for source, behind in soak.race.worst.items():
        total = f"{soak.race.total[source]:.1f} s in {soak.race.seconds:.0f} s"
        console.print(f"{source}: {behind:.1f} s behind the other daemon's in its worst {_WINDOW_S:g} s, {total}")
        if behind > _BEHIND_S:
            console.print(f"  after {_troubles_before(soak, soak.race.worst_at[source])}")
    for name, readings in soak.readings.items():
        first, last = _thirds(readings)
        size = len(readings)
        sixths = [readings[part * size // 6 : (part + 1) * size // 6] for part in range(6)]
        ranges = [f"{min(part) / (1 << 20):.0f} to {max(part) / (1 << 20):.0f}" for part in sixths if part]
        least = f"least {first / (1 << 20):.1f} MiB in the first third, {last / (1 << 20):.1f} in the last"
        console.print(f"RSS of the {name} in each sixth, MiB: {', '.join(ranges)}; {least}")
    events = f"{soak.rows()} events in {soak.journal.stat().st_size >> 10} KiB of journal"
    looks = soak.last.classifiers["kind"].classified if soak.last else 0
    console.print(f"{events}, {soak.snapshot_bytes() >> 10} KiB of snapshots, {looks} looks of the classifier")
    console.print(f"{seconds / 60:.1f} minutes, {len(soak.diary)} troubles, among them: " + _WORDS.format(**soak.count))


def _troubles_before(soak: Soak, moment: float) -> str:
    """The last few, and how long before they began."""
    rows = [f"{name} {moment - at:.0f} s before" for at, name in soak.diary if at <= moment]
    return f"{', '.join(rows[-4:])} {datetime.now(timezone.utc) - timedelta(seconds=monotonic() - moment):%H:%M:%S}"


if __name__ == "__main__":
    sys.exit(main())
