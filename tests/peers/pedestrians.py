"""Drawn sequences of pedestrians in MOTChallenge's layout: where they walk, and the boxes that a detector might give.

People walk on the ground in front of a camera, alone or side by side. They turn, stop, change their minds, and hide
each other; poles hide them as well. The detector misses those that are hidden, for some frames in a row, and is less
sure of them; it cuts boxes to what it sees, trembles, and finds people where there are none. Everything follows from
the seed. The same walk may be seen at several rates.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
_STEP_S = 1 / 30  # of a walk
_GRID = 320  # cells in a row, to find what is hidden
_NMS = 0.65


@dataclass(frozen=True)
class Place:
    """What a camera looks at.

    Attributes:
        size: of the picture, pixels.
        height_m, pitch, focal: of the camera: above the ground, downwards in radians, in pixels.
        near_m, far_m: the ground that people walk on.
        people: their number.
        stands: how often they stand still; a share.
        poles: their number.
        shake: of the camera, pixels.
    """

    name: str
    size: tuple[int, int]
    height_m: float
    pitch: float
    focal: float
    near_m: float
    far_m: float
    people: int
    stands: float
    poles: int
    shake: float = 0.0

    def half_width_m(self, away: Floats | float) -> Floats | float:
        """Half of what the picture shows at a distance."""
        return away * self.size[0] / 2 / self.focal


PLACES = (
    Place("square", (768, 576), 6.0, 0.28, 700.0, 9.0, 45.0, 14, 0.25, 2),
    Place("street", (1920, 1080), 3.0, 0.10, 1500.0, 5.0, 35.0, 18, 0.15, 3),
    Place("hall", (1280, 720), 4.0, 0.35, 800.0, 5.0, 22.0, 20, 0.35, 2),
    Place("mast", (1280, 720), 4.5, 0.20, 1000.0, 6.0, 40.0, 12, 0.20, 2, shake=2.0),
)


def write_sequence(folder: Path, place: Place, seed: int, fps: float, seconds: float) -> None:
    """Write `gt/gt.txt`, `det/det.txt` and `seqinfo.ini`."""
    truth, found = [], []
    frames = _Camera(place, seed, fps).frames(seconds)
    for number, (people, boxes) in enumerate(frames, 1):
        truth += [f"{number},{id:.0f},{_row(box)},1,1,{seen:.2f}" for id, *box, seen in people.tolist()]
        found += [f"{number},-1,{_row(box)},{confidence:.3f}" for *box, confidence in boxes.tolist()]
    for name, rows in (("gt", truth), ("det", found)):
        (folder / name).mkdir(parents=True)
        (folder / name / f"{name}.txt").write_text("\n".join(rows) + "\n")
    (folder / "seqinfo.ini").write_text(f"[Sequence]\nframeRate={fps:g}\nseqLength={len(frames)}\n")


def _row(box: list[float]) -> str:
    """Left, top, width and height; pixels count from 1."""
    return f"{box[0] + 1:.2f},{box[1] + 1:.2f},{box[2] - box[0]:.2f},{box[3] - box[1]:.2f}"


# --- walks -----------------------------------------------------------------------------------------------------------


class _Walks:
    """Where people are on the ground.

    Attributes:
        at: (people, steps, 2) metres to the right and away; not a number before somebody comes.
        tall, wide: of each, metres; the width as a share of the height.
    """

    def __init__(self, place: Place, random: np.random.Generator, seconds: float) -> None:
        self._place, self._random = place, random
        steps = int(seconds / _STEP_S) + 2
        self.at = np.full((place.people, steps, 2), np.nan)
        self.tall = random.normal(1.72, 0.09, place.people).clip(1.45, 1.95)
        self.wide = random.uniform(0.36, 0.46, place.people)
        leader = 0
        for person in range(place.people):
            if person and random.random() < 0.3:
                self.at[person] = self._beside(self.at[leader])
            else:
                leader = person
                self._walk(self.at[person])

    def _beside(self, leader: Floats) -> Floats:
        """The way of somebody who walks beside another one."""
        random, seconds = self._random, np.arange(len(leader)) * _STEP_S
        side = random.uniform(0.5, 0.9) * random.choice([-1, 1])
        sway, lag = random.uniform(0, 2 * np.pi), random.uniform(-0.25, 0.25)
        offset = side + 0.1 * np.sin(0.7 * seconds + sway), lag + 0.1 * np.sin(0.5 * seconds + 2 * sway)
        beside: Floats = leader + np.stack(offset, axis=1)
        return beside

    def _goal(self, edge_share: float) -> Floats:
        """A place on the ground, beyond the picture's edge in this share of cases."""
        place, random = self._place, self._random
        near, far = place.near_m, place.far_m
        away = random.uniform(near, far) if random.random() < 0.5 else np.exp(random.uniform(np.log(near), np.log(far)))
        edge = random.random() < edge_share
        return np.array(
            [place.half_width_m(away) * (random.choice([-1.15, 1.15]) if edge else random.uniform(-0.85, 0.85)), away]
        )

    def _walk(self, way: Floats) -> None:
        """Fill in the way of one person, who accelerates by 2 m/s2 at most."""
        place, random = self._place, self._random
        at, goal, speed = self._goal(0.3), self._goal(0.0), np.zeros(2)
        pace = 1.3 * float(np.clip(random.normal(1.0, 0.2), 0.45, 1.6))
        pace = 2.9 if random.random() < 0.05 else pace  # runs
        rest = random.uniform(0, 5) if random.random() < place.stands else 0.0
        begin = 0 if random.random() < 0.7 else int(random.uniform(0, 0.6) * len(way))
        for step in range(begin, len(way)):
            way[step] = at
            there = float(np.hypot(*(goal - at)))
            if there < 0.5 or random.random() < _STEP_S / 25:  # is there, or changes the mind
                goal = self._goal(0.35 if there < 0.5 else 0.0)
            if random.random() < (2 * place.stands if there < 0.5 else _STEP_S / 40):
                rest = random.exponential(3.0)
            wanted = np.zeros(2) if rest > 0 else (goal - at) / max(there, 0.1) * pace
            rest -= _STEP_S
            push = (wanted - speed) / 0.5
            speed = speed + push * min(1.0, 2.0 / max(float(np.hypot(*push)), 1e-9)) * _STEP_S
            at = at + speed * _STEP_S + random.normal(0, 0.004, 2)


# --- what is seen ----------------------------------------------------------------------------------------------------


class _Camera:
    """Shows a walk at a rate."""

    def __init__(self, place: Place, seed: int, fps: float) -> None:
        self._place, self._fps = place, fps
        self._scene = np.random.default_rng((seed, place.people, 0))
        self._random = np.random.default_rng((seed, place.people, round(1000 * fps)))

    def frames(self, seconds: float) -> list[tuple[Floats, Floats]]:
        """Of each frame the people (n, 6), with id, corners and the share that is seen; and the boxes (m, 5), with
        corners and confidence."""
        walks, place = _Walks(self._place, self._scene, seconds), self._place
        detector = _Detector(place, self._scene, self._random, self._fps)
        poles = self._scene.uniform((0.15, 0.2, 0.25), (0.85, 0.6, 0.5), (place.poles, 3))  # across, away, metres wide
        shake, calm = np.zeros(2), np.exp(-1 / self._fps / 0.4)
        result = []
        for number in range(round(seconds * self._fps)):
            shake = shake * calm + self._random.normal(0, place.shake * np.sqrt(1 - calm**2), 2)
            boxes, away = self._boxes(walks, number / self._fps)
            people, visible = self._visible(boxes + np.tile(shake, 2), away, poles)
            result.append((people, detector.boxes(people, visible)))
        return result

    def _boxes(self, walks: _Walks, now: float) -> tuple[Floats, Floats]:
        """Corners (n, 4) and distance of all people. Their width swings with their steps."""
        step, share = divmod(now / _STEP_S, 1.0)
        at = walks.at[:, int(step)] * (1 - share) + walks.at[:, int(step) + 1] * share
        feet_x, feet = self._projected(at[:, 0], np.zeros(len(at)), at[:, 1])
        _, head = self._projected(at[:, 0], walks.tall, at[:, 1])
        wide = walks.wide * (feet - head) * (1 + 0.12 * np.sin(2 * np.pi * 0.9 * now + np.arange(len(at))))
        return np.stack((feet_x - wide / 2, head, feet_x + wide / 2, feet), axis=1), at[:, 1]

    def _projected(self, x: Floats, up: Floats, away: Floats) -> tuple[Floats, Floats]:
        place = self._place
        down, cos, sin = place.height_m - up, np.cos(place.pitch), np.sin(place.pitch)
        depth = away * cos + down * sin
        return (
            place.size[0] / 2 + place.focal * x / depth,
            place.size[1] / 2 + place.focal * (down * cos - away * sin) / depth,
        )

    def _visible(self, boxes: Floats, away: Floats, poles: Floats) -> tuple[Floats, list[npt.NDArray[np.bool_]]]:
        """Those in the picture, and for each the cells of the box in which the person is seen."""
        width, height = self._place.size
        cut = boxes.clip(0, [width, height, width, height])
        with np.errstate(invalid="ignore"):
            inside = np.prod(cut[:, 2:] - cut[:, :2], axis=1) / np.prod(boxes[:, 2:] - boxes[:, :2], axis=1)
            ids = np.flatnonzero((inside > 0.3) & (away > 1.5))
        cell = width / _GRID
        shown = np.full((int(height / cell) + 1, _GRID + 1), -1)
        parts = {id: _cells(cut[id], cell) for id in ids.tolist()}
        span = self._place.far_m - self._place.near_m
        behind = [(away[id], id) for id in parts] + [
            (self._place.near_m + pole[1] * span, -2 - number) for number, pole in enumerate(poles)
        ]
        for far, id in sorted(behind, reverse=True):
            shown[parts[id] if id >= 0 else self._pole(poles[-2 - id], far, cell)] = id
        visible = [shown[parts[id]] == id for id in ids.tolist()]
        seen = [cells.mean() * min(1.0, 1.2 * inside[id]) for id, cells in zip(ids.tolist(), visible)]
        return np.column_stack((ids + 1, cut[ids], seen)).reshape(-1, 6), visible

    def _pole(self, pole: Floats, away: float, cell: float) -> tuple[slice, slice]:
        width = self._place.size[0]
        _, foot = self._projected(np.zeros(1), np.zeros(1), np.full(1, away))
        half = pole[2] / 2 * self._place.focal / away
        left, right = max(0.0, pole[0] * width - half), min(width - 1.0, pole[0] * width + half)
        return slice(0, max(0, int(foot[0] / cell)) + 1), slice(int(left / cell), int(right / cell) + 1)


def _cells(box: Floats, cell: float) -> tuple[slice, slice]:
    """A body is narrower than its box."""
    margin = 0.1 * (box[2] - box[0])
    left, right = (box[0] + margin) / cell, (box[2] - margin) / cell
    return slice(int(box[1] / cell), int(box[3] / cell) + 1), slice(int(left), int(right) + 1)


class _Detector:
    """Boxes as a detector gives them; its mistakes last for some time."""

    def __init__(self, place: Place, scene: np.random.Generator, random: np.random.Generator, fps: float) -> None:
        self._size, self._random, self._dt = place.size, random, 1 / fps
        self._error, self._doubt = np.zeros((place.people, 4)), np.zeros(place.people)
        self._misses = np.zeros(place.people, np.bool_)
        self._cuts = random.random(place.people) < 0.7  # boxes of these people, to what is seen
        ghosts = int(scene.integers(0, 3))
        self._ghosts = scene.uniform((0.05, 0.3, 0.08), (0.95, 0.95, 0.14), (ghosts, 3))  # across, down, tall
        self._haunts = np.zeros(ghosts, np.bool_)

    def boxes(self, people: Floats, visible: list[npt.NDArray[np.bool_]]) -> Floats:
        """(m, 5) the strongest first, after NMS."""
        found = [
            box for person, cells in zip(people, visible) if (box := self._box(person, cells)) is not None
        ] + self._false()
        rows = np.array(found).reshape(-1, 5)
        width, height = self._size
        rows[:, :4] = rows[:, :4].clip(0, [width, height, width, height])
        rows = rows[(rows[:, 2] - rows[:, 0] > 3) & (rows[:, 3] - rows[:, 1] > 6) & (rows[:, 4] >= 0.1)]
        rows = rows[np.argsort(-rows[:, 4], kind="stable")]
        kept: list[int] = []
        for number, row in enumerate(rows):
            if all(_overlap(row, rows[other]) < _NMS for other in kept):
                kept.append(number)
        strongest: Floats = rows[kept]
        return strongest

    def _box(self, person: Floats, cells: npt.NDArray[np.bool_]) -> list[float] | None:
        """The box of one person; None if it is missed."""
        random, id, seen = self._random, int(person[0]) - 1, person[5]
        side = np.tile(person[3:5] - person[1:3], 2)
        if random.random() < 1 - np.exp(-self._dt / 0.5):
            self._misses[id] = random.random() < (0.05 if seen > 0.7 else 0.2)
        keep = np.exp(-self._dt / 0.2)
        self._error[id] = self._error[id] * keep + random.normal(0, 0.025 * np.sqrt(1 - keep**2), 4)
        self._doubt[id] = self._doubt[id] * keep + random.normal(0, 0.1 * np.sqrt(1 - keep**2))
        large = 1 / (1 + np.exp((22 - side[1]) / 6))
        chance = np.interp(seen, [0.08, 0.25, 0.5, 0.8, 1], [0.0, 0.35, 0.8, 0.96, 0.98]) * (0.5 + 0.5 * large)
        if self._misses[id] or random.random() > chance:
            return None
        box = person[1:5] + side * (self._error[id] * (3 - 2 * seen) + random.normal(0, 0.008, 4))
        if self._cuts[id] and cells.any() and cells.mean() < 0.75:
            box += 0.6 * side * _hidden(cells)
        sure = np.interp(seen, [0.1, 0.3, 0.6, 0.9], [0.18, 0.42, 0.7, 0.85]) * (0.7 + 0.3 * large)
        return [*box.tolist(), float(np.clip(sure + self._doubt[id], 0.02, 0.97))]

    def _false(self) -> list[list[float]]:
        """Boxes where nobody is: now and then anywhere, and for a while at the same places."""
        random, (width, height) = self._random, self._size
        turns = random.random(len(self._ghosts)) < 1 - np.exp(-self._dt / 1.0)
        self._haunts = np.where(turns, random.random(len(self._ghosts)) < 0.25, self._haunts)
        shown = self._ghosts[self._haunts & (random.random(len(self._ghosts)) < 0.5)]
        if random.random() < 0.06:
            shown = np.vstack((shown, random.uniform((0, 0.3, 0.08), (1, 1, 0.3))))
        rows = []
        for across, down, tall in shown:
            x, y, half = across * width, down * height, 0.2 * tall * height
            confidence = float(np.clip(random.normal(0.32, 0.11), 0.02, 0.9))
            rows.append([x - half, y - tall * height, x + half, y, confidence])
        return rows


def _hidden(cells: npt.NDArray[np.bool_]) -> Floats:
    """The shares of a box in which nothing is seen at its left, top, right and bottom, as moves of its edges."""
    (top, bottom), (left, right) = (np.flatnonzero(cells.any(axis=axis))[[0, -1]] for axis in (1, 0))
    rows, columns = cells.shape
    moves: Floats = np.array([left / columns, top / rows, (right + 1) / columns - 1, (bottom + 1) / rows - 1])
    return moves


def _overlap(one: Floats, other: Floats) -> float:
    """IoU."""
    sides = np.minimum(one[2:4], other[2:4]) - np.maximum(one[:2], other[:2])
    common = float(np.prod(sides.clip(0)))
    return common / (float(np.prod(one[2:4] - one[:2])) + float(np.prod(other[2:4] - other[:2])) - common)
