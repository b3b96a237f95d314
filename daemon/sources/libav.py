"""FFmpeg as all connections use it: schemes of URLs, options, and its messages."""

from __future__ import annotations

import av.error

from daemon.redact import scrub

RTSP = ("rtsp", "rtsps")
HTTP = ("http", "https")
LOCAL = ("", "file")
# By default FFmpeg reads 20 frames at open to guess the frame rate, which Lookout measures by itself.
LIVE_OPTIONS = {"fpsprobesize": "0"}
CLOSED = "the server closed the connection"


def message_of(error: Exception) -> str:
    """FFmpeg's message, without the URL that PyAV adds."""
    if isinstance(error, av.error.ExitError):  # its end of a connection that it did not end itself
        return CLOSED
    message = error.strerror if isinstance(error, OSError | av.error.FFmpegError) and error.strerror else str(error)
    return scrub(message)
