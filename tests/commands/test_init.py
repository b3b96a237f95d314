"""`lookout init` writes a working configuration, or reports what is missing."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from daemon.cli import invoke
from daemon.config.load import load
from tests.support.daemon import DEMO_MODEL, ROOT

pytestmark = pytest.mark.needs("ffmpeg")


def test_options_make_a_working_file(tmp_path: Path, clip: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "config.yaml"
    args = ["init", str(clip), "--model", str(DEMO_MODEL), "--endpoint", "tcp://127.0.0.1:*", "--out", str(out)]
    assert invoke(args) == 0
    assert f"lookout run -c {out}" in capsys.readouterr().out
    assert [source.id for source in load(out).sources] == ["clip"]
    assert invoke(args) == 2
    assert "already exists" in capsys.readouterr().err


def test_a_failed_check_is_reported_and_keeps_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "config.yaml"
    (tmp_path / "empty.mkv").touch()
    args = ["init", str(tmp_path / "empty.mkv"), "--model", str(DEMO_MODEL), "--endpoint", "tcp://127.0.0.1:*"]
    assert invoke([*args, "--out", str(out)]) != 0
    assert f"lookout check -c {out}" in capsys.readouterr().out
    assert out.exists()


def test_without_a_terminal_it_asks_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "daemon", "init", "--out", str(tmp_path / "config.yaml")]
    done = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "no source: lookout init rtsp://" in done.stderr


def test_on_a_terminal_it_asks(tmp_path: Path, clip: Path) -> None:
    """It asks again after an invalid source."""
    out = tmp_path / "config.yaml"
    command = [sys.executable, "-m", "daemon", "init", "--endpoint", "tcp://127.0.0.1:*", "--out", str(out)]
    ours, theirs = pty.openpty()
    with subprocess.Popen(command, cwd=ROOT, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        os.write(ours, f"gone.mp4\n{clip}\n\n{DEMO_MODEL}\n".encode())
        assert process.stdout
        output = process.stdout.read().decode()
    os.close(theirs)
    os.close(ours)
    assert process.returncode == 0, output
    assert "'gone.mp4' is not a URL" in output
    assert [source.id for source in load(out).sources] == ["clip"]
