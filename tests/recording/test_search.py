"""Rules that are asked of the past: the events are those that live rules gave, and what could not be seen is named."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.recording.rig import SECOND
from tests.recording.watching import RULES, Watching, end_of, past, said, unseen
from tests.support.recorded import Clip, clip


@pytest.fixture(scope="module")
def camera(clips: Path) -> Clip:
    return clip(clips, "h264")


def _random_scene(folder: Path, camera: Clip, seed: int) -> Watching:
    """Objects come and go; frames are dropped, connections break, pictures change their size, rules beside those that
    are asked come and go, and recorders are killed."""
    draw = random.Random(seed)
    rig = Watching(folder / f"store-{seed}", camera, seed=seed)
    others = [{"type": "line", "name": "other", "points": [[0.1, 0.1], [0.9, 0.9]]}]
    rig.announce("up")
    for number in range(draw.randrange(4, 9)):
        rig.show(draw.uniform(0.5, 12), objects=draw.choice([0, 1, 2, 6]), drops=draw.choice([0, 0, 0.1, 0.6]))
        match draw.randrange(7):
            case 0:
                rig.break_off(draw.choice([0.3, 0.9, 1.4, 2.1, 5.0]), f"session-{number}")
            case 1:
                rig.use([*others, *RULES] if draw.random() < 0.5 else RULES)
            case 2:
                rig.kill()
                rig.show(1.0, objects=2, turns=False)
                rig.start()
            case 3:
                rig.size = draw.choice([(1920, 1080), (704, 576), (640, 480)])
            case 4:
                rig.show(draw.uniform(0.2, 3), objects=3, drops=1.0)
    rig.show(3.0)
    rig.announce("ended")
    rig.finish()
    return rig


def _check(rig: Watching, seed: int) -> int:
    """Each rule finds the events that it gave, of all and of a part of the time; returns how many."""
    draw, count = random.Random(seed), 0
    first, last = rig.frames[0].captured_at - SECOND, rig.clock.utc_ns()
    for rule in RULES:
        live = rig.events(rule)
        answers = rig.ask(rule)
        assert [said(event) for event in past(answers)] == [said(event) for event in live], (seed, rule["name"])
        assert not any(event.partial for event in past(answers))
        end = end_of(answers)
        assert end.events == len(live)
        assert end.seen_s + end.unseen_s == pytest.approx((last - first) / SECOND, abs=0.002)
        begin, until = sorted(draw.randrange(first, last) for _ in range(2))
        part = [said(event) for event in live if begin <= event.confirmed_at < until]
        assert [said(event) for event in past(rig.ask(rule, begin, until))] == part, (seed, rule["name"])
        count += len(live)
    return count


@pytest.mark.parametrize("seed", range(3))
def test_rules_find_the_events_that_they_gave(tmp_path: Path, camera: Clip, seed: int) -> None:
    """To the last field, but for ids and numbers, which are given out once."""
    assert _check(_random_scene(tmp_path, camera, seed), seed) > 10


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 200))
def test_rules_find_the_events_that_they_gave_in_many_scenes(tmp_path: Path, camera: Clip, seed: int) -> None:
    _check(_random_scene(tmp_path, camera, seed), seed)
