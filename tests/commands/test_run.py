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
from daemon.commands.command_line_config import TypedConfig, check_typed
from daemon.commands.from_arguments import config_of, save, sources_of, yaml_of
from daemon.config.load import load
from daemon.config.sources import AvConfig, CameraConfig
from daemon.errors import LookoutError
from daemon.sources.playlist import Playlist
from lookout.client import Subscriber
from lookout.messages import Detections
from tests.support.daemon import DEMO_MODEL, ROOT, receive_until
from tests.support.ports import free_port


def _url(argument: str) -> str:
    """What is opened for an argument."""
    (source,) = _sources(argument)
    assert isinstance(source, AvConfig)
    return source.url.reveal()


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


@pytest.mark.parametrize("name", ["null", "123", "1e3", "no", "2026-01-01", "0x1f"])
def test_a_name_that_yaml_takes_for_something_else_is_a_name(name: str, tmp_path: Path) -> None:
    (tmp_path / f"{name}.mkv").touch()
    (source,) = _sources(str(tmp_path / f"{name}.mkv"))
    assert source.id == name  # type: ignore[attr-defined]


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


@pytest.mark.parametrize(
    "name", ["${SECRET}", "a${UNSET}b", "$${SECRET}", "$${UNSET}${SECRET}", "a [1]", "\udcff\udcfe"]
)
def test_names_on_the_disk_are_what_they_are(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a variable's value nor a pattern is put in their place: of a file, a folder, a folder above, and the
    folder that we are in."""
    monkeypatch.setenv("SECRET", "hunter2")
    folder = tmp_path / name
    folder.mkdir()
    (folder / f"{name}.mkv").touch()
    monkeypatch.chdir(folder)
    assert _url(str(folder)) == str(folder)
    assert _url(f"{folder}/{name}.mkv") == _url(f"{name}.mkv") == f"{folder}/{name}.mkv"
    assert Playlist(_url("*.mkv"), loop=False).found() == [folder / f"{name}.mkv"]
    saved = tmp_path / "saved.yaml"
    save(yaml_of(sources_of([f"{name}.mkv"]), DEMO_MODEL), saved)
    (source,) = load(saved).sources
    assert isinstance(source, AvConfig)
    assert source.url.path == f"{folder}/{name}.mkv"


def test_a_pattern_takes_the_values_of_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless it matches as it stands."""
    monkeypatch.setenv("CLIPS", str(tmp_path))
    (tmp_path / "a.mkv").touch()
    assert _url("${CLIPS}/*.mkv") == f"{tmp_path}/*.mkv"
    monkeypatch.chdir(tmp_path)
    (tmp_path / "${CLIPS}").mkdir()
    (tmp_path / "${CLIPS}" / "b.mkv").touch()
    assert _url("${CLIPS}/*.mkv") == f"{tmp_path}/${{CLIPS}}/*.mkv"


@pytest.mark.parametrize("argument", ["camera", "./gone.mp4", "-1", ""])
def test_an_invalid_source_is_refused(argument: str) -> None:
    with pytest.raises(LookoutError, match="is not a URL"):
        sources_of([argument])


def test_a_mistyped_url_is_not_shown_with_its_password() -> None:
    with pytest.raises(LookoutError) as raised:
        sources_of(["rtsp:/me:hunter2@192.0.2.7/x"])
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize(
    ("argument", "says"),
    [
        ("{folder}/none*.mp4", "holds no recording"),
        ("{folder}/empty", "holds no recording"),
        ("{folder}/text.txt", "text.txt: Invalid data found"),
        ("{folder}/texts/*.txt", "Invalid data found"),
        ("{folder}/texts", "holds no recording"),
        ("file://{folder}/none.mp4", "No such file"),
        ("0", "there is no camera /dev/video0"),
        ("/dev/video99", "there is no camera /dev/video99"),
        ("/dev/null", "/dev/null is no camera"),
        ("rtps://192.0.2.7/a", "did you mean rtsp://?"),
        ("foo://192.0.2.7/a", "foo:// is nothing that video comes from"),
        ("rtsp://192.0.2.7:99999/a", "port 99999 is not one from 1 to 65535"),
        ("http://me:pw@192.0.2.7:0/a", "port 0 is not one from 1 to 65535"),
        ("rtsp:///stream", "names no host"),
    ],
)
def test_what_cannot_be_is_refused_at_once(
    argument: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before a model is fetched; nothing is tried for ever, and no configuration is left."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "texts").mkdir()
    for name in ("text.txt", "texts/a.txt", "texts/b.txt"):
        (tmp_path / name).write_text("no video")
    out = tmp_path / "out.yaml"
    assert invoke(["run", argument.format(folder=tmp_path), "--save", str(out)]) == 2
    output = capsys.readouterr().err
    assert says in output
    assert output.count("\n") == 1
    assert not out.exists()


@pytest.mark.needs("ffmpeg")
def test_one_recording_of_a_folder_is_enough(tmp_path: Path, clip: Path) -> None:
    shutil.copy(clip, tmp_path / "z.mkv")
    (tmp_path / "a.mkv").write_text("no video")
    check_typed(_sources(str(tmp_path)))  # type: ignore[arg-type]


def test_schemes_are_the_same_in_capitals() -> None:
    """FFmpeg knows them in lower case alone."""
    (source,) = _sources("RTSP://me:pw@192.0.2.7/a")
    assert isinstance(source, AvConfig)
    assert (source.url.scheme, source.address) == ("rtsp", "rtsp://me:pw@192.0.2.7/a")
    (file,) = _sources("FILE:///clips/a.mkv")
    assert isinstance(file, AvConfig)
    assert (file.address, file.url.path) == ("file:///clips/a.mkv", "/clips/a.mkv")


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


def test_labels_of_the_command_line_are_the_models(tmp_path: Path) -> None:
    (tmp_path / "clip.mkv").touch()
    text, config = TypedConfig([str(tmp_path / "clip.mkv")], str(DEMO_MODEL), labels="coco").read()
    assert config.model.labels == config_of(text).model.labels == "coco"


def test_a_daemon_loads_nothing_that_draws_in_a_terminal() -> None:
    """Each of its processes would take longer to begin, and more memory."""
    parts = ("daemon.commands.run", "daemon.capture.processes.main", "daemon.analytics.process.main")
    code = f"import sys, daemon.system.loading, {', '.join(parts)}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert not {"rich", "rich.console", "pygments"} & {*done.stdout.split()}
