"""What newcomers and operators get wrong: one line that says it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from daemon.bridge.port import AwayError
from daemon.bridge.targets.credentials import tls_files
from daemon.cli import invoke
from daemon.commands import cameras
from daemon.commands.cameras import Camera
from daemon.files import check_can_read

_CAMERA = Camera("Desk", "/dev/video0", usb=True)


def _refused(args: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert invoke(args) == 2
    line: str = capsys.readouterr().err
    assert line.startswith("lookout: ")
    assert line.count("\n") == 1
    return line


@pytest.mark.parametrize("command", ["watch", "events"])
def test_a_key_that_would_not_be_used_is_refused(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "me.key_secret").touch()
    line = _refused([command, "--json", "--secret-key", str(tmp_path / "me.key_secret")], capsys)
    assert "--secret-key needs --server-key" in line


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("events http://[ --since 0", "http://[ does not answer as Lookout does: Invalid IPv6 URL"),
        ("events --json --fleet etcd://me:pa55@[/hall", "fleet: is no URL, such as etcd://HOST:2379"),
        ("fleet status --coordinator etcd://me:pa55@[", "fleet.coordinator: is no URL"),
        ("reload --pid 99999999999999999999", "not in the range 1<=x<=4194304"),
        ("bridge reload --pid 99999999999999999999", "not in the range 1<=x<=4194304"),
        ("demo --seconds 1e300", "1e300 is more than 10000000"),
        ("batch clips --out=", "the path is empty"),
        ("check --draw=", "the path is empty"),
        ("bench run --copies 100000", "not in the range 1<=x<=64"),
    ],
)
def test_what_no_machine_has_is_one_line(command: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    line = _refused(command.split(), capsys)
    assert says in line
    assert "pa55" not in line


@pytest.mark.parametrize("name", ["../evil", "a/b", "..", "", "a b"])
def test_names_of_keys_are_names(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "may hold letters" in _refused(["keys", "new", str(tmp_path / "keys"), "--name", name], capsys)
    assert [*tmp_path.rglob("*")] == []


def test_a_configuration_in_another_encoding_is_said_to_be_that(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.yaml").write_bytes("log: {level: café}\n".encode("latin-1"))
    assert "it is no text in UTF-8, at byte 16" in _refused(["run", "-c", str(tmp_path / "config.yaml")], capsys)


def test_cameras_of_the_machine_are_shown_without_the_client_of_the_others(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "onvif", None)
    monkeypatch.setattr(cameras, "usb_cameras", lambda: [_CAMERA])
    assert invoke(["cameras"]) == 0
    shown = capsys.readouterr()
    assert "/dev/video0" in shown.out
    remedy = "pip install 'lookoutd[onvif]'; or use --usb"
    assert shown.err == f"those of this machine alone: ONVIF cameras need another package: {remedy}\n"
    assert "need another package" in _refused(["cameras", "--at", "192.0.2.7"], capsys)
    monkeypatch.setattr(cameras, "usb_cameras", list)
    assert "need another package" in _refused(["cameras"], capsys)


def test_of_several_files_of_tls_the_one_that_is_missing_is_named(tmp_path: Path) -> None:
    (tmp_path / "cert.pem").touch()
    with pytest.raises(AwayError, match=r"/key\.pem cannot be read: No such file"):
        tls_files(None, tmp_path / "cert.pem", tmp_path / "key.pem")
    with pytest.raises(FileNotFoundError, match=r"key\.pem"):
        check_can_read(None, tmp_path / "cert.pem", tmp_path / "key.pem")
