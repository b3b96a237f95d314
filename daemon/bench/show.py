"""The end of a benchmark: figures into files first, then pages, then the terminal.

A command imports this before it measures, and with it all that its end needs.
"""

from __future__ import annotations

from pathlib import Path

from daemon.bench.pages import page_of, save
from daemon.bench.result import Report, write
from daemon.commands.report.tables import print_line, show


def show_report(report: Report, out: Path | None, json_file: Path | None) -> int:
    """Write the files that are asked for, and then show the report on the terminal."""
    if json_file:
        write(json_file, report)
    written = save(report, out) if out else []
    show(page_of(report))
    for path in written:
        print_line(str(path))
    return 0
