"""Pages of reports: the same tables as self-contained HTML and as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from daemon.commands.report.environment import Environment
from daemon.errors import LookoutError


@dataclass(frozen=True)
class Table:
    """A table of text; the first column names the rows."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: bool = False  # the last column is prose


@dataclass(frozen=True)
class Page:
    """The content of both forms."""

    title: str
    headline: str
    tiles: list[tuple[str, str, str]]
    remarks: list[str]
    tables: list[Table]
    plots: list[tuple[str, str]] = field(default_factory=list)


def write_pages(stem: Path, page: Page, environment: Environment) -> list[Path]:
    """Write STEM.md and STEM.html.

    Raises:
        LookoutError: they cannot be written, or a library is missing.
    """
    paths = []
    for suffix in (".md", ".html"):
        text = _template(f"page{suffix}").render(page=page, on=environment)
        path = stem.with_suffix(suffix)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        except OSError as error:
            raise LookoutError(f"{path} cannot be written: {error.strerror}") from error
        paths.append(path)
    return paths


def check_plots() -> None:
    """Check for the library of plots before a measurement, without its import: this process may be measured.

    Raises:
        LookoutError: it is missing.
    """
    if find_spec("matplotlib") is None:
        raise LookoutError("reports need matplotlib: pip install 'lookoutd[bench]'")


def check_pages() -> None:
    """Check for the libraries of pages with plots, before a measurement.

    Raises:
        LookoutError: one is missing.
    """
    check_plots()
    _template("page.html")


def number(value: float | None) -> str:
    """A number with four significant digits; empty for None."""
    if value is None:
        return ""
    if value == 0 or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def filled(tables: Sequence[Table]) -> list[Table]:
    """The tables that have rows."""
    return [table for table in tables if table.rows]


def _template(name: str):  # type: ignore[no-untyped-def]
    try:
        from jinja2 import Environment, FileSystemLoader, StrictUndefined
    except ImportError as error:
        raise LookoutError("reports need jinja2: pip install 'lookoutd[bench]'") from error
    loader = FileSystemLoader(Path(__file__).parent)
    environment = Environment(
        loader=loader, undefined=StrictUndefined, autoescape=name.endswith("html"), trim_blocks=True, lstrip_blocks=True
    )
    return environment.get_template(f"{name}.j2")
