"""The server of recordings: one table of operations over all stores."""

from __future__ import annotations

import socket
from collections.abc import Sequence

from starlette.applications import Starlette

from daemon.clock import Clock
from daemon.config.http import HttpConfig
from daemon.http.access import Access
from daemon.http.routes import application
from daemon.http.server import HttpServer
from daemon.playback.activity import ActivityListing
from daemon.playback.audit import Audit
from daemon.playback.clips import Clips
from daemon.playback.evidence_settings import NO_SETTINGS, EvidenceSettings
from daemon.playback.exports import Exports
from daemon.playback.files import Files
from daemon.playback.listings import Listings
from daemon.playback.lock_keeping import LockKeeping
from daemon.playback.opened import PlayPlace
from daemon.playback.searches import Searches
from daemon.playback.stills import Stills
from daemon.playback.stores import Stores
from daemon.playback.tracks import TrackListing
from daemon.playback.workers import PATIENCE_S

_ANSWER_S = 3600.0  # a clip of ten minutes over a slow line
_END_S = 1.0


def playback(
    config: HttpConfig,
    places: Sequence[PlayPlace],
    clock: Clock,
    patience_s: float = PATIENCE_S,
    evidence: EvidenceSettings = NO_SETTINGS,
) -> Starlette:
    """The application.

    Args:
        config: with the tokens.
        patience_s: for each answer of a store.

    Raises:
        LookoutError: a token cannot be read.
    """
    stores, audit = Stores(places, clock, patience_s), Audit(clock)
    features = (
        Listings(stores),
        TrackListing(stores),
        ActivityListing(stores, clock),
        Stills(stores, audit),
        Clips(stores, audit),
        LockKeeping(stores, audit, clock),
        Searches(stores, places, audit, clock),
        Exports(stores, audit, clock, evidence),
        Files(stores, audit),  # the last: a source may be named `files`
    )
    return application([row for feature in features for row in feature.operations()], Access(config, clock))


class PlaybackServer:
    """Serves on a port that is bound already.

    Raises:
        LookoutError: a token or a TLS file cannot be read.
    """

    def __init__(
        self,
        config: HttpConfig,
        places: Sequence[PlayPlace],
        bound: socket.socket,
        clock: Clock,
        evidence: EvidenceSettings = NO_SETTINGS,
    ) -> None:
        self._app = playback(config, places, clock, evidence=evidence)
        self._server = HttpServer(config, "record", bound=bound, answer_s=_ANSWER_S)

    def start(self) -> None:
        self._server.mount(self._app)
        self._server.start()

    @property
    def is_alive(self) -> bool:
        """Whether it serves."""
        return self._server.is_alive()

    def close(self) -> None:
        """Stop serving. A second call does nothing."""
        self._server.stop(_END_S)
