"""`lookout run`: a daemon in this process, of a configuration file or of sources on the command line."""

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
    """Until it is told to end; SIGHUP reads the file again. Returns the exit code."""

    def read() -> Config:
        found = load_effective(path)
        warn_if_overridden(found)
        return found

    return _run(load_effective(path), read)


def run_sources(sources: Sequence[str], model: str, endpoint: str | None, saved: Path | None) -> int:
    """Of URLs, files, folders and cameras, without a file.

    Args:
        model: a file, or a name of the catalogue.
        saved: where the configuration that they make is written; None for nowhere.
    """
    described = sources_of(sources)  # before anything is fetched
    path, entry = find(model, Console(file=sys.stderr))
    text = yaml_of(described, path, entry.labels if entry else None, endpoint)
    config = config_of(text)
    if saved:
        save(text, saved)
        sys.stderr.write(f"the configuration is in {saved}: `lookout run -c {saved}` runs it again\n")
    return _run(config, lambda: config)


def _run(config: Config, read: Callable[[], Config]) -> int:
    disable_core_dumps()
    if config.http.sources_file:
        SourceStore(config.http.sources_file).remove_leftovers()
    stop, running, asked = Stop(), list[App](), Stop()

    def reload() -> None:
        asked.set()  # for a daemon that is still to be built
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
