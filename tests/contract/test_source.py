"""What every source promises, run over each kind that needs no hardware."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest

from daemon.config.sources import AvConfig, CameraConfig, SourceConfig, SyntheticConfig
from daemon.errors import SourceError
from daemon.redact import Url
from daemon.sources.factory import make_source
from daemon.sources.port import Source, next_picture
from tests.support.hardware import FakeGpu, bgr_of

pytestmark = pytest.mark.needs("ffmpeg")
Make = Callable[[Path], SourceConfig]
KINDS: dict[str, Make] = {
    "av": lambda clip: AvConfig(id="s", url=Url(str(clip)), decode="cpu"),
    "nvdec": lambda clip: AvConfig(id="s", url=Url(str(clip)), decode="nvdec"),
    # OpenCV opens a file as it opens a camera: the same calls, an end where a camera would be unplugged.
    "camera": lambda clip: CameraConfig(id="s", device=str(clip)),
    "synthetic": lambda _: SyntheticConfig(id="s", width=320, height=180, fps=15, frames=45),
}


@pytest.fixture(params=list(KINDS))
def config(request: pytest.FixtureRequest, clip: Path) -> SourceConfig:
    return KINDS[request.param](clip)


def _source(config: SourceConfig) -> Source:
    return make_source(config, FakeGpu().pool)


def _read(config: SourceConfig) -> list[tuple[int | None, tuple[int, ...]]]:
    pictures = []
    with closing(_source(config).open()) as reader:
        try:
            while (picture := next_picture(reader)) is not None:
                pictures.append((picture.pts, bgr_of(picture.load()).shape))
        except SourceError:
            assert isinstance(config, CameraConfig)
    return pictures


def test_every_picture_comes_once(config: SourceConfig) -> None:
    pictures = _read(config)
    assert len(pictures) == 45
    assert {shape for _, shape in pictures} == {(180, 320, 3)}


def test_the_format_is_told(config: SourceConfig) -> None:
    with closing(_source(config).open()) as reader:
        assert (reader.format.width, reader.format.height) == (320, 180)
        assert reader.format.fps == pytest.approx(15)


def test_times_grow_by_the_frame(config: SourceConfig) -> None:
    times = [pts for pts, _ in _read(config) if pts is not None]
    assert all(abs(b - a - 1e9 / 15) < 2e6 for a, b in pairwise(times))


def test_it_can_be_opened_again_and_again(config: SourceConfig) -> None:
    source = _source(config)
    first = []
    for _ in range(3):
        with closing(source.open()) as reader:
            picture = next_picture(reader)
            assert picture is not None
            first.append(bgr_of(picture.load()).tobytes())
    assert len(set(first)) == 1


def test_closing_twice_is_fine(config: SourceConfig) -> None:
    reader = _source(config).open()
    reader.close()
    reader.close()
