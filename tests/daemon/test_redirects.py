"""A camera's password goes to the camera alone, wherever it would send us."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import av
import pytest

from daemon.config.sources import AvConfig
from daemon.errors import SourceError
from daemon.redact import Url
from daemon.sources.ffmpeg import AvSource
from daemon.sources.port import next_picture
from tests.support.rtsp_camera import Camera, RtspCamera, Sent, at_rate, pictures_of

pytestmark = pytest.mark.needs("ffmpeg")
LOGIN = ("viewer", "s3cret")


@pytest.fixture
def elsewhere() -> Iterator[socket.socket]:
    """Where nobody may connect to."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        yield listener


def port_of(listener: socket.socket) -> int:
    port: int = listener.getsockname()[1]
    return port


def is_untouched(listener: socket.socket) -> bool:
    try:
        listener.accept()[0].close()
    except BlockingIOError:
        return True
    return False


def opened(camera: RtspCamera, **more: object) -> str:
    """Why a camera cannot be opened."""
    config = AvConfig(id="s", url=Url(camera.url(credentials="viewer:s3cret", scheme="rtsp")), **more)  # type: ignore[arg-type]
    with pytest.raises(SourceError) as caught:
        AvSource(config).open()
    return str(caught.value)


@pytest.mark.parametrize("status", [301, 302, 303, 305, 307])
@pytest.mark.parametrize("method", ["OPTIONS", "DESCRIBE", "SETUP", "PLAY"])
def test_a_redirect_of_rtsp_is_not_followed(method: str, status: int, elsewhere: socket.socket, clip: Path) -> None:
    """At any moment of a login; the reason says where to, without credentials."""
    answer = {method: f"{status} Moved\nLocation: rtsp://me:pa55@127.0.0.1:{port_of(elsewhere)}/live?token=abc"}
    camera = Camera(at_rate(pictures_of(clip), 15), login=LOGIN, answers=answer if method == "OPTIONS" else {})
    camera = camera if method == "OPTIONS" else Camera(camera.items, login=LOGIN, authenticated=answer)
    with RtspCamera(camera) as server:
        reason = opened(server)
    assert f"it redirects to rtsp://***@127.0.0.1:{port_of(elsewhere)}/live?token=***" in reason
    assert "set url to the camera's own address" in reason
    assert not any(secret in reason for secret in ("pa55", "abc", "s3cret"))
    assert is_untouched(elsewhere)


@pytest.mark.parametrize(
    "location", ["rtsps://{}/x", "tcp://{}/x", "tls://{}", "rtp://{}", "//{}/x", "{}/x", "", "RTSP://{}/x"]
)
def test_no_form_of_a_redirect_is_followed(location: str, elsewhere: socket.socket) -> None:
    answer = f"302 Found\nLocation: {location.format(f'127.0.0.1:{port_of(elsewhere)}')}"
    with RtspCamera(Camera(answers={"OPTIONS": answer})) as server:
        assert "it redirects to" in opened(server)
    assert is_untouched(elsewhere)


def test_a_camera_that_redirects_to_itself_is_asked_twice() -> None:
    """By FFmpeg, and for the reason."""
    camera = Camera()
    with RtspCamera(camera) as server:
        server.answer_with({"DESCRIBE": f"302 Found\nLocation: {server.url()}"})
        assert f"it redirects to {server.url()}" in opened(server)
        assert server.methods() == ["OPTIONS", "DESCRIBE"] * 2


def test_a_camera_behind_tls_redirects_nowhere(elsewhere: socket.socket, tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-days",
        "1",
    ]
    subprocess.run([*command, "-subj", "/CN=cam", "-keyout", key, "-out", certificate], check=True, capture_output=True)
    answer = f"302 Found\nLocation: rtsp://127.0.0.1:{port_of(elsewhere)}/x"
    camera = Camera(login=LOGIN, authenticated={"DESCRIBE": answer}, certificate=(certificate, key))
    with RtspCamera(camera) as server:
        url = Url(server.url(credentials="viewer:s3cret", scheme="rtsps"))
        with pytest.raises(SourceError, match="it redirects to rtsp://127"):
            AvSource(AvConfig(id="s", url=url)).open()
    assert is_untouched(elsewhere)


def test_a_camera_that_asks_to_go_elsewhere_while_it_plays(elsewhere: socket.socket, clip: Path) -> None:
    """RTSP's own request REDIRECT; the pictures after it still come."""
    pictures = at_rate(pictures_of(clip), 15)
    ask = f"REDIRECT rtsp://127.0.0.1/cam RTSP/1.0\r\nCSeq: 9\r\nLocation: rtsp://127.0.0.1:{port_of(elsewhere)}/x\r\n\r\n"
    with RtspCamera(Camera([*pictures[:10], Sent(ask.encode()), *pictures[10:]], login=LOGIN)) as server:
        reader = AvSource(AvConfig(id="s", url=Url(server.url(credentials="viewer:s3cret")))).open()
        assert sum(next_picture(reader) is not None for _ in range(30)) == 30
        reader.close()
    assert is_untouched(elsewhere)


def test_an_ffmpeg_that_follows_redirects_is_not_used_for_rtsp(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that PyAV was built with, in place of that of its wheels."""
    monkeypatch.setitem(av.library_versions, "libavformat", (62, 3, 100))
    with RtspCamera(Camera()) as server:
        assert "PyAV needs FFmpeg 8.1.1 or later" in opened(server)
        assert server.connections == 0
