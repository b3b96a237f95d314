"""A camera whose pictures show the time: each is encoded as soon as it is drawn, and sent over TCP."""

from __future__ import annotations

import subprocess
import threading
from contextlib import suppress
from time import monotonic, time

import numpy as np

from tests.support.ports import free_port

BITS = 24  # of the time in ms, in blocks from the left, the highest first
BLOCK = 24  # pixels
WIDTH, HEIGHT, FPS = 640, 360, 25


class ClockCamera:
    """H.264 in MPEG-TS without B-frames, a key picture a second, for one client at a time.

    Args:
        noise: rows of the picture that are noise, which make it large.
        fps: pictures a second.
    """

    def __init__(self, noise: int = 0, fps: int = FPS) -> None:
        self._noise, self._fps = noise, fps
        self.url = f"tcp://127.0.0.1:{free_port()}"
        command = [
            "ffmpeg", "-v", "error", "-probesize", "32", "-f", "rawvideo", "-pix_fmt", "gray",
            "-s", f"{WIDTH}x{HEIGHT}", "-r", str(fps), "-i", "-", "-c:v", "libx264", "-preset", "ultrafast",
            "-tune", "zerolatency", "-g", str(fps), "-pix_fmt", "yuv420p",
            "-muxdelay", "0", "-flush_packets", "1", "-f", "mpegts", f"{self.url}?listen=1",
        ]  # fmt: skip
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stopped.set()
        self._process.kill()
        self._process.wait()
        self._thread.join(10)
        if self._process.stdin is not None:
            with suppress(OSError):
                self._process.stdin.close()

    def _run(self) -> None:
        assert self._process.stdin is not None
        due = monotonic()
        while not self._stopped.wait(max(0.0, due - monotonic())):
            try:
                self._process.stdin.write(_picture(int(time() * 1000), self._noise))
                self._process.stdin.flush()
            except OSError:
                return
            due = max(due + 1 / self._fps, monotonic() - 1.0)  # nobody was connected: what is late is not made up for


def _picture(ms: int, noise: int) -> bytes:
    image = np.full((HEIGHT, WIDTH), 96, np.uint8)
    image[HEIGHT - noise :] = np.random.default_rng(ms).integers(0, 256, (noise, WIDTH), np.uint8)
    for index in range(BITS):
        bit = ms >> (BITS - 1 - index) & 1
        image[:BLOCK, index * BLOCK : (index + 1) * BLOCK] = 235 if bit else 16
    return image.tobytes()
