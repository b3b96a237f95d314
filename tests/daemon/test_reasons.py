"""Why a source cannot be opened, or is over: what happened, and what to set; in one line each."""

from __future__ import annotations

import socket
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import cv2
import numpy as np
import pytest

from daemon.config.sources import AvConfig
from daemon.errors import SourceError
from daemon.redact import Url
from daemon.sources.ffmpeg import AvSource
from daemon.sources.port import next_picture
from tests.support.hls_server import Answer, HlsServer
from tests.support.ports import free_port
from tests.support.rtsp_camera import Camera, RtspCamera, at_rate, pictures_of


@contextmanager
def answering(data: bytes) -> Iterator[str]:
    """HOST:PORT of a server that answers everything with these bytes, and closes."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    connection = listener.accept()[0]
                    with connection:
                        connection.recv(4096)
                        connection.sendall(data)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def reason(url: str, **more: object) -> str:
    with pytest.raises(SourceError) as caught:
        AvSource(AvConfig(id="s", url=Url(url), **more)).open()  # type: ignore[arg-type]
    said = str(caught.value)
    assert "\n" not in said
    assert "s3cret" not in said
    return said


HTTP = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"
RTSP = b"RTSP/1.0 400 Bad Request\r\nCSeq: 1\r\n\r\n"
TLS = b"\x15\x03\x01\x00\x02\x02\x28"  # an alert
SSH = b"SSH-2.0-OpenSSH_9.2\r\n"


@pytest.mark.parametrize(
    ("scheme", "data", "said"),
    [
        ("rtsp", HTTP, "it speaks HTTP, not RTSP: check the port of the URL"),
        ("rtsp", TLS, "it speaks TLS: set url to rtsps://, or check the port"),
        ("rtsp", SSH, "it does not speak RTSP: check the port"),
        ("http", RTSP, "it speaks RTSP, not HTTP: check the port"),
        ("http", TLS, "it speaks TLS: set url to https://"),
        ("http", SSH, "it does not speak HTTP: check the port"),
        ("rtsps", RTSP, "or it speaks no TLS: try rtsp://"),
        ("https", HTTP, "or it speaks no TLS: try http://"),
        ("rtmps", HTTP, "or it speaks no TLS: try rtmp://"),
        ("rtmp", HTTP, "the server closed the connection"),
    ],
)
def test_a_port_that_speaks_something_else(scheme: str, data: bytes, said: str) -> None:
    with answering(data) as place:
        assert said in reason(f"{scheme}://viewer:s3cret@{place}/stream")


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (204, "it sends nothing: check the path"),
        (404, "404 Not Found: there is nothing at the URL: check its path"),
        (429, "it is asked too often"),
        (500, "it answers 500"),
        (503, "it is busy, perhaps with as many viewers as it can have"),
    ],
)
@pytest.mark.parametrize("path", ["cam.ts", "live.m3u8"])
def test_what_http_answers(status: int, said: str, path: str) -> None:
    with HlsServer(lambda _: Answer(status=status)) as server:
        assert said in reason(server.url(path, "viewer:s3cret"))


@pytest.mark.parametrize("method", ["OPTIONS", "DESCRIBE", "SETUP", "PLAY"])
@pytest.mark.parametrize(
    ("status", "said"),
    [
        ("404 Not Found", "it has no such stream: check the path of the URL"),
        ("453 Not Enough Bandwidth", "close one, or take a smaller stream"),
        ("454 Session Not Found", "it has forgotten the session"),
        ("500 Internal Server Error", "it answers 500 Internal Server Error"),
        ("503 Service Unavailable", "it is busy, perhaps with as many viewers"),
    ],
)
@pytest.mark.needs("ffmpeg")
def test_what_rtsp_answers(method: str, status: str, said: str, clip: Path) -> None:
    with RtspCamera(Camera(at_rate(pictures_of(clip), 15), answers={method: status})) as server:
        assert said in reason(server.url(credentials="viewer:s3cret"))


@pytest.mark.parametrize("scheme", ["srt", "rist", "webrtc", "onvif", "mms", "foo"])
def test_a_protocol_that_this_ffmpeg_does_not_speak(scheme: str) -> None:
    said = reason(f"{scheme}://viewer:s3cret@127.0.0.1:9/x")
    assert f"this FFmpeg does not speak {scheme}; have it sent as rtsp, rtsps, http" in said


@pytest.mark.parametrize("scheme", ["udp", "rtp"])
def test_nobody_sends(scheme: str) -> None:
    said = reason(f"{scheme}://127.0.0.1:{free_port()}", open_timeout_s=1)
    assert said.startswith("is its port open, and is anybody sending? No packets came to")


def test_hls_without_segments() -> None:
    with HlsServer(lambda _: Answer("#EXTM3U\n#EXT-X-TARGETDURATION:1\n")) as server:
        assert "its playlist has no segment that can be loaded" in reason(server.url("live.m3u8"))


@pytest.mark.needs("ffmpeg")
def test_a_session_that_the_camera_closes(clip: Path) -> None:
    with (
        RtspCamera(Camera(at_rate(pictures_of(clip), 15), ends=True)) as server,
        closing(AvSource(AvConfig(id="s", url=Url(server.url()))).open()) as reader,
        pytest.raises(SourceError, match="was closed by its server; if it is a recording, set kind: recording"),
    ):
        deque(iter(lambda: next_picture(reader), None), maxlen=0)


@pytest.mark.parametrize("first", [b"--cut\r\n", b""], ids=["delimiter", "none"])
def test_pictures_with_and_without_a_first_delimiter(first: bytes) -> None:
    """FFmpeg reads the one alone by itself."""
    jpeg = cv2.imencode(".jpg", np.random.default_rng(1).integers(0, 255, (96, 160, 3), np.uint8))[1].tobytes()
    part = b"Content-Type: image/jpeg\r\nContent-Length: %d\r\n\r\n%b\r\n" % (len(jpeg), jpeg)
    body = first + (b"--cut\r\n".join([part] * 40))
    kind = {"Content-Type": "multipart/x-mixed-replace;boundary=cut"}
    with (
        HlsServer(lambda _: Answer(body, headers=kind)) as server,
        closing(AvSource(AvConfig(id="s", url=Url(server.url("video.cgi")))).open()) as reader,
    ):
        for _ in range(20):
            picture = next_picture(reader)
            assert picture
            assert picture.pts is None
            image = picture.load()
            assert (image.width, image.height) == (160, 96)
