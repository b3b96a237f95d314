"""All time limits of the daemon's parts."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Seconds, by the daemon's clock.

    Attributes:
        stop: from a signal to the end of the publisher. Each part that is closed later has `close` more.
        requests: the part of `stop` for open HTTP requests, which are then cut off.
        remove: for a removed source to end. Its library has limits of its own, 5 s by default.
        settle: for a stopped source's last frame to be sent, before the source is `ended`.
        worker_exit: from closing a capture process's socket to its exit; then it is killed.
        worker_start: for a capture process's first heartbeat; it loads libraries and opens a GPU.
        worker_silence: without a heartbeat a capture process is stuck.
        worker_idle: a capture process without a source ends.
        worker_pause: before a dead capture process is restarted; doubles each time, up to thirty times.
        worker_lived: a capture process that lived this long is restarted without the longer pause.
        lane_start: for the lanes of a model to allocate buffers and run once.
        close: for closing a detector, a decoder pool or a helper process.
    """

    stop: float = 5.0
    requests: float = 0.5
    remove: float = 7.0
    settle: float = 2.0
    worker_exit: float = 2.0
    worker_start: float = 60.0
    worker_silence: float = 30.0
    worker_idle: float = 10.0
    worker_pause: float = 1.0
    worker_lived: float = 60.0
    lane_start: float = 120.0
    close: float = 2.0
