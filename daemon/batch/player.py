"""Plays clips: several at a time through one detector, in a daemon of its own that nobody subscribes to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import TimeoutError as FutureTimeoutError
from pathlib import Path
from typing import Protocol

import msgspec
from msgspec import UNSET

from daemon.batch.settings import Recipe
from daemon.batch.sink import Ended, ResultSink
from daemon.batch.writer import ResultWriter
from daemon.build import build
from daemon.config.root import Config
from daemon.daemon import Daemon
from daemon.errors import LookoutError
from daemon.pipeline.ledger import Counts
from daemon.seams import Seams
from daemon.system.stop_token import StopToken
from lookout.messages import Model

_CHANGE_S = 120.0  # limit for a change of the sources


class Player(Protocol):
    """Plays clips, each as a source with an id of its own."""

    def open(self, clips: Mapping[str, Path]) -> dict[str, Model]:
        """Open the models, for these clips to begin with; returns what messages say of each, by name.

        Raises:
            LookoutError, DetectorError: one cannot be opened.
            StoppedError: a stop is requested meanwhile.
        """

    def play(self, clips: Mapping[str, Path], writers: Mapping[str, ResultWriter]) -> None:
        """Play clips besides those that play already, and no more those that have ended or were dropped. The first call
        has the clips of `open`."""

    def drop(self, sources: list[str]) -> None:
        """Write nothing more of these; the next `play` ends them."""

    def take_ended(self) -> list[Ended]:
        """The clips that have ended since the last call."""

    @property
    def failure(self) -> int | None:
        """Exit code, when the detector or another part has failed."""

    def close(self) -> int | None:
        """Stop. Returns the exit code of a failure; a second call does nothing."""


class DaemonPlayer:
    """Implements `Player`.

    Args:
        wake: called when a clip has ended, or a part has failed.
        stop: ends opening the models.
    """

    def __init__(self, recipe: Recipe, wake: Callable[[], None], stop: StopToken) -> None:
        self._recipe, self._stop = recipe, StopToken()
        stop.on_set(self._stop.set)
        self._stop.on_set(wake)
        self._sink = ResultSink(wake, self._counts_of)
        self._daemon: Daemon | None = None
        self._begun = False
        self._playing: dict[str, Path] = {}

    def open(self, clips: Mapping[str, Path]) -> dict[str, Model]:
        self._playing = dict(clips)
        seams = Seams(sinks=[self._sink], ends_early=True)
        daemon = self._daemon = build(self._config(self._recipe.config), seams, stop=self._stop)
        return {
            name: Model(info.name, info.digest, info.precision, info.backend, name or UNSET)
            for name, info in daemon.parts.detecting.infos.items()
        }

    def play(self, clips: Mapping[str, Path], writers: Mapping[str, ResultWriter]) -> None:
        for source, writer in writers.items():
            self._sink.expect(source, writer)
        if self._daemon is None:
            raise RuntimeError("open comes first")
        if self._begun:
            self._playing = {**self._playing, **clips}
            self._change(self._daemon)
        else:
            self._begun = True
            self._daemon.start()

    def drop(self, sources: list[str]) -> None:
        for source in sources:
            self._sink.forget(source)
            self._playing.pop(source, None)

    def take_ended(self) -> list[Ended]:
        ended = self._sink.take_ended()
        for row in ended:
            self._playing.pop(row.source, None)  # it goes with the next change
        return ended

    @property
    def failure(self) -> int | None:
        if self._daemon is None or self._daemon.health.failure is None:
            return None
        return self._daemon.health.exit_code

    def close(self) -> int | None:
        daemon, self._daemon = self._daemon, None
        if daemon is None:
            return None
        daemon.request_stop()
        code = daemon.stop()
        return code if daemon.health.failure else None

    def _change(self, daemon: Daemon) -> None:
        """Let the daemon have the sources that play, and no others."""
        future = daemon.changes.submit(self._config)
        try:
            future.result(_CHANGE_S)
        except FutureTimeoutError as error:
            raise LookoutError("the clips that have ended cannot be closed: a library hangs; start again") from error

    def _counts_of(self, source: str) -> dict[str, Counts]:
        if self._daemon is None:
            raise RuntimeError("open comes first")
        ledger = self._daemon.ledger
        return {model: ledger.counts_of_account(account) for model, account in ledger.accounts_of(source).items()}

    def _config(self, config: Config) -> Config:
        sources = [self._recipe.source(source, path) for source, path in self._playing.items()]
        return msgspec.structs.replace(config, sources=sources)
