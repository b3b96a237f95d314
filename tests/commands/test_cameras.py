"""`lookout cameras` with a small ONVIF camera: discovery and streams."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from daemon.cli import invoke
from daemon.commands import cameras
from daemon.config.load import parse
from daemon.config.sources import AvConfig
from tests.support.onvif import answering, onvif_camera

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _on_a_busy_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cameras, "_ANSWER_TIMEOUT_S", 300.0)


def _list_cameras(*args: str, capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    invoke(["cameras", "--json", *args])
    found: list[dict[str, object]] = json.loads(capsys.readouterr().out)
    return found


@contextmanager
def _unheard_port(ending: str) -> Iterator[int]:
    """A port at which nobody listens, while this lasts."""
    with socket.socket() as held:
        for first in range(32, 10, -1):
            with suppress(OSError):
                held.bind(("127.0.0.1", int(f"{first}{ending}")))
                break
        yield held.getsockname()[1]


def test_discovery_finds_a_camera(capsys: pytest.CaptureFixture[str]) -> None:
    """At the sender's host, whatever the answer contains; invalid answers are ignored."""
    with onvif_camera() as camera, answering(camera.port):
        found = _list_cameras("--seconds", "2", capsys=capsys)
    ours = [row for row in found if row["name"] == "Street Lamp 3"]
    assert ours, found
    assert not [row for row in found if row["where"] == "192.0.2.99"]


def test_the_largest_stream_comes_first(capsys: pytest.CaptureFixture[str]) -> None:
    with onvif_camera() as camera:
        (row,) = _list_cameras("--seconds", "0", "--at", f"127.0.0.1:{camera.port}", capsys=capsys)
    assert (row["name"], row["where"], row["problem"]) == ("Street Lamp 3", "127.0.0.1", None)
    assert row["streams"] == [
        {"profile": "main", "url": camera.stream("main"), "size": [1920, 1080]},
        {"profile": "sub", "url": camera.stream("sub"), "size": [640, 360]},
    ]


def test_a_missing_password_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    with onvif_camera(user="viewer") as camera:
        at = ("--seconds", "0", "--at", f"127.0.0.1:{camera.port}")
        (row,) = _list_cameras(*at, capsys=capsys)
        assert row["problem"] == "it needs a user and a password"
        (row,) = _list_cameras(*at, "--user", "other", "--password", "x", capsys=capsys)
        assert row["problem"] == "it rejects this user or password"
        (row,) = _list_cameras(*at, "--user", "viewer", "--password", "x", capsys=capsys)
        assert row["problem"] is None


def test_found_cameras_make_a_configuration(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with onvif_camera(user="viewer") as camera:
        at = ("--seconds", "0", "--at", f"127.0.0.1:{camera.port}")
        assert invoke(["cameras", "--yaml", *at, "--user", "viewer", "--password", "hunter2"]) == 0
    text = capsys.readouterr().out
    assert "hunter2" not in text
    monkeypatch.setenv("CAMERA_USER", "viewer")
    monkeypatch.setenv("CAMERA_PASSWORD", "hunter2")
    (source,) = parse(f"model: {{path: m.onnx}}\n{text}").sources
    assert isinstance(source, AvConfig)
    assert source.address == "rtsp://viewer:hunter2@127.0.0.1:554/main"


def test_an_unreachable_camera_hides_no_other(capsys: pytest.CaptureFixture[str]) -> None:
    """Also at a port that looks like the status of a refusal."""
    with onvif_camera() as camera, _unheard_port("401") as port:
        at = ("--at", f"127.0.0.1:{port}", "--at", f"127.0.0.1:{camera.port}")
        silent, found = _list_cameras("--seconds", "0", *at, capsys=capsys)
    assert "Cannot connect" in str(silent["problem"])
    assert found["name"] == "Street Lamp 3"


def test_no_camera_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    there = cameras.usb_cameras()  # this machine may have some
    assert invoke(["cameras", "--seconds", "0"]) == (0 if there else 1)
    assert there or "no camera found" in capsys.readouterr().out


def test_an_invalid_address_hides_no_other(capsys: pytest.CaptureFixture[str]) -> None:
    (row,) = _list_cameras("--seconds", "0", "--at", "camera:port", capsys=capsys)
    assert "is not an address" in str(row["problem"])


@pytest.mark.parametrize(
    ("sent", "problem"),
    [
        ("rtsp://me:hunter2@127.0.0.1/a", None),
        ("rtsp://192.0.2.9/${CAMERA_PASSWORD}", "contains invalid characters"),
        ("rtsp://192.0.2.9/\u009b31m", "contains invalid characters"),
    ],
)
def test_a_camera_cannot_extract_secrets(sent: str, problem: str | None, capsys: pytest.CaptureFixture[str]) -> None:
    """Its answers go to a terminal, and into a configuration that expands names of secrets."""
    with onvif_camera(address=sent) as camera:
        (row,) = _list_cameras("--seconds", "0", "--at", f"127.0.0.1:{camera.port}", capsys=capsys)
    assert (problem or "None") in str(row["problem"])
    assert "hunter2" not in json.dumps(row)
    assert problem or [stream["url"] for stream in row["streams"]] == ["rtsp://127.0.0.1/a"] * 2  # type: ignore[attr-defined]


def test_a_usb_camera_is_a_device_with_video(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A camera also has a device for metadata; the kernel's answer tells them apart."""
    for number, (name, capabilities) in enumerate((("HD Webcam", 0x04200001), ("HD Webcam", 0x04A00000))):
        (tmp_path / "class" / f"video{number}").mkdir(parents=True)
        (tmp_path / "class" / f"video{number}" / "name").write_text(f"{name}\n")
        (tmp_path / f"video{number}").write_bytes(capabilities.to_bytes(4, "little"))

    def ioctl(file: object, request: int, answer: bytearray) -> int:
        assert request == 0x80685600
        raw = file.read()  # type: ignore[attr-defined]
        answer[:] = b"uvcvideo".ljust(16, b"\0") + b"HD Webcam".ljust(32, b"\0") + bytes(32 + 4 + 4) + raw + bytes(12)
        return 0

    monkeypatch.setattr("fcntl.ioctl", ioctl)
    found = cameras.usb_cameras(tmp_path / "class", tmp_path)
    assert [(camera.name, camera.source) for camera in found] == [("HD Webcam", str(tmp_path / "video0"))]
