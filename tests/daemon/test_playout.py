"""Pictures that come in bursts are shown one after the other, and late by no more than that takes."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import pytest

from daemon.capture.playout import BurstPlayout, Playout, SegmentPlayout
from daemon.sources.port import DecodeBudget
from tests.daemon.test_capture import Run, ScriptedReader, ScriptedSource, Silence
from tests.support.clock import ManualClock

S = 1_000_000_000  # ns
FPS = 10


class Segmented(ScriptedReader):
    """A reader of HLS."""

    can_wait, segment_s, is_behind = True, 4.0, False


class Hls(ScriptedSource):
    live = True

    def open(self, budget: DecodeBudget | None = None) -> ScriptedReader:
        reader = super().open(budget)
        return Segmented(self, reader._steps)


def shown(playout: Playout, arrivals: Iterable[tuple[int, int]], decode: int = 0) -> list[tuple[int, int]]:
    """When each picture is shown, and how late that is after it has come, ns; from their times and arrivals."""
    now, found = 0, []
    for pts, arrival in arrivals:
        waited = max(0, arrival - now)
        now = max(now, arrival) + decode
        now = max(now, playout.due(pts, now, waited))
        found.append((now, now - arrival))
    return found


def bursts(count: int, seconds: float, *, late: dict[int, float] | None = None) -> list[tuple[int, int]]:
    """Pictures with times from 1,000 s on, each burst when all of its pictures have been made, or later."""
    pictures = round(seconds * FPS)
    return [
        (
            1000 * S + (burst * pictures + number) * S // FPS,
            round(((burst + 1) * seconds + (late or {}).get(burst, 0)) * S),
        )
        for burst in range(count)
        for number in range(pictures)
    ]


def gaps(times: list[tuple[int, int]]) -> list[float]:
    return [(b - a) / S for (a, _), (b, _) in pairwise(times)]


def test_segments_are_shown_at_the_rate_of_their_pictures(clock: ManualClock) -> None:
    """From the first one on. Two come at once at the beginning; nothing replaces itself, and nothing is stalled."""
    times = range(1, 24 * FPS + 1)
    steps = [[time * S // FPS for time in times[n * 40 : n * 40 + 40]] for n in range(6)]
    source = Hls([*steps[0], *steps[1], *(step for rest in steps[2:] for step in (Silence(0.2), *rest))])
    loaded: list[tuple[int, int]] = []
    source.on_load = lambda _: loaded.append((clock.monotonic_ns(), 0))
    run = Run(source, clock)
    assert len(loaded) == 240
    assert min(gaps(loaded)) == pytest.approx(0.1, abs=0.001)
    assert max(gaps(loaded)) < 0.4
    assert run.states[:2] == ["connecting", "up"]
    assert "stalled" not in run.states


def test_a_segment_that_comes_late_moves_the_schedule_once() -> None:
    arrivals = bursts(6, 4, late={3: 1.5})
    times = shown(SegmentPlayout(Segmented(Hls(), [])), arrivals)
    assert gaps(times)[119] == pytest.approx(1.6, abs=0.01)
    assert all(gap == pytest.approx(0.1, abs=0.001) for gap in gaps(times)[:119] + gaps(times)[120:])


def test_a_source_that_is_behind_plays_faster() -> None:
    reader = Segmented(Hls(), [])
    reader.is_behind = True
    times = shown(SegmentPlayout(reader), [(number * S // FPS, 0) for number in range(100)])
    assert gaps(times)[-1] == pytest.approx(0.095, abs=0.001)


@pytest.mark.parametrize("jump", [-3600.0, 3600.0])
def test_another_timeline_goes_on_at_once(jump: float) -> None:
    arrivals = bursts(4, 4)
    arrivals = arrivals[:80] + [(pts + round(jump * S), at) for pts, at in arrivals[80:]]
    assert max(gaps(shown(SegmentPlayout(Segmented(Hls(), [])), arrivals))) < 0.2


@pytest.mark.parametrize("seconds", [0.8, 2.0, 3.6])
def test_bursts_are_found_and_shown_evenly(seconds: float) -> None:
    """From the third on. A picture is shown no later than a burst is long."""
    playout = BurstPlayout()
    arrivals = bursts(40, seconds)
    times = shown(playout, arrivals)
    pictures = round(seconds * FPS)
    assert playout.is_active
    assert max(gaps(times)[2 * pictures :]) < 0.2
    assert min(gaps(times)[2 * pictures :]) > 0.05
    assert max(delay for _, delay in times) <= seconds * S


def test_after_a_break_the_delay_stays_bounded() -> None:
    """What the network has held back for ten seconds is not shown ten seconds late for ever."""
    arrivals = [(pts, at if at < 20 * S else max(at, 30 * S)) for pts, at in bursts(40, 2)]
    times = shown(BurstPlayout(), arrivals)
    made = [pts - 1000 * S for pts, _ in arrivals]
    assert max(now - begin for (now, _), begin in zip(times[500:], made[500:])) < 4.1 * S


@pytest.mark.parametrize(
    "arrivals",
    [
        [(number * S // FPS, number * S // FPS) for number in range(300)],
        [(number * S, number * S) for number in range(30)],
        [(number * S // FPS, number // 2 * 2 * S // FPS) for number in range(300)],  # two at a time
        [(number * S // FPS, max(3 * S, number * S // FPS)) for number in range(300)],  # what waited when it was opened
        [(number * S // FPS, number * S // FPS + (S if number in (50, 150) else 0)) for number in range(300)],
        bursts(9, 6),  # longer than a live picture may be late
    ],
    ids=["steady", "slow", "pairs", "backlog", "hiccups", "long"],
)
def test_a_stream_without_bursts_is_not_delayed(arrivals: list[tuple[int, int]]) -> None:
    playout = BurstPlayout()
    order = sorted(arrivals, key=lambda row: row[1])
    assert all(delay == 0 for _, delay in shown(playout, order))
    assert not playout.is_active


def test_slow_decoding_is_lateness_and_moves_nothing() -> None:
    """Otherwise an overloaded machine would fall behind by the hour, and skip nothing."""
    playout = BurstPlayout()
    shown(playout, bursts(6, 2))
    now = 20 * S
    due = [playout.due(1012 * S + number * S // FPS, now + number * S, waited=0) for number in range(5)]
    assert [(b - a) / S for a, b in pairwise(due)] == pytest.approx([0.1] * 4, abs=0.002)
