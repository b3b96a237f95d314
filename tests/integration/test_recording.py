"""Recording of real RTSP streams by a whole daemon: what a server sent is on disk, and the rest has a cause."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import av
import httpx
import pytest

from daemon.recording.records import Gap
from lookout.messages import Clip, Detections, Event, Message
from tests.support import clips
from tests.support.daemon import PATIENCE_S, Lookout, all_of, is_state, receive_until, wait_until
from tests.support.ports import free_port
from tests.support.recorded import SECOND, encoded, pictures_of
from tests.support.rtsp import RtspServer
from tests.support.stored import Stored

pytestmark = [pytest.mark.needs("ffmpeg", "rtsp"), pytest.mark.slow(3)]
_KINDS = ("h264", "h264-b", "hevc")
_VIEW = "a-token-that-may-view-only"
_FPS = 15  # of the clip of flashes


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


@pytest.mark.timeout(1500)
@pytest.mark.parametrize(
    ("processes", "seconds"),
    [(0, 6), *(pytest.param(*row, marks=pytest.mark.long) for row in ((1, 6), (0, 600), (1, 600)))],
)
def test_every_packet_is_in_the_files_once(tmp_path: Path, folder_of_all: Path, processes: int, seconds: int) -> None:
    """In the order in which the server sent them, of the stream that is analysed or of another one. Files play while
    they are written. Beside them lie the boxes that were sent of their pictures."""
    videos = {kind: encoded(folder_of_all, kind, seconds=seconds) for kind in _KINDS}
    with servers(videos) as served:
        urls = {kind: served[kind].url(kind) for kind in _KINDS}
        sources: list[dict[str, Any]] = [{"id": kind, "type": "av", "url": url} for kind, url in urls.items()]
        sources.append({"id": "main", "type": "av", "url": urls["h264"], "record": {"url": urls["hevc"]}})
        config = _config(
            tmp_path, sources, capture_processes=processes, record={"mode": "continuous"}, tracking={"enabled": True}
        )
        stored, names = Stored(tmp_path / "store"), [row["id"] for row in sources]
        with Lookout(tmp_path, config) as lookout, lookout.subscribe("status", "detections") as subscriber:
            messages = receive_until(subscriber, all_of(*(is_state(name, "up") for name in names)))
            for much in (1.5, 3.0):
                wait_until(lambda: all(stored.recorded_s(name) > much for name in names), f"{much} s are written")  # noqa: B023
                assert all(stored.check_plays(stored.files(name)[-1].path) for name in names)
            ends = all_of(*(is_state(name, "down") for name in names))
            messages += receive_until(subscriber, ends, timeout_s=seconds + 60)
            wait_until(lambda: all(_ends_with(stored, name) for name in names), "the first connections are written")
            assert lookout.stop() == 0
            assert "Traceback" not in lookout.log()
    for name in names:
        sent = pictures_of(videos[_KINDS[2] if name == "main" else name])
        first, *later = stored.packets(name).values()
        assert [packet.units for packet in first] == sent, name
        _check_boxes(stored, name, [row for row in messages if isinstance(row, Detections) and row.source == name])
        for session in later:  # began while this one was looked at
            assert [packet.units for packet in session] == sent[: len(session)], name
        assert {gap.cause for gap in stored.gaps(name)} <= {"source_down", "daemon_down"}
        stored.check_whole(name)
    stored.check_sound()


def _check_boxes(stored: Stored, source: str, messages: list[Detections]) -> None:
    """Each message has its boxes beside the picture, if it is recorded; of another stream all have."""
    seen, recorded = stored.seen(source), stored.packets(source)
    pictures = {(session, round(packet.pts / 1e6)) for session, rows in recorded.items() for packet in rows}
    wanted = [row for row in messages if source == "main" or (row.session, round((row.pts or 0) / 1e6)) in pictures]
    assert len(wanted) > 0.8 * len(messages) > 50
    for row in wanted:
        if row.pts is None or (row.session, row.pts) not in seen:
            assert source == "main" or row.pts is None, row  # its other stream may have begun later
            continue
        one = seen[row.session, row.pts]
        assert (one.frame.seq, one.frame.captured_at, one.frame.clock) == (row.seq, row.captured_at, row.clock)
        assert one.tracks is not None
        ids = [id or None for id in one.tracks.id.tolist()]
        found = zip(one.xyxy.tolist(), one.confidence.tolist(), one.class_id.tolist(), ids)
        assert [*found] == [([*box.box], box.confidence, box.class_id, box.track_id) for box in row.detections]
        assert one.served.model == row.model


def test_an_event_has_its_clip(tmp_path: Path, folder_of_all: Path) -> None:
    """Two that come close together share one, a later one has its own. Nothing else is kept. The video is where the
    event says."""
    video = clips.once(folder_of_all, "flashes.mkv", _flashes)
    server = RtspServer({"cam": video})
    rules = [{"name": "seen", "type": "object", "labels": ["bright"]}]
    source = {"id": "cam", "type": "av", "url": server.url("cam"), "rules": rules}
    model = {"path": "none", "backend": "fake", "confidence": 0.8}
    port = free_port()
    record = {"mode": "events", "pre_s": 1.0, "post_s": 0.5, "port": port}
    config = _config(tmp_path, [source], record=record, model=model)
    config["tracking"] = {"enabled": True, "floor": 0.8, "timeout_s": 0.2, "memory_s": 0.2}
    config["http"] = {"tokens": [{"name": "screen", "role": "view", "token": _VIEW}]}
    stored = Stored(tmp_path / "store")
    try:
        with Lookout(tmp_path, config) as lookout, lookout.subscribe("events", "clips", "status") as subscriber:
            ready: list[Clip] = []
            messages = receive_until(subscriber, partial(_is_ready, ready, 2))
            rows = stored.check_whole("cam")
            seen = [row for row in messages if isinstance(row, Event)]
            videos = {row.id: _video(port, row.clip or "") for row in seen[:6]}  # the server begins again
            assert lookout.stop() == 0
    finally:
        server.kill()
    events = seen[:6]
    told = [row for row in messages if isinstance(row, Clip)]
    assert [row.phase for row in events] == ["appeared", "left"] * 3
    assert [row.events for row in ready] == [[row.id for row in part] for part in (events[:4], events[4:])]
    for event in events:
        assert event.clip == f"/api/v1/recordings/cam/clip.mp4?event={event.id}"
    for clip in ready:
        mine = [row for row in told if row.id == clip.id]
        assert [row.state for row in mine] == ["recording", "ready"]
        assert clip.path == next(row.clip for row in events if row.id == clip.id)
        first, last = (next(row for row in events if row.id == clip.events[at]) for at in (0, -1))
        assert clip.begin < first.at  # a picture is decoded some time after its packet has come
        length = (last.pts or 0) - (first.pts or 0) + SECOND + SECOND // 2
        assert abs(clip.end - clip.begin - length) < SECOND  # the network delays packets
        assert clip.covered >= 0.99 * (clip.end - clip.begin)
        for event_id in clip.events:  # from the key picture before
            assert 0 <= videos[event_id] - (clip.end - clip.begin) / SECOND < 1.2
        soon = SECOND // 100  # two clocks are read one after the other
        within = [row for row in rows if row.end > clip.begin + soon and row.begin < clip.end - soon]
        assert not any(isinstance(row, Gap) for row in within), within
    assert {row.cause for row in rows if isinstance(row, Gap)} == {"source_down", "no_event"}
    stored.check_sound()


def _video(port: int, path: str) -> float:
    """Seconds of the pictures that the API of recordings sends, all of which are decoded."""
    answer = httpx.get(
        f"http://127.0.0.1:{port}{path}", headers={"Authorization": f"Bearer {_VIEW}"}, timeout=PATIENCE_S
    )
    assert answer.status_code == 200, answer.text
    with av.open(io.BytesIO(answer.content)) as video:
        return sum(1 for _ in video.decode(video=0)) / _FPS


def _is_ready(found: list[Clip], count: int, message: Message) -> bool:
    """Whether so many clips are ready."""
    found += [message] if isinstance(message, Clip) and message.state != "recording" else []
    return len(found) == count


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
    return len({facts.session for facts in stored.files(source)}) > 1


def _flashes(path: Path) -> None:
    """The middle is grey, and white for half a second at some times: the fake detector sees something."""
    grey, white = (f"drawbox=iw/4:ih/4:iw/2:ih/2:{colour}:fill" for colour in ("gray", "white"))
    shown = "+".join(rf"between(t\,{begin}\,{begin + 0.5})" for begin in (2.0, 3.0, 7.5))
    clips.ffmpeg(
        "-f", "lavfi", "-i", f"testsrc2=size=320x180:rate=15:duration=12,{grey},{white}:enable='{shown}'",
        "-c:v", "libx264", "-preset", "ultrafast", "-tune", "zerolatency", "-g", "15", "-pix_fmt", "yuv420p", path,
    )  # fmt: skip
