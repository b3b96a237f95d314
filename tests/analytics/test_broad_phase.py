"""With the broad phase, rules find the same events, whatever happens in the picture."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import pytest

from daemon.analytics import compiled_broad_phase
from daemon.analytics.event import Event
from daemon.geometry import edges_of, trace
from tests.analytics.feed import Box, Feed, rules_of, search_of

_FRAMES, _FPS = 300, 20.0
_ZONE = {"type": "zone", "name": "zone", "points": [[0.3, 0.3], [0.7, 0.35], [0.6, 0.8], [0.25, 0.7]], "dwell_s": [0.5]}
_LINE = {"type": "line", "name": "line", "points": [[0.1, 0.5], [0.5, 0.45], [0.95, 0.6]]}
_GATE = {
    "type": "gate",
    "name": "gate",
    "lines": [[[0.4, 0.1], [0.4, 0.9]], [[0.55, 0.1], [0.5, 0.9]]],
    "confirm_s": 0.2,
}
_CENTRE = {"type": "zone", "name": "centre", "points": [[0.4, 0], [0.6, 0], [0.6, 1], [0.4, 1]], "anchor": "center"}
_CROWD = {**_ZONE, "name": "crowd", "crowd": {"over": 2, "for_s": 0.3}}
_OBJECT = {"type": "object", "name": "object", "labels": ["car"]}
_NIGHT = {**_LINE, "name": "night", "active": "00:00-00:01", "timezone": "UTC"}
_RULES: list[Mapping[str, object]] = [_ZONE, _LINE, _GATE, _CENTRE, _CROWD, _OBJECT]


class _Walker:
    """An object that walks and turns, is behind others for a frame or for seconds, leaves the picture, and is not seen
    now and then.

    Args:
        steps: in which the picture is divided: with few the anchor stands on edges and corners of rules.
    """

    def __init__(self, random: np.random.Generator, steps: int) -> None:
        self._random, self._steps = random, steps
        self._at, self._size = random.uniform(0, 1, 2), random.uniform((0.03, 0.05), (0.15, 0.3))
        self._speed, self._seen = random.uniform(-0.02, 0.02, 2), 1.0

    def box(self, width: int, height: int) -> Box | None:
        random = self._random
        if random.random() < 0.05:
            self._speed = random.uniform(-0.02, 0.02, 2)
        self._at = (self._at + self._speed + random.normal(0, 0.001, 2)) % 1.2 - 0.1 * (self._at > 1.1)
        if random.random() < 0.1:
            return None
        if random.random() < 0.02:
            self._seen = float(random.choice([1.0, 0.6, 0.8]))
        seen = 0.6 if random.random() < 0.05 else self._seen
        x, y, wide, tall = *self._at, *self._size
        corners = np.clip([x - wide / 2, y - tall, x + wide / 2, y - tall * (1 - seen)], 0, 1)
        corners = np.round(corners * self._steps) / self._steps
        x0, y0, x1, y1 = (corners * [width, height, width, height]).tolist()
        return (x0, y0, x1, y1)


def _events(seed: int, loops: str, steps: int = 100_000) -> list[Event]:
    random = np.random.default_rng(seed)
    size = (1280, 720)
    feed = Feed(rules_of(*_RULES), size)
    feed.search = search_of(loops)
    walkers = {id: _Walker(random, steps) for id in range(1, 8)}
    for number in range(_FRAMES):
        chance = random.random()
        if chance < 0.01:
            feed.set_rules(rules_of(*([*_RULES, _NIGHT][place] for place in random.permutation(7)[:5])))
        elif chance < 0.015:
            size = feed.size = (1280, 720) if size == (640, 360) else (640, 360)
        elif chance < 0.02:
            feed.book.source_down("cam")
        elif chance < 0.05:
            walkers.pop(next(iter(walkers)))
            walkers[max(walkers) + int(random.integers(1, 3))] = _Walker(random, steps)
        boxes = {id: box for id, walker in walkers.items() if (box := walker.box(*size))}
        labels = {id: "car" if (id + number // 50) % 2 else "person" for id in boxes}
        shuffled = {id: boxes[id] for id in random.permutation([*boxes]).tolist()}
        feed.show(number / _FPS, shuffled, labels, lost=int(random.random() < 0.05))
    return feed.events


@pytest.mark.share(3)
@pytest.mark.parametrize("steps", [100_000, 20])
@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(4, 8))])
def test_events_are_the_same(seed: int, steps: int) -> None:
    expected = _events(seed, "python", steps)
    assert len({event.rule for event in expected}) > 3
    assert _events(seed, "compiled", steps) == expected


@pytest.mark.parametrize("scale", [1.0, 0.1])
def test_a_compiled_trace_is_the_same(scale: float) -> None:
    """On a grid, so that paths turn on edges, run along them, and go through corners: the compiled trace leaves those
    to exact arithmetic."""
    random = np.random.default_rng(3)
    sure = 0
    for _ in range(3000):
        outline = edges_of((random.integers(0, 7, (4, 2)) * scale).tolist(), closed=True)
        path = tuple((random.integers(-1, 8, 4) * scale + random.integers(2) * random.normal(0, 0.2, 4)).tolist())
        square, share, sign = compiled_broad_phase.trace(path, np.array(outline).reshape(-1, 4), 0, len(outline))
        expected = trace(path, outline)
        assert math.sqrt(square) == expected.distance
        if sign != compiled_broad_phase.UNSURE:
            sure += 1
            assert (((share, sign),) if sign else ()) == expected.crossings
    assert sure > 1500


def test_one_signature_serves_all() -> None:
    """`compile_now` compiles what lanes call, so no lane waits for a compiler."""
    compiled_broad_phase.compile_now()
    _events(0, "compiled")
    assert compiled_broad_phase.signatures() == 1


def test_the_frames_of_a_long_stay_are_forgotten() -> None:
    """Also where the source's clock stands still, so that no track is ever lost."""
    feed = Feed(rules_of(_ZONE), lost_after_s=3600.0)
    feed.search = search_of("compiled")
    for number in range(1000):
        feed.show(min(number, 10) / _FPS, {1: (480, 400, 520, 500)})
    rules = feed.book.rules_of("cam")
    assert rules is not None
    assert rules._phase is not None
    assert len(rules._phase._stamps) < 100
