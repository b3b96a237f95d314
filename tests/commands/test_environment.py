"""The file `environment` beside a configuration."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import yaml

from daemon.cli import invoke
from daemon.commands.environment import variables_beside
from tests.support.daemon import DEMO_MODEL


def test_a_command_has_the_variables_that_the_service_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a camera's password, as the steps for the service say; what is set already goes before."""
    for name in ("DOOR", "GATE"):
        monkeypatch.setenv(name, "no-number-of-20-signs")
    monkeypatch.delenv("DOOR")
    http = {
        "enabled": True,
        "port": 0,
        "tokens": [{"name": name, "token": f"${{{name}}}"} for name in ("DOOR", "GATE")],
    }
    source = {"id": "cam", "type": "synthetic", "frames": 3, "pace": "fast", "width": 64, "height": 64}
    whole = {
        "model": {"path": str(DEMO_MODEL)},
        "sources": [source],
        "publisher": {"endpoint": "tcp://127.0.0.1:*"},
        "http": http,
    }
    config = tmp_path / "config.yaml"
    config.write_text(yaml.safe_dump(whole))
    assert invoke(["check", "-c", str(config)]) == 2
    assert "DOOR is not set: set it, or write it into a file `environment`" in capsys.readouterr().err
    (tmp_path / "environment").write_text("DOOR=another-of-20-signs-or-more\nGATE=short\n")
    assert invoke(["check", "-c", str(config)]) == 0
    assert os.environ["GATE"] == "no-number-of-20-signs"


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("A=b", "b"),
        (" A = b c ", "b c"),
        ("A='b \\c '", "b \\c "),
        (r'A="b \" \$ \c"', r'b " $ \c'),
        (r"A=b\c\\d", r"bc\d"),
        ("A=it's", "it's"),
        ("A=b#c=d", "b#c=d"),
        ("A=", ""),
        ("# A=b", None),
        ("; A=b", None),
        ("2A=b", None),
    ],
)
def test_values_are_what_systemd_takes_them_for(line: str, value: str | None, tmp_path: Path) -> None:
    (tmp_path / "environment").write_text(f"{line}\n")
    assert dict(variables_beside(tmp_path / "config.yaml")) == ({} if value is None else {"A": value})


def test_what_is_no_file_is_left_alone(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "environment")
    assert list(variables_beside(tmp_path / "config.yaml")) == []


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """One that every user may enter, as none of pytest's, wherever TMPDIR is."""
    with TemporaryDirectory(dir="/var/tmp") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def test_a_variable_that_this_user_may_not_read_is_asked_for_with_sudo(
    open_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As in the file of the Debian package, which is root's."""
    monkeypatch.delenv("LOOKOUT_TOKEN", raising=False)
    config, beside = open_folder / "config.yaml", open_folder / "environment"
    config.write_text(
        'http: {enabled: true, port: 0, token: "${LOOKOUT_TOKEN}"}\n'
        "model: {path: model.onnx}\nsources: [{id: street, type: synthetic}]\n"
    )
    config.chmod(0o644)
    for command in ("check", "status"):  # which loads what that user may not load
        assert invoke([command, "-c", str(config)]) == 2
        assert "sudo" not in capsys.readouterr().err
    beside.write_text(f"LOOKOUT_TOKEN={'0' * 32}\n")
    beside.chmod(0)
    is_root = os.geteuid() == 0  # who may read every file
    for command in ("check", "status"):
        if is_root:
            os.seteuid(65534)
        try:
            assert invoke([command, "-c", str(config)]) == 2
        finally:
            if is_root:
                os.seteuid(0)
        line = capsys.readouterr().err
        assert line.count("\n") == 1
        assert line.endswith(f"this user may not read {beside}: use sudo\n")
