"""What a packet tap is promised, by each kind of source that has packets."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import av
import pytest
from av.packet import Packet

from daemon.config.sources import AvConfig
from daemon.redact import Url
from daemon.sources.ffmpeg import AvSource
from daemon.sources.port import DecodeBudget, Skipped, next_picture
from tests.support.hardware import FakeGpu

pytestmark = pytest.mark.needs("ffmpeg")


@pytest.fixture(params=["cpu", "nvdec"])
def source(request: pytest.FixtureRequest, clip: Path) -> AvSource:
    return AvSource(AvConfig(id="s", url=Url(str(clip)), decode=request.param), FakeGpu().pool)


def _packets(clip: Path) -> list[tuple[int | None, bytes]]:
    with av.open(str(clip)) as container:
        return [(packet.pts, bytes(packet)) for packet in container.demux(video=0) if packet.size]


def test_it_sees_every_packet_once_as_it_was_sent(source: AvSource, clip: Path) -> None:
    seen: list[tuple[int | None, bytes]] = []

    def tap(packet: Packet) -> None:  # type: ignore[type-arg]
        if packet.size:
            seen.append((packet.pts, bytes(packet)))

    with closing(source.open()) as reader:
        reader.set_tap(tap)
        while next_picture(reader) is not None:
            pass
    assert seen == _packets(clip)


def test_it_sees_those_that_are_skipped(source: AvSource, clip: Path) -> None:
    seen: list[bool] = []
    budget = DecodeBudget()
    with closing(source.open(budget)) as reader:
        reader.set_tap(lambda packet: seen.append(packet.size > 0))
        assert next_picture(reader) is not None
        budget.skip_ratio = 0.5
        skipped = 0
        while (picture := reader.read()) is not None:
            skipped += isinstance(picture, Skipped)
    assert skipped > 0
    assert sum(seen) == len(_packets(clip))


def test_one_that_comes_late_and_goes_is_fine(source: AvSource) -> None:
    seen: list[int | None] = []
    with closing(source.open()) as reader:
        for number in range(20):
            reader.set_tap((lambda packet: seen.append(packet.pts)) if 5 <= number < 10 else None)
            assert next_picture(reader) is not None
    assert 0 < len(seen) <= 20
