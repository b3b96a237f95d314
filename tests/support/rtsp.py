"""Starts and kills the RTSP server."""

from __future__ import annotations

import signal
import subprocess
from functools import cache
from pathlib import Path

from tests.support.ports import free_port

PYTHON = "/usr/bin/python3"
_SCRIPT = Path(__file__).with_name("rtsp_server.py")


@cache
def is_supported() -> bool:
    """Whether the server can run here."""
    probe = "import gi; gi.require_version('GstRtspServer', '1.0'); from gi.repository import GstRtspServer"
    try:
        subprocess.run([PYTHON, "-c", probe], check=True, capture_output=True, timeout=30)
    except (OSError, subprocess.SubprocessError):
        return False
    return True


class RtspServer:
    """One server process; `kill` and `start` as often as a test likes, always on the same port.

    Args:
        codec: of the clips: h264 or h265.
    """

    def __init__(
        self, clips: dict[str, Path], auth: str | None = None, codec: str = "h264", *, udp_alone: bool = False
    ) -> None:
        self.port = free_port()
        self._options = ["--auth", auth] if auth else []
        self._options += ["--udp"] if udp_alone else []
        self._arguments = list[str]()
        self.serve(clips, codec)
        self._process: subprocess.Popen[str] | None = None
        self.start()

    def url(self, name: str, credentials: str = "") -> str:
        return f"rtsp://{credentials}{'@' if credentials else ''}127.0.0.1:{self.port}/{name}"

    def serve(self, clips: dict[str, Path], codec: str) -> None:
        """Have these clips from the next start on."""
        rows = [f"{name}={clip}" for name, clip in clips.items()]
        self._arguments = [str(self.port), "--codec", codec, *self._options, *rows]

    def start(self) -> None:
        self._process = subprocess.Popen([PYTHON, str(_SCRIPT), *self._arguments], stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"

    def kill(self) -> None:
        """Kill the server, as a power cut does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process = None

    def freeze(self) -> None:
        """Freeze the server: connections stay, and are silent."""
        self._signal(signal.SIGSTOP)

    def mute(self) -> None:
        """Send clock reports, but no pictures."""
        self._signal(signal.SIGUSR1)

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)
