"""Recording of real RTSP streams by a whole daemon: what a server sent is on disk, and the rest has a cause."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from daemon.recording.records import Gap
from lookoutd.messages import Clip, Event, Message
from tests.support import clips
from tests.support.daemon import Lookout, all_of, is_state, receive_until, wait_until
from tests.support.recorded import SECOND, encoded, pictures_of
from tests.support.rtsp import RtspServer
from tests.support.stored import Stored

pytestmark = [pytest.mark.needs("ffmpeg", "rtsp"), pytest.mark.slow(3)]
_KINDS = ("h264", "h264-b", "hevc")


@contextmanager
def servers(videos: Mapping[str, Path]) -> Iterator[Mapping[str, RtspServer]]:
    """One for H.264 and one for HEVC, by kind."""
    avc = RtspServer({kind: path for kind, path in videos.items() if kind != "hevc"})
    hevc = RtspServer({"hevc": videos["hevc"]}, codec="h265")
    try:
        yield {kind: hevc if kind == "hevc" else avc for kind in videos}
    finally:
        avc.kill()
        hevc.kill()


@pytest.mark.parametrize(
    ("processes", "seconds"), [(0, 6), (1, 6), pytest.param(0, 600, marks=pytest.mark.long),
                               pytest.param(1, 600, marks=pytest.mark.long)],
)  # fmt: skip
def test_every_packet_is_in_the_files_once(
    tmp_path: Path, folder_of_all: Path, processes: int, seconds: int
) -> None:
    """In the order in which the server sent them, of the stream that is analysed or of another one. Files play while
    they are written."""
    videos = {kind: encoded(folder_of_all, kind, seconds=seconds) for kind in _KINDS}
    with servers(videos) as served:
        urls = {kind: served[kind].url(kind) for kind in _KINDS}
        sources: list[dict[str, Any]] = [{"id": kind, "type": "av", "url": url} for kind, url in urls.items()]
        sources.append({"id": "main", "type": "av", "url": urls["h264"], "record": {"url": urls["hevc"]}})
        config = _config(tmp_path, sources, capture_processes=processes, record={"mode": "continuous"})
        stored, names = Stored(tmp_path / "store"), [row["id"] for row in sources]
        with Lookout(tmp_path, config) as lookout, lookout.subscribe("status") as subscriber:
            receive_until(subscriber, all_of(*(is_state(name, "up") for name in names)))
            for much in (1.5, 3.0):
                wait_until(lambda: all(stored.recorded_s(name) > much for name in names), f"{much} s are written")  # noqa: B023
                assert all(stored.check_plays(stored.files(name)[-1].path) for name in names)
            ends = all_of(*(is_state(name, "down") for name in names))
            receive_until(subscriber, ends, timeout_s=seconds + 60)
            wait_until(lambda: all(_ends_with(stored, name) for name in names), "the first connections are written")
            assert lookout.stop() == 0
            assert "Traceback" not in lookout.log()
    for name in names:
        sent = pictures_of(videos[_KINDS[2] if name == "main" else name])
        first, *later = stored.packets(name).values()
        assert [packet.units for packet in first] == sent, name
        for session in later:  # began while this one was looked at
            assert [packet.units for packet in session] == sent[: len(session)], name
        assert {gap.cause for gap in stored.gaps(name)} <= {"source_down", "daemon_down"}
        stored.check_whole(name)
    stored.check_sound()


def _config(folder: Path, sources: list[dict[str, Any]], record: dict[str, Any], **more: Any) -> dict[str, object]:
    stores = {"main": {"path": str(folder / "store"), "min_free_gib": 0}}
    return {
        "sources": sources,
        "model": {"path": "none", "backend": "fake"},
        "reconnect": {"initial_s": 0.1, "max_s": 0.3},
        "record": {"stores": stores, **record},
        **more,
    }


def _ends_with(stored: Stored, source: str) -> bool:
    """Whether its first connection is over, and written."""
    return bool(stored.files(source)) and stored.files(source)[0].reason is not None


def _flashes(path: Path, at: tuple[float, ...] = ()) -> None:
    """The middle is grey, and white for half a second at some times: the fake detector sees something."""
    grey, white = ("drawbox=iw/4:ih/4:iw/2:ih/2:{}:fill".format(colour) for colour in ("gray", "white"))
    shown = "+".join(rf"between(t\,{begin}\,{begin + 0.5})" for begin in at)
    clips.ffmpeg(
        "-f", "lavfi", "-i", f"testsrc2=size=320x180:rate=15:duration=16,{grey},{white}:enable='{shown}'",
        "-c:v", "libx264", "-preset", "ultrafast", "-tune", "zerolatency", "-g", "15", "-pix_fmt", "yuv420p", path,
    )  # fmt: skip
