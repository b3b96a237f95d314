"""`lookout engine compare`: compares an engine's tensors with onnxruntime's."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import cast

import onnx
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from calibration import comparison
from calibration.comparison import TensorDifference
from daemon.sources.scene import Scene
from detectors.factory import engine_backend, engine_tensors, open_detector
from detectors.heads.layout import Floats
from detectors.model import read
from detectors.pictures import read_picture
from detectors.port import DetectorError, HostImage, Options, Prepares

_MAX_ROWS = 30


def compare(options: Options, picture: Path | None, tolerance: float, *, everything: bool) -> bool:
    """Compare an engine with onnxruntime, tensor by tensor; returns whether they agree.

    Args:
        options: for opening the model and building its engine.
        picture: a file; None for a synthetic street.
        tolerance: of a tensor's error relative to its norm.
        everything: compare all tensors, not only inputs of weighted layers.

    Raises:
        DetectorError: the model or the picture cannot be read, or the engine cannot be built.
    """
    pixels = _pixels(options, picture)  # also finds that the file is no model
    engine_backend()  # before a minute of work
    model = onnx.load_model_from_string(read(options.path))
    names = comparison.compared_tensors(model, everything=everything)
    exact = comparison.exact_values(model, names, pixels)
    rows = comparison.compare(model, exact, engine_tensors(options, list(exact), pixels))
    different = [row for row in rows if row.error > tolerance]
    first = f"the greatest error is {max((row.error for row in rows), default=0.0):.2g}"
    console = Console()
    if different:
        console.print(_table(different[:_MAX_ROWS]))
        first = f"the first: {different[0].name}, of {different[0].made_by}"
    summary = f"{len(different)} of {len(rows)} tensors differ by more than {tolerance:g} of their size; {first}"
    console.print(summary, highlight=False, soft_wrap=True, markup=False)
    return not different


def _table(rows: list[TensorDifference]) -> Table:
    table = Table("tensor", "made by", "largest", "error", "NaN", "infinite")
    for row in rows:
        cells = (f"{row.largest:.3g}", f"{row.error:.2g}", str(row.nans), str(row.infinities))
        table.add_row(escape(row.name), escape(row.made_by), *cells)
    return table


def _pixels(options: Options, picture: Path | None) -> Floats:
    """The picture as model input."""
    options = replace(options, precision="auto", max_batch=1)
    with closing(open_detector("cpu", options)) as detector, closing(detector.lane()) as lane:
        pixels: Floats = cast("Prepares", lane).preprocess([_picture(picture)]).copy()
        return pixels


def _picture(file: Path | None) -> HostImage:
    if file is None:
        return HostImage(Scene(1280, 720).draw(7))
    picture = read_picture(file)
    if picture is None:
        raise DetectorError(f"{file} is not a readable picture")
    return HostImage(picture)
