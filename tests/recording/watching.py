"""A camera whose pictures are tracked and looked at by rules, and recorded: live events, and a store to ask again."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from daemon.analytics.event import Event
from daemon.analytics.event_message import Identity, message_of
from daemon.analytics.loops import PYTHON
from daemon.analytics.rules import RuleBook, RulesStage
from daemon.analytics.source_rules import RuleSet
from daemon.analytics.track_stage import Tracker, TrackerStage
from daemon.config.load import parse
from daemon.pipeline.frames import Frame, FrameInfo
from daemon.pipeline.ledger import Ledger
from daemon.pipeline.outbox import Served
from daemon.recording.index import IndexReader
from daemon.recording.ring import Ring
from daemon.recording.search.answers import Answer, End, PastEvent, Unseen
from daemon.recording.search.asked import Asked, rule_from
from daemon.recording.search.search import search
from daemon.recording.source_recorder import Settings
from daemon.recording.store import Store
from daemon.recording.tracks.records import TrackingSettings
from daemon.recording.tracks.tap import TrackTap
from detectors.detections import Detections
from detectors.port import HostImage
from lookout.messages import Event as Message
from lookout.messages import FrameClock, Model, State
from tests.analytics.walks import HEIGHT, WIDTH, Seen, walk
from tests.recording.rig import EVERYTHING, FPS, SECOND, Rig

LABELS = ("person", "car")
SERVED = Served(Model("model.onnx", "0123456789ab", "fp32", "ort"), LABELS)
TRACKING = TrackingSettings(SECOND, 3)
RECORDED = msgspec.structs.replace(EVERYTHING, tracking=TRACKING)
_CLOCK = FrameClock("arrival", 1000)
_PICTURE = HostImage(np.zeros((1, 1, 3), np.uint8))
_NONE = Detections(np.empty((0, 4), np.float32), np.empty(0, np.float32), np.empty(0, np.int32))
_ONLY_LIVE = {"id", "number", "instance", "index", "schema", "snapshot", "clip", "owner", "attribute"}
RULES: Sequence[Mapping[str, Any]] = (
    {"type": "zone", "name": "yard", "points": [[0.2, 0.2], [0.8, 0.2], [0.8, 0.8], [0.2, 0.8]], "dwell_s": [1, 3]},
    {"type": "zone", "name": "full", "points": [[0, 0], [1, 0], [1, 1], [0, 1]], "crowd": {"over": 2, "for_s": 0.5}},
    {"type": "line", "name": "line", "points": [[0.5, 0.0], [0.5, 1.0]], "band": 0.02},
    {"type": "gate", "name": "gate", "lines": [[[0.4, 0], [0.4, 1]], [[0.6, 0], [0.6, 1]]]},
    {"type": "object", "name": "cars", "labels": ["car"]},
    {"type": "object", "name": "large", "min_area": 0.006},
    {"type": "line", "name": "night", "points": [[0.0, 0.5], [1.0, 0.5]], "active": "08:00-08:01; 08:02-08:03",
     "timezone": "Etc/UTC"},
)  # fmt: skip


def said(event: Message | PastEvent) -> dict[str, Any]:
    """The fields that an event has live and of the past."""
    plain: dict[str, Any] = msgspec.to_builtins(event)
    return {key: value for key, value in plain.items() if key not in _ONLY_LIVE | {"partial", "picture"}}


@dataclass
class Watching(Rig):
    """Attributes:
    live: the events so far.
    frames: their session, pts and time of capture, UTC ns.
    """

    settings: Settings = RECORDED
    seed: int = 0
    latency: int = 4
    live: list[Message] = field(default_factory=list)
    frames: list[FrameInfo] = field(default_factory=list)
    size: tuple[int, int] = (WIDTH, HEIGHT)

    def __post_init__(self) -> None:
        self.tracks = Ring("tracks", 4 << 20)
        self.tap = TrackTap({"main": self.tracks}, self.clock, self.clock.monotonic_ns)
        self.tap.use({"main": {"door"}})
        self._random = random.Random(self.seed)
        self._scene: Iterator[Seen] = iter(())
        self._coming: list[int] = []
        self._seq, self._tick_due = -1, 0.0
        self.begin_rules()
        super().__post_init__()

    def begin_rules(self) -> None:
        """As a daemon begins."""
        config = parse("model: {path: x}\nsources: [{id: door, type: synthetic}]\ntracking: {enabled: true}\n")
        tracker = Tracker(config, Ledger(), compile=lambda _: PYTHON)
        self.book = RuleBook(self._on_event)
        self._stages = TrackerStage(tracker, LABELS), RulesStage(self.book, LABELS)
        self.use(RULES)

    def use(self, rules: Sequence[Mapping[str, Any]]) -> None:
        own = RuleSet([rule_from(rule) for rule in rules], TRACKING.lost_after_ns, TRACKING.confirm_hits)
        self.book.configure({"door": own})

    def start(self, down_since: int | None = None) -> None:
        super().start(down_since)
        self.recorder.use_tracks(self.tracks.fd)

    def show(
        self, seconds: float, *, objects: int = 0, drops: float = 0.0, lasts: float | None = None, **sent: Any
    ) -> None:
        """Video with some objects in it.

        Args:
            drops: share of the frames that are dropped before they are analysed.
            lasts: seconds for which the objects are there, by `send` after this; None for as long as this.
        """
        length = (seconds if lasts is None else lasts) + 1
        frames = walk(self._random.randrange(1 << 30), objects=objects, fps=FPS, seconds=length, classes=2)
        self._scene, self._drops = iter(frames if objects else ()), drops
        self.send(seconds, **sent)

    def announce(self, state: State) -> None:
        """As `daemon.control.kit.Announcements`."""
        now = self.clock.monotonic_ns()
        self.tap.note("door", state, now)
        self.book.on_state("door", state, now)

    def break_off(self, seconds: float, session: str) -> None:
        """The camera is away for a while."""
        self._coming.clear()
        self.announce("down")
        self.recorder.note("door", self.clock.utc_ns(), "source_down", "a test")
        self.send(seconds, skip=True)
        self.connect(session)
        self.announce("connecting")
        self.announce("up")

    def wait(self, seconds: float, *, turns: bool = True) -> None:
        super().wait(seconds, turns=turns)
        self._tick_due += seconds
        if self._tick_due >= 1.0:
            self._tick_due = 0.0
            self.book.tick(self.clock.monotonic_ns())

    def ask(
        self, rule: Mapping[str, Any], begin: int | None = None, end: int | None = None, **more: Any
    ) -> list[Answer]:
        """Ask the store."""
        first = self.frames[0].captured_at if begin is None else begin
        last = self.clock.utc_ns() if end is None else end
        with closing(Store.open(self.folder)) as store, closing(IndexReader(store)) as index:
            return [*search(store, index, Asked("door", [rule_from(rule)], first, last, **more), self.clock.utc_ns())]

    def events(self, rule: Mapping[str, Any]) -> list[Message]:
        return [event for event in self.live if event.rule == rule["name"]]

    def _send_one(self) -> None:
        super()._send_one()
        samples = self.clip.samples
        lap, number = divmod(self._next, len(samples))
        self._coming.append(samples[number].pts + round(lap * len(samples) * SECOND / FPS))
        self._coming.sort()
        if len(self._coming) > self.latency:
            self._analyse(self._coming.pop(0))

    def _analyse(self, pts: int) -> None:
        """A picture passes a lane: tracker, rules, and then those that follow."""
        self._seq += 1
        seen = next(self._scene, None)
        if self._random.random() < self._drops:
            return
        found = seen.found if seen else _NONE
        width, height = self.size
        now, utc = self.clock.monotonic_ns(), self.clock.utc_ns()
        info = FrameInfo("door", self.session, self._seq, pts, now, utc, _CLOCK, 0, width, height)
        if self.size != (WIDTH, HEIGHT) and len(found.xyxy):
            scale = np.array([width / WIDTH, height / HEIGHT] * 2, np.float32)
            found = Detections(found.xyxy * scale, found.confidence, found.class_id)
        for stage in self._stages:
            (found,) = stage([info], [found])
        self.frames.append(info)
        self.tap.on_batch([Frame(info, _PICTURE)], [found], SERVED)

    def _on_event(self, event: Event) -> None:
        self.live.append(message_of(event, 0, "", Identity("live"), None, None))


def past(answers: Sequence[Answer]) -> list[PastEvent]:
    return [answer for answer in answers if isinstance(answer, PastEvent)]


def unseen(answers: Sequence[Answer]) -> list[Unseen]:
    return [answer for answer in answers if isinstance(answer, Unseen)]


def end_of(answers: Sequence[Answer]) -> End:
    assert isinstance(answers[-1], End)
    return answers[-1]
