"""Main streams that are recorded beside the streams that are analysed: a process, and a real RTSP server."""

from __future__ import annotations

import os
import re
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from http.server import ThreadingHTTPServer
from io import StringIO
from pathlib import Path

import av
import pytest
import yaml
from rich.console import Console

from daemon.clock import SystemClock
from daemon.commands.store_checks import check_stores
from daemon.config.load import parse
from daemon.config.root import LogConfig
from daemon.config.sources import AvConfig, ReconnectConfig
from daemon.recording.directory import RingDirectory
from daemon.recording.records import PacketRecord, StreamRecord
from daemon.recording.ring import Ring, RingReader
from daemon.recording.streams.main import StreamsOrder
from daemon.recording.streams.process import StreamsProcess, StreamState, stream_of
from daemon.recording.streams.stream import StreamRules
from daemon.redact import Secret, Url
from tests.lifetimes.rig import wait_until
from tests.support import clips
from tests.support.http_files import Quiet
from tests.support.rtsp import RtspServer
from tests.support.rtsp_camera import Camera, RtspCamera
from tests.support.runtime import runtime_of

_SIZE = 1 << 22


class Streams:
    """The process, with all that it says."""

    def __init__(self) -> None:
        self.said: list[StreamState] = []
        self._heard: dict[str, int] = {}  # how many of them, by source
        self.directory = RingDirectory()
        runtime = runtime_of(SystemClock())
        runtime = replace(runtime, limits=replace(runtime.limits, worker_pause=0.01))
        rules = StreamRules(ReconnectConfig(initial_s=0.05, max_s=0.1, jitter=0), 1.0)
        self.part = StreamsProcess(self.directory, StreamsOrder(rules, LogConfig()), self.said.append, runtime)
        self.part.start()

    def hears(self, state: str, source: str = "cam") -> StreamState:
        """The next such state behind the one that was heard last."""

        def places() -> list[int]:
            wanted = state, source
            return [at for at, row in enumerate(self.said) if at >= begin and (row.state, row.source) == wanted]

        begin = self._heard.get(source, 0)
        wait_until(places, f"{source} is {state}")
        self._heard[source] = places()[0] + 1
        return self.said[places()[0]]


@contextmanager
def streams() -> Iterator[Streams]:
    made = Streams()
    try:
        yield made
    finally:
        made.part.stop(10)
        made.directory.close()


def camera(url: str, source: str = "cam", **more: object) -> AvConfig:
    analysed = AvConfig(id=source, url=Url("rtsp://192.0.2.1/sub"), read_timeout_s=2, **more)  # type: ignore[arg-type]
    return stream_of(analysed, Url(url))


def more_packets(ring: Ring, count: int = 5) -> Callable[[], bool]:
    until = ring.account.packets + count
    return lambda: ring.account.packets >= until


def pictures_of(clip: Path) -> list[bytes]:
    """The slices of H.264 in a file with lengths before units."""
    found = []
    with av.open(str(clip)) as container:
        for packet in container.demux(video=0):
            data, at = bytes(packet), 0
            while at < len(data):
                size = int.from_bytes(data[at : at + 4], "big")
                found.append(data[at + 4 : at + 4 + size])
                at += 4 + size
    return [unit for unit in found if unit[0] & 31 in (1, 5)]


def sessions_of(ring: Ring) -> list[tuple[str, list[bytes]]]:
    """The slices in each connection's packets, which have start codes."""
    found: list[tuple[str, list[bytes]]] = []
    with closing(RingReader(ring.fd)) as reader:
        for record in reader.read(0):
            if isinstance(record, StreamRecord):
                assert (record.stream.codec, record.stream.width) == ("h264", 320)
                found.append((record.stream.session, []))
            elif isinstance(record, PacketRecord):
                units = re.split(rb"\x00\x00\x00?\x01", bytes(record.data))[1:]
                found[-1][1].extend(unit for unit in units if unit[0] & 31 in (1, 5))
        del record
    return found


@pytest.mark.needs("ffmpeg", "rtsp")
def test_a_stream_goes_on_whatever_dies(long_clip: Path) -> None:
    """Server, process: the connection is made anew, and every packet of each connection is in the ring."""
    server = RtspServer({"main": long_clip})
    with streams() as own:
        ring = own.directory.keep("cam", "store", _SIZE, feed="stream")
        own.part.want({"cam": camera(server.url("main"))})
        up = own.hears("up")
        wait_until(more_packets(ring), "packets come")
        server.kill()
        assert "127.0.0.1" in (own.hears("down").reason or "")
        server.start()
        assert own.hears("up").session != up.session
        wait_until(more_packets(ring), "packets come")
        (pid,) = own.part.pids
        os.kill(pid, signal.SIGKILL)
        assert own.hears("down").reason == "its process ended (killed by SIGKILL)"
        own.hears("up")
        wait_until(more_packets(ring), "packets come")
        server.freeze()
        assert "no packet for" in (own.hears("stalled").reason or "")
        assert "no data" in (own.hears("down").reason or "")
        sessions = sessions_of(ring)
    server.kill()
    pictures = pictures_of(long_clip)
    assert len({session for session, _ in sessions}) == len(sessions) == 3
    for _, part in sessions:
        begin = pictures.index(part[0])
        assert part == pictures[begin : begin + len(part)]


@pytest.mark.needs("ffmpeg", "rtsp")
def test_streams_come_go_and_change(long_clip: Path) -> None:
    server = RtspServer({"main": long_clip, "other": long_clip})
    with streams() as own:
        rings = {name: own.directory.keep(name, "store", _SIZE, feed="stream") for name in ("a", "b")}
        first = camera(server.url("main"), "a")
        own.part.want({"a": first})
        own.hears("up", "a")
        own.part.want({"a": first, "b": camera(server.url("main"), "b")})
        own.hears("up", "b")
        for ring in rings.values():
            wait_until(more_packets(ring), "packets come")
        own.part.want({"b": camera(server.url("other"), "b")})
        own.hears("up", "b")
        wait_until(more_packets(rings["b"]), "packets come")
        before = rings["a"].account.packets
        second = own.directory.keep("b", "second", _SIZE, feed="stream")
        wait_until(more_packets(second), "packets come for the second store")
        assert rings["a"].account.packets == before
        assert not any(row.state == "down" for row in own.said)
        sessions = [len(sessions_of(ring)) for ring in (*rings.values(), second)]
    server.kill()
    assert sessions == [1, 2, 1]


def test_a_refused_login_is_seldom_tried() -> None:
    with RtspCamera(Camera(login=("viewer", "right"))) as server, streams() as own:
        own.part.want({"cam": camera(server.url(), user=Secret("viewer"), password=Secret("wrong"))})
        down = own.hears("down")
        assert "login" in (down.reason or "")
        assert down.retry_in_s == ReconnectConfig().refused_s


def test_a_process_that_hangs_does_not_hold_up_a_stop() -> None:
    with RtspCamera(Camera()) as server, streams() as own:
        own.part.want({"cam": camera(server.url())})
        own.hears("connecting")
        (pid,) = own.part.pids
        os.kill(pid, signal.SIGSTOP)
        assert not own.part.stop(30)
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@pytest.mark.needs("ffmpeg", "rtsp")
def test_check_names_streams_that_cannot_be_recorded_and_sources_that_have_no_events(
    long_clip: Path, tmp_path: Path
) -> None:
    """Otherwise only their gaps would tell it."""
    clips.ffmpeg("-f", "lavfi", "-i", "testsrc=size=160x96:duration=2", "-c:v", "mjpeg", tmp_path / "mjpeg.mkv")
    server = RtspServer({"main": long_clip})
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path))) as files:
        threading.Thread(target=files.serve_forever, daemon=True).start()
        mjpeg = f"http://127.0.0.1:{files.server_port}/mjpeg.mkv"
        urls = {"right": server.url("main"), "gone": server.url("gone"), "mjpeg": mjpeg}
        sources = [{"id": id, "type": "av", "url": urls["right"], "record": {"url": url}} for id, url in urls.items()]
        sources += [{"id": "off", "type": "av", "url": urls["right"], "record": {"mode": "off", "url": urls["gone"]}}]
        sources += [{"id": "plain", "type": "av", "url": urls["right"], "record": "events"}]
        record = {"stores": {"main": {"path": str(tmp_path / "store")}}, "mode": "continuous"}
        config = parse(yaml.safe_dump({"model": {"path": "model.onnx"}, "sources": sources, "record": record}))
        shown = StringIO()
        problems = check_stores(config, {}, Console(file=shown, width=200), alone=True)
        files.shutdown()
    server.kill()
    gone, mjpeg = problems
    assert gone.startswith(f"gone: record.url: cannot open {urls['gone']}: it answers 404")
    assert mjpeg == "mjpeg: record.url: video in mjpeg is not recorded, H.264 and HEVC are"
    assert "nothing is kept of plain: " in shown.getvalue()
