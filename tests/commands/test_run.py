"""`lookout run SOURCE ...`: detections without a configuration file."""

from __future__ import annotations

import json
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from daemon.cli import invoke
from daemon.client import Subscriber
from daemon.commands.from_arguments import config_of, sources_of, yaml_of
from daemon.config import AvConfig, CameraConfig, load
from daemon.errors import LookoutError
from daemon.messages import Detections
from tests.support.daemon import DEMO_MODEL, ROOT, receive_until
from tests.support.ports import free_port


def _sources(*arguments: str) -> list[object]:
    return [*config_of(yaml_of(sources_of(arguments), DEMO_MODEL)).sources]


def test_each_kind_of_source_has_a_name(tmp_path: Path) -> None:
    (tmp_path / "front door.mkv").touch()
    clips = (str(tmp_path / "front door.mkv"), str(tmp_path), f"{tmp_path}/*.mkv")
    cameras = ("rtsp://192.0.2.7:554/a", "rtsp://192.0.2.7:554/b", "0", "/dev/video2")
    arguments = (*cameras, *clips, "http://camera.example/s.m3u8")
    sources = _sources(*arguments)
    assert [source.id for source in sources] == [  # type: ignore[attr-defined]
        "192.0.2.7", "192.0.2.7-2", "usb-0", "video2", "front-door", "recordings", "recordings-2", "camera.example"
    ]  # fmt: skip
    assert [type(source) for source in sources] == [AvConfig, AvConfig, CameraConfig, CameraConfig, *[AvConfig] * 4]


def test_urls_are_quoted() -> None:
    url = 'rtsp://me:p"a: #s{w}rd\\@192.0.2.7/x?y=[1]'
    (source,) = _sources(url)
    assert isinstance(source, AvConfig)
    assert source.url.reveal() == url


def test_secrets_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The saved file has the name of the variable, not the password."""
    monkeypatch.setenv("DOOR_PASSWORD", "hunter2")
    text = yaml_of(sources_of(["rtsp://me:${DOOR_PASSWORD}@192.0.2.7/"]), DEMO_MODEL)
    assert "hunter2" not in text
    (source,) = config_of(text).sources
    assert isinstance(source, AvConfig)
    assert source.url.reveal() == "rtsp://me:hunter2@192.0.2.7/"


@pytest.mark.parametrize("argument", ["camera", "./gone.mp4", "-1", ""])
def test_an_invalid_source_is_refused(argument: str) -> None:
    with pytest.raises(LookoutError, match="is not a URL"):
        sources_of([argument])


def test_a_mistyped_url_is_not_shown_with_its_password() -> None:
    with pytest.raises(LookoutError) as raised:
        sources_of(["rtsp:/me:hunter2@192.0.2.7/x"])
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize(
    ("args", "arguments"),
    [
        (["run", "gone.mp4"], "'gone.mp4' is not a URL"),
        (["run", "0", "--model", "gone.onnx"], "gone.onnx does not exist"),
        (["run", "0", "-c", "config.yaml"], "not from both"),
        (["run", "--save", "x.yaml"], "--save is for sources on the command line"),
        (["run", "0", "--model", str(DEMO_MODEL), "--endpoint", "udp://x"], "must start with tcp://"),
    ],
)
def test_mistakes_are_one_line(args: list[str], arguments: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(args) == 2
    output = capsys.readouterr().err
    assert arguments in output
    assert output.count("\n") == 1


def test_a_file_is_not_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine = tmp_path / "config.yaml"
    mine.write_text("mine")
    assert invoke(["run", "0", "--model", str(DEMO_MODEL), "--save", str(mine)]) == 2
    assert "already exists" in capsys.readouterr().err
    assert mine.read_text() == "mine"


@pytest.mark.needs("ffmpeg")
def test_a_run_publishes_and_saves_its_configuration(tmp_path: Path, long_clip: Path) -> None:
    endpoint, saved = f"tcp://127.0.0.1:{free_port()}", tmp_path / "saved.yaml"
    shutil.copy(long_clip, tmp_path / "street.mkv")
    command = [sys.executable, "-m", "daemon", "run", str(tmp_path / "street.mkv"), "--model", str(DEMO_MODEL),
               "--endpoint", endpoint, "--save", str(saved)]  # fmt: skip
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(command, cwd=ROOT, stderr=log)
    try:
        with Subscriber(endpoint) as subscriber:
            (*_, last) = receive_until(subscriber, lambda message: isinstance(message, Detections))
        assert isinstance(last, Detections)
        assert last.source == "street"
    finally:
        process.terminate()
        assert process.wait(60) == 0
    output = (tmp_path / "log").read_text()
    assert f"lookout run -c {saved}" in output
    assert json.loads(output.splitlines()[-1])["event"] == "stopped"
    assert stat.S_IMODE(saved.stat().st_mode) == 0o600
    config = load(saved)
    assert config.publisher.endpoint == endpoint
    assert [source.id for source in config.sources] == ["street"]
