"""A whole daemon in this process, with real workers and sockets, whose every library may be held; and what must be so
when it has ended."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec
import psutil

from daemon.build import build
from daemon.capture.processes.run import PROGRAM
from daemon.config.events import EventsConfig
from daemon.config.model import ClassifierConfig, ModelConfig
from daemon.config.publisher import PublisherConfig
from daemon.config.recording import RecordConfig, StoreConfig
from daemon.config.root import BoardConfig, Config, MonitorConfig
from daemon.config.sources import (
    AvConfig,
    ReconnectConfig,
    SourceConfig,
    SourceTracking,
    SyntheticConfig,
    TrackingConfig,
)
from daemon.errors import LookoutError
from daemon.fleet.member import CoordinatorAccess
from daemon.pipeline.drop_causes import CAUSES
from daemon.pipeline.ledger import Counts
from daemon.redact import Url
from daemon.rule_config import ObjectConfig, RuleConfig
from daemon.seams import Seams
from daemon.system.children import prepare
from daemon.system.signals import stopping_on_signals
from daemon.system.stop_token import StopToken
from daemon.system.time_limits import Limits
from detectors.factory import Backend
from detectors.port import DetectorError, Options
from lookout.client import Subscriber
from lookout.messages import Detections, Event, Status
from tests.lifetimes.event_account import EventAccount
from tests.lifetimes.gate import Gate
from tests.lifetimes.journal_disk import JournalDisk
from tests.lifetimes.parts import Detector, Maker, open_probe

PATIENCE_S = float(os.environ.get("LOOKOUT_PATIENCE_S", "180"))
_POLL_S, _MAX_POLL_S = 0.002, 0.03
_SHARED = ("lib", "cam")  # sources at which both of two models look
Analysis = Literal["none", "here", "apart"]
"""Whether the sources of this process have rules: none, those that lanes evaluate, or those of a process of their own.
With rules there are a journal and a classifier, too."""
LIMITS = Limits(stop=4.0, remove=3.0, settle=1.0, worker_exit=10.0, worker_pause=0.02, worker_idle=2.0, close=20.0)


@dataclass(frozen=True)
class Resources:
    """What a process holds.

    Attributes:
        maps: of shared memory.
    """

    threads: frozenset[str]
    files: int
    children: frozenset[int]
    maps: int

    @classmethod
    def now(cls) -> Resources:
        me = psutil.Process()
        maps = sum("/memfd:pictures" in line for line in Path("/proc/self/maps").read_text().splitlines())
        return cls(running_threads(), me.num_fds(), frozenset(child.pid for child in me.children(recursive=True)), maps)


def running_threads() -> frozenset[str]:
    """Of this process, by name and number."""
    return frozenset(f"{thread.name}#{thread.ident}" for thread in threading.enumerate())


class Listener(threading.Thread):
    """A subscriber that reads all messages, and checks their order and numbers."""

    def __init__(self, endpoint: str) -> None:
        super().__init__(name="listener", daemon=True)
        self._subscriber = Subscriber(endpoint, kinds=("detections", "status", "events"), high_water_mark=1_000_000)
        self._ending = threading.Event()
        self.seqs: dict[str, list[int]] = defaultdict(list)
        self.seqs_of_model: dict[tuple[str, str], list[int]] = defaultdict(list)
        self.states: dict[str, list[str]] = defaultdict(list)
        self.events: list[Event] = []
        self.rules: dict[str, str | None] = {}  # of the last event that begins something, by source
        self.start()

    def run(self) -> None:
        with self._subscriber:
            while True:
                message = self._subscriber.receive(0.05)
                if isinstance(message, Detections):
                    self.seqs[message.source].append(message.seq)
                    self.seqs_of_model[message.source, message.model.id or ""].append(message.seq)
                elif isinstance(message, Status):
                    self.states[message.source].append(message.state)
                elif isinstance(message, Event):
                    self.events.append(message)
                    if message.phase == "appeared":
                        self.rules[message.source] = message.rule
                elif message is None and self._ending.is_set():
                    return

    def close(self) -> dict[str, int]:
        """Wait for the end of the messages; returns those lost on the way here."""
        self._ending.set()
        self.join(PATIENCE_S)
        return self._subscriber.lost


class Rig:
    """One daemon and what a test needs to hold it, ask it and judge it.

    Args:
        folder: of its files.
        workers: there is a source in a capture process.
        analysis: see `Analysis`.
        doors: of the daemon's fleet, which has the sources; None where the configuration has them.
        several: there are two models, `first` and `second`, which both look at two of the sources.
        store: where a source of a capture process, `rec`, is recorded.

    Attributes:
        app: the daemon; None before `start`.
        file: what the configuration file would say.
        rows: the sources at first.
    """

    parts = frozenset(
        {"watchdog", "publisher", "monitor", "changes", "gpu-reader", "lane", "packets", "capture-workers"}
        | {"rules", "journal", "classifier-light", "lane-first", "lane-second", "store-main", "record-streams"}
    )
    """Threads of a daemon's parts."""

    def __init__(
        self,
        folder: Path,
        *,
        workers: bool = True,
        analysis: Analysis = "none",
        mode: str = "live",
        doors: CoordinatorAccess | None = None,
        several: bool = False,
        store: Path | None = None,
        **more: Any,
    ) -> None:
        self.folder = folder
        self.opening, self.detecting, self.making, self.reading = Gate(), Gate(), Gate(), Gate()
        self.library, self.probe, self.model, self.looking = Gate(), Gate(), Gate(), Gate()
        self.fails = StopToken()  # detectors do
        self.disk = JournalDisk(lambda: self.app.events.journal)
        self.detectors: list[Detector] = []
        self.classifiers: list[Detector] = []
        self.reloads: list[Future[Any]] = []  # that signals have asked for
        prepare(PROGRAM)  # the template outlives daemons
        self.before = Resources.now()
        self.frames = folder / "frames.jsonl"
        own: list[RuleConfig] = [ObjectConfig(name="all")] if analysis != "none" else []
        more = {**_analysis(analysis, folder), **more}
        sources: list[SourceConfig] = [
            SyntheticConfig(id="drawn", fps=50, width=16, height=16, objects=1, rules=own),
            SyntheticConfig(id="lib", fps=50, width=16, height=16, rules=own),
            SyntheticConfig(id="spare", fps=50, width=16, height=16, objects=1, enabled=False),
        ]
        if workers:
            sources.append(AvConfig(id="cam", url=Url("rtsp://192.0.2.1/cam"), decode="cpu"))
        if store:
            sources.append(AvConfig(id="rec", url=Url("rtsp://192.0.2.1/rec"), decode="cpu"))
            more["record"] = RecordConfig({"main": StoreConfig(store, min_free_gib=0)}, "continuous", pre_s=1, post_s=1)
        model = ModelConfig(path=Path("model-0"), backend="fake", max_batch=4)
        if several:
            sources = [_seen_by_both(row) if row.id in _SHARED else row for row in sources]
            more["classifiers"] = [msgspec.structs.replace(row, model="first") for row in more.get("classifiers", [])]
        self.rows = sources
        self.base = self.file = Config(
            model=model,
            models={"first": model, "second": model} if several else {},
            sources=[] if doors else sources,
            lanes=2,
            reconnect=ReconnectConfig(initial_s=0.02, max_s=0.1),
            board=BoardConfig(mode=mode, max_age_ms=60_000, depth=4),  # type: ignore[arg-type]
            publisher=PublisherConfig(
                endpoint="tcp://127.0.0.1:*", high_water_mark=1_000_000, wait_for_subscriber_s=30
            ),
            monitor=MonitorConfig(interval_s=0.2, stall_after_s=60, stuck_after_s=120, frames_file=self.frames),
            **more,
        )
        self.app = build(
            self.base,
            Seams(
                limits=LIMITS,
                open_detector=self._open_detector,
                open_classifier=self._open_classifier,
                clock=self.disk,
                make_source=Maker(folder, self.making, self.library),
                open_probe=open_probe(self.probe),
                coordinator=doors,
            ),
            read=self._read,
        )
        self.listener = Listener(self.app.endpoint)
        self._runner = threading.Thread(target=self._run, name="runner", daemon=True)
        self.code: int | None = None
        self.error: BaseException | None = None

    def _open_detector(self, backend: Backend, options: Options) -> Detector:
        if self.detectors:
            self.model()
        self.detectors.append(Detector(options, self.opening, self.detecting, self.fails))
        return self.detectors[-1]

    def _open_classifier(self, _: Backend, options: Options) -> Detector:
        self.classifiers.append(Detector(options, Gate(), self.looking, StopToken()))
        return self.classifiers[-1]

    def _read(self) -> Config:
        self.reading()
        return self.file

    def _run(self) -> None:
        try:
            self.code = self.app.run()
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            self.error = error

    # --- what tests do ---------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start; see `wait_ready`."""
        self._runner.start()

    def wait_ready(self) -> None:
        wait_until(lambda: self.app.health.is_ready or not self._runner.is_alive(), "it is ready")

    def wait_stopped(self) -> None:
        """Wait until it has ended."""
        self._runner.join(PATIENCE_S)
        assert not self._runner.is_alive(), "the daemon does not end"

    @contextmanager
    def signals(self) -> Iterator[None]:
        """Within, the daemon handles this process's signals. Main thread only."""
        with stopping_on_signals(self.app.request_stop, lambda: self.reloads.append(self.app.reload())):
            yield

    def edit(self, change: Callable[[list[SourceConfig]], list[SourceConfig]]) -> Future[Any]:
        """Change the sources, as over HTTP."""
        return self.app.changes.submit(lambda now: msgspec.structs.replace(now, sources=change(list(now.sources))))

    def swap(self, path: str, model: str = "first") -> Future[Any]:
        """Change to another file.

        Args:
            model: that gets it, where there are several.
        """

        def changed(now: Config) -> Config:
            fresh = msgspec.structs.replace(now.for_model(model).model, path=Path(path))
            models = {**now.models, model: fresh} if now.models else {}
            return msgspec.structs.replace(now, model=next(iter(models.values()), fresh), models=models)

        return self.app.changes.submit(changed)

    @property
    def worker(self) -> int | None:
        """Pid of the capture process, None without one."""
        return next(iter(self.app.sources.pids), None)

    @property
    def rules(self) -> int | None:
        """Pid of the process of rules, None without one."""
        return next((pid for pid in self.app.parts.pids if pid not in (os.getpid(), *self.app.sources.pids)), None)

    def open_all(self) -> None:
        """Open all gates."""
        for gate in (
            self.opening, self.detecting, self.making, self.reading, self.library, self.probe, self.model, self.looking,
        ):  # fmt: skip
            gate.open()
        for file in self.folder.glob("HANG-*"):
            file.unlink(missing_ok=True)

    # --- what must be so -------------------------------------------------------------------------------------------

    def check_running(self, ended: Collection[str] = ()) -> None:
        """The sources of the configuration, and no others, are up and give frames, which are looked at.

        Args:
            ended: those that end by themselves.
        """
        wait_until(lambda: self._states_are_true(ended), "the sources are those of the configuration", self._states)
        before = self.app.ledger.counts()
        wanted = {source.id for source in self.app.changes.config.active}
        assert set(before) == wanted, f"accounts of {set(before)}, sources {wanted}"
        wait_until(lambda: self._all_moved(before, ended), "all sources give frames", self.app.ledger.counts)
        here = wanted - set(ended)
        wait_until(lambda: {*self._told(here).values()} <= {"up"}, "subscribers are told", lambda: self._told(here))
        wait_until(lambda: self._ruled() <= self._seen_rules(), "events name the rules", self._seen_rules)
        assert self.app.health.problems() == []
        assert self._runner.is_alive(), f"the daemon has ended: {self.code}, {self.error!r}"

    def _ruled(self) -> set[tuple[str, str | None]]:
        """Each source with a rule, and that rule."""
        return {(source.id, rule.name) for source in self.app.changes.config.active for rule in source.rules}

    def _seen_rules(self) -> set[tuple[str, str | None]]:
        """Each source with events of rules, and the rule of the last one that begins something."""
        return {*self.listener.rules.copy().items()}

    def _told(self, sources: Collection[str]) -> dict[str, str]:
        """The last state of each source that subscribers heard of."""
        return {source: (self.listener.states[source] or ["none"])[-1] for source in sources}

    def _states(self) -> dict[str, str]:
        return {capture.id: capture.state for capture in self.app.sources.captures}

    def _states_are_true(self, ended: Collection[str]) -> bool:
        states, idle = self._states(), all(future.done() for future in self.reloads)
        wanted = {source.id: "ended" if source.id in ended else "up" for source in self.app.changes.config.active}
        return idle and states == wanted

    def _all_moved(self, before: dict[str, Counts], ended: Collection[str]) -> bool:
        now = self.app.ledger.counts()
        return all(now[id].published >= count.published + 2 for id, count in before.items() if id not in ended)

    def check_threads(self) -> None:
        """Only threads of the daemon's parts and sources run."""
        own = {"runner", "listener", "signals", *self.parts}
        own |= {f"capture-{source.id}" for source in self.app.changes.config.active}

        def strangers() -> set[str]:
            names = self._threads()
            return {
                name for name in (name.partition("#")[0].rstrip("0123456789.-") for name in names) if name not in own
            }

        wait_until(lambda: not strangers(), "no thread is left", strangers)

    def _closed(self) -> list[tuple[str, int, int]]:
        return [(row.info.name, row.closed, row.inside) for row in (*self.detectors, *self.classifiers)]

    def _threads(self) -> frozenset[str]:
        return running_threads() - self.before.threads

    def end(self, *codes: int) -> None:
        """Wait for the end, and check exit code, counters, order, and that nothing is left.

        Args:
            codes: exit codes that may be; 0 if there are none.
        """
        if self._runner.ident is None:
            self.app.stop()
        else:
            self._runner.join(PATIENCE_S)
            assert not self._runner.is_alive(), "the daemon does not end"
            if self.error:
                raise self.error
        found = self.app.stop()
        assert found in (codes or (0,)), f"exit code {found}, not {codes or 0}"
        lost = self.listener.close()
        assert lost == {}, lost
        self._check_accounts()
        if self._runner.ident is not None:
            if journal := self.app.events.journal:
                journal.join(PATIENCE_S)  # it may have waited for a lock
            EventAccount(self.app.events, self.listener.events).check()
        self._check_order()
        self._check_leftovers()

    def _check_accounts(self) -> None:
        ledger = self.app.ledger
        for source, count in ledger.counts().items():
            assert count.in_flight == 0, f"{source}: {count} do not add up"
        published: Counter[str] = Counter()  # by source, at all of its models
        for source in ledger.accounts:
            counts = ledger.counts_of_account(source)
            assert counts.in_flight == 0, f"{source}, which is gone: {counts} do not add up"
            published[source.partition("/")[0]] += counts.published
        for source in published if self._runner.ident is not None else ():
            assert published[source] == len(self.listener.seqs[source]), f"{source}: published and not received"
        for capture in self.app.sources.captures:
            assert capture.state == "ended", f"{capture.id} is said to be {capture.state} after the end"

    def _check_order(self) -> None:
        for source, seqs in self.listener.seqs_of_model.items():
            assert seqs == sorted(set(seqs)), f"{source}: frames twice or out of order"

    def _check_leftovers(self) -> None:
        opened = [*self.detectors, *self.classifiers]
        wait_until(lambda: all(row.closed == 1 for row in opened), "each model is closed once", self._closed)
        assert not any(row.closed_under_a_lane for row in opened)
        wait_until(lambda: Resources.now().children <= self.before.children, "no process is left")
        wait_until(lambda: not self._threads(), "no thread is left", self._threads)
        assert Resources.now().maps <= self.before.maps, "shared memory is left"
        wait_until(lambda: Resources.now().files <= self.before.files, "no descriptor is left", _open_files)


def _seen_by_both(source: SourceConfig) -> SourceConfig:
    tracking = SourceTracking(model="first") if source.rules else None
    return msgspec.structs.replace(source, model=["first", "second"], tracking=tracking)


def _analysis(analysis: Analysis, folder: Path) -> dict[str, Any]:
    """What the configuration says."""
    if analysis == "none":
        return {}
    looks: dict[str, Any] = {"wanted": ["dark", "bright"], "min_px": 1, "every_s": 0.1, "attempts": 100}
    return {
        "tracking": TrackingConfig(enabled=True),
        "events": EventsConfig(own_process=analysis == "apart", journal=str(folder / "events.sqlite")),
        "classifiers": [ClassifierConfig(name="light", path=Path("light.onnx"), **looks)],
    }


def settle(future: Future[Any], *allowed: type[Exception]) -> None:
    """Wait for a change; it succeeds, or is refused with an error of these kinds."""
    with suppress(*allowed, LookoutError, DetectorError):
        future.result(PATIENCE_S)


def wait_until(condition: Callable[[], Any], what: str, details: Callable[[], object] | None = None) -> None:
    """Wait until a condition holds, with a generous time limit."""
    until = time.monotonic() + PATIENCE_S
    pause, pause_s = threading.Event(), _POLL_S
    while not condition():
        assert time.monotonic() < until, f"{what}: not so{f'; {details()}' if details else ''}"
        pause.wait(pause_s)
        pause_s = min(1.3 * pause_s, _MAX_POLL_S)


def dropped(counts: Counts) -> int:
    """Frames, of all causes."""
    return sum(getattr(counts.dropped, cause) for cause in CAUSES)


def _open_files() -> Sequence[str]:
    found = []
    for fd in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            found.append(os.readlink(f"/proc/self/fd/{fd}"))
    return found
