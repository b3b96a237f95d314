"""Rules agree with an oracle that knows every object's path."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from daemon.rule_config import RuleConfig
from tests.analytics import oracle
from tests.analytics.feed import Box, Feed, rules_of, search_of, short
from tests.analytics.oracle import Answer, Floats, agreed, moved

SEEDS = 200
_SECONDS = 8.0
_OBJECTS = 4
_ENTER_S, _EXIT_S, _DWELL_S, _BAND = 0.3, 1.0, [1.0, 3.0], 0.1
_RATES = (5.0, 10.0, 15.0, 30.0, 60.0)
_ASPECT = 16 / 9  # the oracle's unit is the picture's height
_JITTER = 0.0008  # of the picture's size, at most
_TIMES = np.arange(0, _SECONDS + oracle.STEP_S / 2, oracle.STEP_S)


@dataclass(frozen=True)
class Scene:
    """Attributes:
    x, y: of each object's feet at each time of `_TIMES`, shares of the picture.
    heights: of their boxes.
    """

    zone: list[tuple[float, float]]
    line: list[tuple[float, float]]
    gate: list[list[tuple[float, float]]]
    x: list[Floats]
    y: list[Floats]
    heights: list[float]
    lives: list[tuple[float, float]]

    @property
    def rules(self) -> list[RuleConfig]:
        zone = {"enter_s": _ENTER_S, "exit_s": _EXIT_S, "dwell_s": _DWELL_S, "points": self.zone}
        return rules_of(
            {"type": "zone", "name": "zone", **zone},
            {"type": "line", "name": "line", "points": self.line, "band": _BAND},
            {"type": "gate", "name": "gate", "lines": self.gate, "band": _BAND},
        )


def _scene(random: np.random.Generator, *, come_and_go: bool = False) -> Scene:
    """A polygon, a bent line, a gate, and objects on straight and curved paths around the middle.

    Args:
        come_and_go: objects appear and are gone, anywhere and at any time.
    """
    corners = int(random.integers(4, 9))
    angles = np.linspace(0, 2 * np.pi, corners, endpoint=False) + random.uniform(-0.2, 0.2, corners)
    radius = random.uniform(0.08, 0.25, corners)
    zone = np.column_stack((0.5 + radius * np.cos(angles), 0.5 + radius * np.sin(angles)))
    line = np.column_stack((np.sort(random.uniform(0.25, 0.75, 3)), random.uniform(0.4, 0.6, 3)))
    left, top, bottom = random.uniform(0.25, 0.35), random.uniform(0.3, 0.45), random.uniform(0.6, 0.7)
    gap = random.uniform(0.1, 0.2)
    gate = [[(left, top), (left, bottom)], [(left + gap, top), (left + gap, bottom)]]
    x, y, heights = [], [], []
    for _ in range(_OBJECTS):
        start, end = random.uniform(0.2, 0.8, 2), random.uniform(0.2, 0.8, 2)
        share = _TIMES / _SECONDS
        swing = random.uniform(0, 0.12, 2) * random.integers(0, 2)
        pace = random.uniform(0.3, 2.0, 2)
        x.append(start[0] + share * (end[0] - start[0]) + swing[0] * np.sin(pace[0] * _TIMES))
        y.append(start[1] + share * (end[1] - start[1]) + swing[1] * np.sin(pace[1] * _TIMES))
        heights.append(float(random.uniform(0.05, 0.18)))
    lives = [(0.0, _SECONDS + 1)] * _OBJECTS
    if come_and_go:
        lives = [(float(random.uniform(1, 3)), float(random.uniform(5, _SECONDS - 1))) for _ in range(_OBJECTS)]
    return Scene([*map(tuple, zone.tolist())], [*map(tuple, line.tolist())], gate, x, y, heights, lives)


def _sampled(random: np.random.Generator, fps: float) -> Floats:
    """Times of the analysed frames: some are lost, alone and in bursts, but not the first and the last."""
    count = int(_SECONDS * fps)
    kept = random.uniform(size=count + 1) > 0.1
    for begin in random.integers(1, count, 3):
        kept[begin : begin + max(1, int(fps * 0.2))] = False
    kept[[0, count]] = True
    return np.flatnonzero(kept) / fps


def _run(scene: Scene, times: Floats, noise: Floats, size: tuple[int, int], fps: float, hits: int = 1) -> Feed:
    """The events of a scene, the same with the broad phase and without.

    Args:
        hits: boxes in a row that confirm a track.
    """
    feed, compiled = (Feed(scene.rules, size, confirm_hits=hits) for _ in range(2))
    compiled.search = search_of("compiled")
    width, height = size
    rows = zip(scene.x, scene.y, scene.heights)
    paths = [(np.interp(times, _TIMES, x), np.interp(times, _TIMES, y), tall) for x, y, tall in rows]
    seq = 0
    for number, at in enumerate(times):
        boxes: dict[int, Box] = {}
        for id, ((x, y, tall), (appears, gone)) in enumerate(zip(paths, scene.lives), 1):
            if not appears <= at < gone:
                continue
            feet = x[number] + noise[number, id - 1, 0], y[number] + noise[number, id - 1, 1]
            boxes[id] = _box(feet, tall, width, height)
        lost = round(at * fps) - seq
        feed.show(float(at), boxes, lost=lost)
        compiled.show(float(at), boxes, lost=lost)
        seq = round(at * fps) + 1
    for number in range(20):
        feed.show(_SECONDS + (number + 1) * 0.1, {})
        compiled.show(_SECONDS + (number + 1) * 0.1, {})
    assert compiled.events == feed.events
    return feed


def _box(feet: tuple[float, float], tall: float, width: int, height: int) -> Box:
    x, y = feet
    return ((x - tall / 4) * width, (y - tall) * height, (x + tall / 4) * width, y * height)


def _error(path: Floats, times: Floats) -> float:
    """The largest distance between a path and the straight lines between its frames."""
    return float(np.abs(path - np.interp(_TIMES, times, np.interp(times, _TIMES, path))).max())


def _answers(scene: Scene, index: int, times: Floats) -> dict[str, Answer | None]:
    """What is certain of an object."""
    x, y, tall = scene.x[index] * _ASPECT, scene.y[index], scene.heights[index]
    zone, line, *gate = [[(px * _ASPECT, py) for px, py in points] for points in (scene.zone, scene.line, *scene.gate)]
    distance = 1.5 * float(np.hypot(_error(x, times), _error(y, times))) + 3 * _JITTER
    # An anchor may leave the band and come back between two frames.
    step = float(np.hypot(np.diff(np.interp(times, _TIMES, x)), np.diff(np.interp(times, _TIMES, y))).max())
    bands = (_BAND * tall, _BAND * tall + step)
    lives = _lives(*scene.lives[index], float(np.diff(times).max()))
    paths = [
        (x_[begin:end], y_[begin:end], begin * oracle.STEP_S)
        for x_, y_ in moved(x, y, distance)
        for begin, end in lives
    ]
    within = [(oracle.inside(x_, y_, zone), since) for x_, y_, since in paths]
    durations = _ENTER_S, _EXIT_S, _DWELL_S
    return {
        "zone": agreed(
            [
                oracle.visits(one, *durations, (len(one) - 1) * oracle.STEP_S, margin).later(since)
                for one, since in within
                for margin in (0.0, 0.02, -0.02)
            ]
        ),
        "line": agreed(
            [oracle.line_events(x_, y_, line, band).later(since) for x_, y_, since in paths for band in bands]
        ),
        "gate": agreed(
            [oracle.gate_events(x_, y_, gate, band).later(since) for x_, y_, since in paths for band in bands]
        ),
    }


def _lives(appears: float, gone: float, gap: float) -> list[tuple[int, int]]:
    """When an object may be there, by the frames that show it: the first and the last sample of `_TIMES`."""
    steps = [0.0] if gone > _SECONDS else [0.0, gap, -gap]
    return [
        (max(0, round((appears - step) / oracle.STEP_S)), min(len(_TIMES), round((gone + step) / oracle.STEP_S) + 1))
        for step in steps
    ]


def _compare(feed: Feed, answers: Sequence[dict[str, Answer | None]], gap: float) -> int:
    """Compare all certain answers with the events; returns how many events they had."""
    certain = 0
    for id, rules in enumerate(answers, 1):
        for rule, answer in rules.items():
            if answer is None:
                continue
            events = [event for event in feed.events if event.track == id and event.rule == rule]
            assert [short(event) for event in events] == answer.names, (id, rule)
            certain += len(events)
            for event, first, last in zip(events, answer.first, answer.last):
                assert event.began.pts is not None
                if event.phase in ("dwell", "left"):
                    assert event.dwell_ns is not None
                    assert event.dwell_ns / 1e9 >= first - 0.05
                    assert event.dwell_ns / 1e9 <= last + 0.05 + (gap if event.phase == "dwell" else 0.0)
                else:
                    assert first - 0.05 <= event.began.pts / 1e9 <= last + gap + 0.05
    return certain


@pytest.mark.parametrize("part", [*range(3), *(pytest.param(part, marks=pytest.mark.long) for part in range(3, 10))])
def test_rules_agree_with_the_oracle_on_every_event(part: int) -> None:
    events = objects = 0
    for seed in range(part, SEEDS, 10):
        random = np.random.default_rng(seed)
        scene, fps = _scene(random), _RATES[seed // 10 % len(_RATES)]
        times = _sampled(random, fps)
        noise = random.uniform(-_JITTER, _JITTER, (len(times), _OBJECTS, 2))
        answers = [_answers(scene, index, times) for index in range(_OBJECTS)]
        feed = _run(scene, times, noise, (1920, 1080), fps)
        events += _compare(feed, answers, float(np.diff(times).max()))
        objects += sum(answer is not None for rules in answers for answer in rules.values())
    assert events > 50  # the scenes are busy
    assert objects > 150


@pytest.mark.parametrize("part", [0, pytest.param(1, marks=pytest.mark.long)])
def test_objects_that_come_and_go_agree_with_the_oracle(part: int) -> None:
    """They appear anywhere. Their tracks are confirmed by three boxes, and the path before counts like all of it."""
    events = late = 0
    for seed in range(part, SEEDS // 5, 2):
        random = np.random.default_rng(seed)
        scene, fps = _scene(random, come_and_go=True), _RATES[seed // 2 % len(_RATES)]
        times = _sampled(random, fps)
        noise = random.uniform(-_JITTER, _JITTER, (len(times), _OBJECTS, 2))
        answers = [_answers(scene, index, times) for index in range(_OBJECTS)]
        feed, known = (_run(scene, times, noise, (1920, 1080), fps, hits) for hits in (3, 1))
        events += _compare(feed, answers, float(np.diff(times).max()))
        late += _differences(feed, known)
    assert events > 50
    assert late > 2


def _differences(feed: Feed, known: Feed) -> int:
    """The events are those of tracks that are known from their first box on, but for the frame that confirms them;
    returns how many are confirmed later."""
    late = 0
    for id in range(1, _OBJECTS + 1):
        rows, expected = ([event for event in one.events if event.track == id] for one in (feed, known))
        first = min((event.confirmed.seq for event in rows), default=0)
        assert sorted((short(event), event.began.seq) for event in rows) == sorted(
            (short(event), event.began.seq) for event in expected
        )
        for rule in ("zone", "line", "gate"):
            for event, own in zip(*([event for event in one if event.rule == rule] for one in (rows, expected))):
                assert (event.direction, event.reason) == (own.direction, own.reason)
                assert event.confirmed.seq == max(first, own.confirmed.seq)
                late += event.confirmed.seq > own.confirmed.seq
    return late


@pytest.mark.parametrize("seed", range(5))
def test_half_and_double_resolution_give_the_same_events(seed: int) -> None:
    random = np.random.default_rng(seed)
    scene = _scene(random)
    times = _sampled(random, 15.0)
    noise = random.uniform(-_JITTER, _JITTER, (len(times), _OBJECTS, 2))
    runs = []
    for size in ((960, 540), (1920, 1080), (3840, 2160)):
        feed = _run(scene, times, noise, size, 15.0)
        runs.append([(short(event), event.track, event.began.seq, event.confirmed.seq) for event in feed.events])
    assert runs[0]
    assert runs[0] == runs[1] == runs[2]


@pytest.mark.parametrize("seed", range(5))
def test_half_and_double_rate_give_the_same_events(seed: int) -> None:
    """Where frames are close enough together to show the path."""
    random = np.random.default_rng(seed)
    scene = _scene(random)
    for fps in (15.0, 30.0, 60.0):
        times = np.arange(int(_SECONDS * fps) + 1) / fps
        feed = _run(scene, times, np.zeros((len(times), _OBJECTS, 2)), (1280, 720), fps)
        coarse = np.arange(int(_SECONDS * 15) + 1) / 15.0
        answers = [_answers(scene, index, coarse) for index in range(_OBJECTS)]
        assert _compare(feed, answers, 1 / fps)
