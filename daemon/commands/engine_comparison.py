"""`lookout engine compare`: what an engine computes beside what onnxruntime does."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import cast

import cv2
import numpy as np
import onnx
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from calibration import comparison
from calibration.comparison import TensorDifference
from daemon.sources.scene import Scene
from detectors.factory import engine_tensors, open_detector
from detectors.heads import Floats
from detectors.model import read
from detectors.port import DetectorError, HostImage, Options, Prepares

_MOST_ROWS = 30


def compare(options: Options, picture: Path | None, tolerance: float, *, everything: bool) -> bool:
    """What an engine computes beside what onnxruntime does, tensor by tensor; whether they agree.

    Args:
        options: of the model, and how its engine is to be built.
        picture: a file; None for a drawn street.
        tolerance: of a tensor's error over its size.
        everything: not only what layers with weights read.

    Raises:
        DetectorError: the model or the picture cannot be read, or the engine not be built.
    """
    model, pixels = onnx.load_model_from_string(read(options.path)), _pixels(options, picture)
    names = comparison.compared_tensors(model, everything=everything)
    exact = comparison.exact_values(model, names, pixels)
    rows = comparison.compare(model, exact, engine_tensors(options, list(exact), pixels))
    apart = [row for row in rows if row.error > tolerance]
    first = f"the greatest error is {max((row.error for row in rows), default=0.0):.2g}"
    console = Console()
    if apart:
        console.print(_table(apart[:_MOST_ROWS]))
        first = f"the first: {apart[0].name}, of {apart[0].made_by}"
    words = f"{len(apart)} of {len(rows)} tensors differ by more than {tolerance:g} of their size; {first}"
    console.print(words, highlight=False, soft_wrap=True, markup=False)
    return not apart


def _table(rows: list[TensorDifference]) -> Table:
    table = Table("tensor", "made by", "largest", "error", "NaN", "infinite")
    for row in rows:
        cells = (f"{row.largest:.3g}", f"{row.error:.2g}", str(row.nans), str(row.infinities))
        table.add_row(escape(row.name), escape(row.made_by), *cells)
    return table


def _pixels(options: Options, picture: Path | None) -> Floats:
    """As the model reads them."""
    options = replace(options, precision="auto", max_batch=1)
    with closing(open_detector("cpu", options)) as detector, closing(detector.lane()) as lane:
        pixels: Floats = cast("Prepares", lane).preprocess([_picture(picture)]).copy()
        return pixels


def _picture(file: Path | None) -> HostImage:
    if file is None:
        return HostImage(Scene(1280, 720).draw(7))
    picture = cv2.imread(str(file))
    if picture is None:
        raise DetectorError(f"{file} is not a picture that can be read")
    return HostImage(np.asarray(picture, np.uint8))
