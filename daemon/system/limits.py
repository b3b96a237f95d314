"""How long the daemon waits for anything that may not answer, in one place."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Seconds, by the daemon's clock.

    Attributes:
        stop: from a signal until the publisher ends. Each part that is closed after that has `close` more.
        requests: of that, for open requests over HTTP to be answered; those that are not are cut off.
        remove: for a removed source to end. Its library has limits of its own, 5 s by default.
        settle: for a stopped source's last frame to be on its way, before the source says `ended`.
        worker_exit: between a capture process closing its socket and its exit; after it, the process is killed.
        worker_start: for a capture process to give its first sign of life; loading it and opening a GPU take some.
        worker_silence: without another, after which it is taken for stuck.
        worker_idle: without a source, after which a capture process ends.
        worker_pause: before a capture process that died is started again; twice as long each time, up to thirty times.
        worker_lived: after which a capture process that dies is replaced as fast as the first time.
        lane_start: for the lanes of a model to make their buffers and see a picture.
        close: for a detector, a decoder pool or a helper process to be closed.
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
