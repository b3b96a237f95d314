"""Figures on the terminal and in files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import rich.table
from rich.console import Console

from daemon.commands.report import Page, Table
from daemon.errors import LookoutError
from detectors.port import ModelInfo

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from calibration.classification import Classification
    from calibration.coco import Evaluation
    from calibration.views import ViewComparison
    from daemon.commands.mot import MotScores

_MAX_ROWS = 24
_COLOURS = {"better": "green", "worse": "red", "unknown": "yellow"}


def write_json(path: Path | None, figures: DataclassInstance | Sequence[DataclassInstance]) -> None:
    """Write a dataclass of figures, or several, if a path is given.

    Raises:
        LookoutError: the file cannot be written.
    """
    if path is None:
        return
    plain = [asdict(row) for row in figures] if isinstance(figures, Sequence) else asdict(figures)
    try:
        path.write_bytes(msgspec.json.format(msgspec.json.encode(plain), indent=2) + b"\n")
    except OSError as error:
        raise LookoutError(f"--json {path} cannot be written: {error.strerror}") from error


def show(shown: Page | Table) -> None:
    """Print a page or a table; of a long table the first rows only."""
    console = Console()
    if isinstance(shown, Page):
        for line in (shown.headline, *shown.remarks):
            print_line(line)
        for row in shown.tables:
            show(row)
        return
    table = rich.table.Table(title=shown.title, title_justify="left", show_header=any(shown.head))
    for number, name in enumerate(shown.head):
        table.add_column(name, justify="left" if number == 0 or not name else "right", overflow="fold")
    for cells in shown.rows[:_MAX_ROWS]:
        table.add_row(*(rich.text.Text(cell) for cell in cells), style=_COLOURS.get(cells[-1]))
    console.print(table)
    if len(shown.rows) > _MAX_ROWS:
        print_line(f"and {len(shown.rows) - _MAX_ROWS} more: see the report")


def print_line(line: str) -> None:
    """Print one line."""
    Console().print(line, highlight=False, markup=False, soft_wrap=True)


def tracking_scores(found: MotScores) -> None:
    """Print the result of `lookout evaluate --mot`."""
    rows = [(name, *map(str, (one.hota, one.idf1, one.mota, one.switches))) for name, one in found.sequences.items()]
    show(Table("Tracks", ("sequence", "HOTA", "IDF1", "MOTA", "switches"), rows))


def classification(found: Classification, model: ModelInfo) -> None:
    """Print the result of `lookout evaluate --classify`."""
    worst_first = sorted(found.classes.items(), key=lambda row: row[1].top1)
    rows = [("all", str(found.pictures), f"{found.top1:.4f}", f"{found.top5:.4f}")]
    rows += [(name, str(one.pictures), f"{one.top1:.4f}", f"{one.top5:.4f}") for name, one in worst_first]
    title = f"{model.name} {model.digest} on {model.backend}, {model.precision}"
    show(Table(title, ("class, the worst first", "pictures", "top-1", "top-5"), rows))
    if found.unreadable:
        print_line(f"{len(found.unreadable)} files are not pictures, {found.unreadable[0]} among them")


def evaluation(result: Evaluation, model: ModelInfo) -> None:
    """Print the result of `lookout evaluate`."""
    rows = [
        ("AP 0.50:0.95", f"{result.ap:.4f}"),
        ("AP 0.50", f"{result.ap50:.4f}"),
        ("AP 0.75", f"{result.ap75:.4f}"),
        ("AP small / medium / large", f"{result.ap_small:.4f} / {result.ap_medium:.4f} / {result.ap_large:.4f}"),
        ("photos, boxes", f"{result.images}, {result.boxes}"),
    ]
    show(Table(f"{model.name} {model.digest} on {model.backend}, {model.precision}", ("", ""), rows))


def view_comparison(found: ViewComparison, model: ModelInfo) -> None:
    """Print the result of `lookout evaluate --tiles`."""
    rows = []
    for one in found.views:
        figures = one.figures
        areas = (figures.ap_small, figures.ap_medium, figures.ap_large)
        rows.append((one.view, str(one.pictures), *(f"{value:.4f}" for value in (figures.ap, figures.ap50, *areas))))
    head = ("view", "pictures a frame", "AP", "AP50", "small", "medium", "large")
    first = found.views[0].figures
    title = (
        f"{model.name} {model.digest} on {model.backend}, {model.precision}: {first.images} photos, {first.boxes} boxes"
    )
    show(Table(title, head, rows))
