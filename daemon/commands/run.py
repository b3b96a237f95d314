"""`lookout run`: runs a daemon from a configuration file or from sources on the command line."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console

from daemon.app import App
from daemon.commands.from_arguments import config_of, save, sources_of, yaml_of
from daemon.commands.model import find
from daemon.config import Config
from daemon.control.source_store import SourceStore, load_effective, warn_if_overridden
from daemon.log import logging
from daemon.system.signals import stopping_on_signals
from daemon.system.stop import Stop, StoppedError
from daemon.system.tuning import disable_core_dumps


def run_file(path: Path) -> int:
    """Run until stopped; SIGHUP reloads the file. Returns the exit code."""

    def read() -> Config:
        found = load_effective(path)
        warn_if_overridden(found)
        return found

    return _run(load_effective(path), read)


def run_sources(sources: Sequence[str], model: str, endpoint: str | None, saved: Path | None) -> int:
    """Run URLs, files, folders and cameras without a configuration file.

    Args:
        model: a file, or a name in the catalogue.
        saved: where to save the configuration; None not to.
    """
    described = sources_of(sources)  # before any download
    path, entry = find(model, Console(file=sys.stderr))
    text = yaml_of(described, path, entry.labels if entry else None, endpoint)
    config = config_of(text)
    if saved:
        save(text, saved)
        sys.stderr.write(f"configuration saved: `lookout run -c {saved}` runs it again\n")
    return _run(config, lambda: config)


def _run(config: Config, read: Callable[[], Config]) -> int:
    disable_core_dumps()
    if config.http.sources_file:
        SourceStore(config.http.sources_file).remove_leftovers()
    stop, running, asked = Stop(), list[App](), Stop()

    def reload() -> None:
        asked.set()  # the daemon may not be built yet
        for app in running:
            app.reload_file()

    with stopping_on_signals(stop.set, reload), logging(config.log):
        warn_if_overridden(config)
        try:
            app = App(config, stop=stop, read=read)
        except StoppedError:
            return 0
        running.append(app)
        if asked.is_set:
            app.reload_file()
        return app.run()
