"""Selection of calibration frames."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import cv2
import msgspec
import numpy as np
import numpy.typing as npt
import pytest

from calibration.frames import FrameSet, Sampler, SourceFrame, photos
from daemon.sources.scene import Scene
from detectors.port import DetectorError


@cache
def _drawn(seed: int, number: int) -> npt.NDArray[np.uint8]:
    pixels = Scene(320, 180, seed=seed).draw(number)
    pixels.flags.writeable = False  # tests share them
    return pixels


def _street(name: str, seed: int, count: int, step: int = 5) -> Iterator[SourceFrame]:
    """Two frames a second."""
    return (SourceFrame(name, number, _drawn(seed, number * step), number / 2) for number in range(count))


def _select(folder: Path, seed: int = 0, count: int = 40, sources: int = 4) -> FrameSet:
    sampler = Sampler(count, 12, seed)
    for number in range(sources):
        sampler.add(_street(f"street-{number}", 100 + number, 60), sources)
    return sampler.choose(folder)


def test_whole_sources_are_held_out(tmp_path: Path) -> None:
    frames = _select(tmp_path)
    own = {name: [row.index for row in frames.entries if row.source == name] for name in
           sorted({row.source for row in frames.entries})}  # fmt: skip
    held = {row.source for row in frames.entries if row.held_out}
    assert [len(held), len(own)] == [1, 4]
    assert held.isdisjoint(row.source for row in frames.entries if not row.held_out)
    assert sorted(map(len, own.values())) == [12, 13, 13, 14]
    for numbers in own.values():
        assert min(numbers) < 20
        assert max(numbers) >= 40
    other = {row.source for row in _select(tmp_path / "other", seed=3).entries if row.held_out}
    assert other != held


def test_of_two_sources_the_last_third_is_held_out(tmp_path: Path) -> None:
    frames = _select(tmp_path, count=30, sources=2)
    for name in ("street-0", "street-1"):
        before = [row.index for row in frames.entries if row.source == name and not row.held_out]
        after = [row.index for row in frames.entries if row.source == name and row.held_out]
        assert [len(before), len(after)] == [15, 6]
        assert max(before) < min(after) == pytest.approx(40, abs=4)


def test_frames_of_ten_seconds_are_one_group(tmp_path: Path) -> None:
    """Frames of one source; a photo is a group of its own."""
    frames = _select(tmp_path)
    for row in frames.entries:
        assert row.group == f"{row.source}/{row.index // 20}"
    part = frames.part(tmp_path, held_out=True)
    assert (part.unit, len(part.groups), len(set(part.groups))) == ("blocks of 10 s", 12, 3)
    assert SourceFrame("folder", 7, np.empty((1, 1, 3), np.uint8)).group == "folder/7"


def test_half_of_the_frames_are_a_uniform_sample(tmp_path: Path) -> None:
    """Every third picture is noise, the most different kind: it does not fill the selection."""
    chance = np.random.default_rng(4)
    scene = Scene(320, 180, seed=7)
    sampler = Sampler(40, 0, 0)
    snow = [chance.integers(0, 2, (9, 16, 3), dtype=np.uint8) * 255 for _ in range(100)]
    pictures = [snow[number // 3] if number % 3 == 2 else scene.draw(5 * number) for number in range(300)]
    sampler.add((SourceFrame("gate", number, picture, number * 10.0) for number, picture in enumerate(pictures)), 1)
    frames = sampler.choose(tmp_path)
    streets = sum(row.index % 3 != 2 for row in frames.entries)
    assert len(frames.entries) == 40
    assert 10 <= streets <= 20


def test_a_part_is_evenly_spaced(tmp_path: Path) -> None:
    frames = _select(tmp_path)
    every, some = (frames.part(tmp_path, held_out=False, limit=limit) for limit in (None, 10))
    assert some.names == every.names[::4]
    assert [picture.shape for picture in some] == [(180, 320, 3)] * 10


def test_the_same_seed_selects_the_same_frames(tmp_path: Path) -> None:
    first, second, other = (_select(tmp_path / name, seed) for name, seed in (("a", 1), ("b", 1), ("c", 2)))
    assert first == second
    assert [entry.index for entry in first.entries] != [entry.index for entry in other.entries]


def test_similar_frames_are_selected_once(tmp_path: Path) -> None:
    sampler = Sampler(60, 0, 0)
    moving = list(_street("gate", 1, 40))
    sampler.add(moving + [SourceFrame("gate", 40 + number, moving[0].bgr) for number in range(40)], 1)
    frames = sampler.choose(tmp_path)
    assert len(frames.entries) == 40
    assert frames.alike == 40


def test_changed_frames_are_refused(tmp_path: Path) -> None:
    frames = _select(tmp_path)
    assert msgspec.json.decode((tmp_path / "manifest.json").read_bytes(), type=FrameSet) == frames
    assert len(list(frames.part(tmp_path, held_out=False))) == 40
    (tmp_path / frames.entries[0].file).write_bytes(b"another")
    with pytest.raises(DetectorError, match="was changed after"):
        list(frames.part(tmp_path, held_out=False))


@pytest.mark.parametrize(
    ("pictures", "words"),
    [
        ([np.full((180, 320, 3), 90, np.uint8)] * 50, "no usable frame among 50"),
        ([Scene(320, 180, seed=1).draw(5 * number) for number in range(8)], "only 8 usable frames of 8"),
        ([Scene(320, 180, seed=1).draw(0)] * 50, "the frames are too similar: 1 of 50 differ"),
    ],
)
def test_too_few_frames_are_refused(tmp_path: Path, pictures: list[np.ndarray], words: str) -> None:
    sampler = Sampler(40, 0, 0)
    sampler.add((SourceFrame("gate", number, picture) for number, picture in enumerate(pictures)), 1)
    with pytest.raises(DetectorError, match=words):
        sampler.choose(tmp_path)


def test_photos_are_copied(tmp_path: Path) -> None:
    """Copied byte for byte; an unreadable one is counted."""
    source = tmp_path / "photos"
    source.mkdir()
    for number in range(33):
        cv2.imwrite(str(source / f"{number:02}.png"), Scene(320, 180, seed=number).draw(3))
    (source / "99.jpg").write_bytes(b"not a photo")
    sampler = Sampler(40, 0, 0)
    sampler.add(photos(source), 1)
    frames = sampler.choose(tmp_path / "out")
    assert (len(frames.entries), frames.unusable) == (33, 1)
    assert frames.part(tmp_path / "out", held_out=False).unit == "photos"
    first = frames.entries[0]
    assert (tmp_path / "out" / first.file).read_bytes() == (source / f"{first.index:02}.png").read_bytes()
    with pytest.raises(DetectorError, match="no photo in"):
        next(photos(tmp_path / "out" / ".."))
