"""Which frames are taken to calibrate with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import cv2
import msgspec
import numpy as np
import pytest

from calibration.frames import FrameSet, Sampler, Seen, photos
from daemon.sources.scene import Scene
from detectors.port import DetectorError


def _street(name: str, seed: int, count: int, step: int = 5) -> Iterator[Seen]:
    scene = Scene(320, 180, seed=seed)
    return (Seen(name, number, scene.draw(number * step)) for number in range(count))


def _take(folder: Path, seed: int = 0, count: int = 40) -> FrameSet:
    sampler = Sampler(count, 12, seed)
    for number in range(4):
        sampler.take(_street(f"street-{number}", 100 + number, 60), 4)
    return sampler.choose(folder)


def test_all_sources_and_times_have_their_part(tmp_path: Path) -> None:
    frames = _take(tmp_path)
    assert len(frames.entries) == 52
    assert frames.count(held_out=True) == 12
    for number in range(4):
        own = [entry.index for entry in frames.entries if entry.source == f"street-{number}"]
        assert len(own) == 13
        assert min(own) < 20
        assert max(own) >= 40


def test_the_same_seed_takes_the_same(tmp_path: Path) -> None:
    first, second, other = (_take(tmp_path / name, seed) for name, seed in (("a", 1), ("b", 1), ("c", 2)))
    assert first == second
    assert [entry.index for entry in first.entries] != [entry.index for entry in other.entries]


def test_frames_that_show_the_same_are_taken_once(tmp_path: Path) -> None:
    sampler = Sampler(60, 0, 0)
    moving = list(_street("gate", 1, 40))
    sampler.take(moving + [Seen("gate", 40 + number, moving[0].bgr) for number in range(40)], 1)
    frames = sampler.choose(tmp_path)
    assert len(frames.entries) == 40
    assert frames.alike == 40


def test_the_manifest_has_the_hashes_and_keeps_them(tmp_path: Path) -> None:
    frames = _take(tmp_path)
    assert msgspec.json.decode((tmp_path / "manifest.json").read_bytes(), type=FrameSet) == frames
    assert len(list(frames.read(tmp_path, held_out=False))) == 40
    (tmp_path / frames.entries[0].file).write_bytes(b"another")
    with pytest.raises(DetectorError, match="was changed since"):
        list(frames.read(tmp_path, held_out=False))


@pytest.mark.parametrize(
    ("pictures", "words"),
    [
        ([np.full((180, 320, 3), 90, np.uint8)] * 50, "no usable frame among 50"),
        ([Scene(320, 180, seed=1).draw(5 * number) for number in range(8)], "only 8 usable frames of 8"),
        ([Scene(320, 180, seed=1).draw(0)] * 50, "the frames are all alike: 1 of 50 differ"),
    ],
)
def test_too_little_is_refused(tmp_path: Path, pictures: list[np.ndarray], words: str) -> None:
    sampler = Sampler(40, 0, 0)
    sampler.take((Seen("gate", number, picture) for number, picture in enumerate(pictures)), 1)
    with pytest.raises(DetectorError, match=words):
        sampler.choose(tmp_path)


def test_photos_stay_as_they_are(tmp_path: Path) -> None:
    """Byte for byte; one that cannot be read is counted."""
    source = tmp_path / "photos"
    source.mkdir()
    for number in range(33):
        cv2.imwrite(str(source / f"{number:02}.png"), Scene(320, 180, seed=number).draw(3))
    (source / "99.jpg").write_bytes(b"not a photo")
    sampler = Sampler(40, 0, 0)
    sampler.take(photos(source), 1)
    frames = sampler.choose(tmp_path / "out")
    assert (len(frames.entries), frames.unusable) == (33, 1)
    first = frames.entries[0]
    assert (tmp_path / "out" / first.file).read_bytes() == (source / f"{first.index:02}.png").read_bytes()
    with pytest.raises(DetectorError, match="no photo in"):
        next(photos(tmp_path / "out" / ".."))
