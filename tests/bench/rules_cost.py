"""The cost of rules: CPU time a frame, for a number of moving objects and four rules."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from daemon.analytics.broad_phase import Search
from daemon.analytics.event import Event
from daemon.analytics.rules import RuleBook, RulesStage
from daemon.analytics.source_rules import RuleSet
from daemon.bench.load import four_rules
from daemon.pipeline.frames import FrameInfo
from detectors.detections import Detections, Tracks
from lookout.messages import FrameClock

_WIDTH, _HEIGHT = 1920, 1080
_LABELS = ("person",)


@dataclass(frozen=True)
class RulesCost:
    """Attributes:
    objects, sources, frames: of the measurement; frames of each source.
    frame_us: CPU time of the rules a frame, median over the batches, microseconds.
    events: number of events a second of source time and source.
    """

    objects: int
    sources: int
    frames: int
    frame_us: float
    events: float


def rules_cost(
    objects: int,
    search: Search | None = None,
    *,
    sources: int = 32,
    frames: int = 500,
    fps: float = 25.0,
    seed: int = 1,
) -> RulesCost:
    """Measure four rules a source: objects walk at 2 to 15 percent of the picture's height a second, and turn.

    Args:
        search: of the broad phase.
    """
    events: list[Event] = []
    book = RuleBook(events.append, search=lambda: search)
    rules = four_rules()
    names = [f"camera-{number}" for number in range(sources)]
    book.update({name: RuleSet(rules, 1_000_000_000, 3) for name in names})
    stage = RulesStage(book, _LABELS)
    walks = [_walks(objects, frames, fps, (seed, number)) for number in range(sources)]
    times = []
    for seq, seen in enumerate(zip(*walks)):
        batch = [_frame(name, seq, fps) for name in names]
        begin = time.thread_time_ns()
        stage(batch, seen)
        times.append((time.thread_time_ns() - begin) / sources / 1000)
    return RulesCost(objects, sources, frames, float(np.median(times)), len(events) / sources / (frames / fps))


def _frame(source: str, seq: int, fps: float) -> FrameInfo:
    at_ns = round(seq / fps * 1e9)
    return FrameInfo(source, "session", seq, at_ns, at_ns, at_ns, FrameClock("arrival"), 0, _WIDTH, _HEIGHT)


def _walks(objects: int, frames: int, fps: float, seed: tuple[int, int]) -> Sequence[Detections]:
    """The tracks of all frames; objects turn back at the edges."""
    random = np.random.default_rng(seed)
    position = random.uniform(0.05, 0.9, (objects, 2))
    heading, pace = random.uniform(0, 2 * np.pi, objects), random.uniform(0.02, 0.15, objects) / fps
    move = np.column_stack((np.cos(heading) * _HEIGHT / _WIDTH, np.sin(heading))) * pace[:, None]
    size = random.uniform(0.05, 0.2, (objects, 1)) * [0.4 * _HEIGHT / _WIDTH, 1.0]
    ids, zeros = np.arange(1, objects + 1), np.zeros((objects, 2), np.float32)
    classes, confidence = np.zeros(objects, np.int32), np.full(objects, 0.9, np.float32)
    found = []
    for _ in range(frames):
        position += move
        beyond = (position < 0.02) | (position + size > 0.98)
        move = np.where(beyond, np.where(position < 0.02, np.abs(move), -np.abs(move)), move)
        shaken = position + random.normal(0, 0.0005, (objects, 2))
        corners = np.concatenate((shaken, shaken + size), axis=1) * [_WIDTH, _HEIGHT, _WIDTH, _HEIGHT]
        xyxy = corners.astype(np.float32)
        tracks = Tracks(ids, classes, xyxy, zeros, np.zeros(objects, np.int64))
        found.append(Detections(xyxy, confidence, classes, tracks=tracks))
    return found
