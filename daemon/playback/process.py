"""In the daemon's process: the API of recordings in a child process, on a port that stays the daemon's own."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import msgspec

from daemon.clock import Clock
from daemon.config.http import HttpConfig
from daemon.config.recording import RecordConfig
from daemon.config.root import LogConfig
from daemon.http.server import bind, check_tls
from daemon.playback.evidence_settings import NO_SETTINGS, EvidenceSettings
from daemon.playback.opened import PlayPlace
from daemon.system.kept_process import KeptProcess


@dataclass(frozen=True)
class PlaybackOrder:
    """Configuration of the child process; see `daemon.playback.server.PlaybackServer`."""

    http: HttpConfig
    places: Sequence[PlayPlace]
    log: LogConfig
    evidence: EvidenceSettings = NO_SETTINGS


def playback_order(
    http: HttpConfig, record: RecordConfig, log: LogConfig, evidence: EvidenceSettings = NO_SETTINGS
) -> PlaybackOrder:
    """The order for a configuration whose `record.port` is set."""
    places = [PlayPlace(name, store.path, store.must_be_mount) for name, store in record.stores.items()]
    return PlaybackOrder(msgspec.structs.replace(http, enabled=True, port=record.port or 0), places, log, evidence)


class PlaybackProcess(KeptProcess):
    """Keeps the API running until `finish`. The constructor binds its port, which a restart does not give up.

    Attributes:
        port: that is bound.

    Raises:
        ConfigError: the port cannot be bound, or the TLS files cannot be read.
    """

    def __init__(self, order: PlaybackOrder, clock: Clock) -> None:
        check_tls(order.http, "record")
        self._bound = bind(order.http, "record")
        self.port = int(self._bound.getsockname()[1])
        super().__init__(
            "daemon.playback.main", "the API of recordings", order, clock, name="playback", fds=[self._bound.fileno()]
        )

    def finish(self, seconds: float) -> None:
        """After `request_stop`: wait so long, and give up the port, even if the system cannot end the process."""
        if self.ident is not None:
            self.join(seconds)
        with suppress(OSError):
            self._bound.shutdown(socket.SHUT_RDWR)
        self._bound.close()
