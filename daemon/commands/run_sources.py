"""`lookout run SOURCE ...`: runs a daemon from sources on the command line."""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path

from rich.console import Console

from daemon.commands.command_line_config import TypedConfig, check_typed
from daemon.commands.from_arguments import save
from daemon.commands.run import run
from daemon.errors import LookoutError
from daemon.viewing.kit import Viewing


def run_sources(
    typed: TypedConfig, saved: Path | None, *, page: bool = False, show: bool = False, video: Path | None = None
) -> int:
    """Run URLs, files, folders and cameras without a configuration file.

    Args:
        saved: where to save the configuration; None not to.
        page: also serve the page, in a process of its own.
        show: open a window for each source.
        video: file of each source's pictures with their boxes; see `daemon.viewing.kit.Viewing`.
    """
    if saved and saved.exists():
        raise LookoutError(f"{saved} already exists: choose another name for --save")
    text, config = typed.read()
    check_typed(config.sources)
    with closing(Viewing([source.id for source in config.sources], video, show=show)) as viewing:
        typed.model.fetch(Console(file=sys.stderr))
        if saved:
            save(text, saved)
            sys.stderr.write(f"configuration saved: `lookout run -c {saved}` runs it again\n")
        return run(config, lambda: config, page=page, viewing=viewing)
