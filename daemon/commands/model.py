"""`lookout model`: lists, fetches, inspects and exports models."""

from __future__ import annotations

import importlib.util
import shutil
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from daemon.commands import catalogue
from daemon.commands.catalogue import DEMO, CatalogueEntry, entry_of, entry_with, path_of
from daemon.commands.downloads import download, is_complete, without_secrets
from daemon.errors import LookoutError
from daemon.progress import progress
from daemon.system.paths import demo_model
from detectors.factory import open_detector
from detectors.port import Options
from detectors.semantics import ORIGINS

_SHOWN = ("head", "labels")  # facts with a row of their own
_DEMO_USE = "trying Lookout without a network"
_ULTRALYTICS = "AGPL-3.0: a service that uses it must offer its complete source to its users"


def show_catalogue(console: Console) -> None:
    """Print a row per model, and whether it is downloaded."""
    table = Table("name", "licence", "input", "AP", "MB", "good for", "here")
    table.add_row(DEMO, "Apache-2.0", "320x320", "", f"{demo_model().stat().st_size / 1e6:.1f}", _DEMO_USE, "yes")
    for entry in catalogue.CATALOGUE:
        width, height = entry.input
        here = "yes" if path_of(entry).exists() else ""
        row = (entry.name, entry.licence, f"{width}x{height}", f"{entry.ap:.1f}", f"{entry.size / 1e6:.1f}")
        table.add_row(*row, entry.good_for, here)
    console.print(table)
    console.print(
        "`lookout model get NAME` fetches one. AP: COCO val2017, as published by the makers.",
        highlight=False,
        soft_wrap=True,
    )


def get(
    name: str, console: Console, *, folder: Path | None = None, mirror: str | None = None, accept: bool = False
) -> Path:
    """Fetch a model of the catalogue, unless it exists.

    Args:
        folder: destination; None for the default.
        mirror: another address of the same file, or its path.
        accept: a licence with obligations for users of the model.

    Raises:
        LookoutError: it cannot be fetched; says what to do.
    """
    if name == DEMO:
        console.print(f"{demo_model()}: comes with Lookout", highlight=False, soft_wrap=True)
        return demo_model()
    entry = entry_of(name)
    path = path_of(entry, folder)
    mirror = _as_url(mirror) if mirror else None
    if path.exists() and is_complete(path, entry.size, entry.sha256):
        console.print(f"{path}: already downloaded", highlight=False, soft_wrap=True)
        return path
    origin = without_secrets(mirror or entry.url)
    console.print(f"{entry.name}, licence {entry.licence}, from {origin}", highlight=False, soft_wrap=True)
    _check_licence(entry, accept=accept)
    with progress(entry.name, "kB") as shown:
        download(
            mirror or entry.url,
            path,
            entry.size,
            entry.sha256,
            lambda have: shown.tell(have / 1e3, entry.size / 1e3),
        )
    console.print(f"{path}: {entry.size:,} bytes, SHA-256 verified", highlight=False, soft_wrap=True)
    return path


def _as_url(mirror: str) -> str:
    return mirror if "://" in mirror else Path(mirror).absolute().as_uri()


def _check_licence(entry: CatalogueEntry, *, accept: bool) -> None:
    if not entry.is_permissive and not accept:
        raise LookoutError(
            f"{entry.name} is under {_ULTRALYTICS}; `lookout model get {entry.name} --accept-licence` fetches it"
        )


@dataclass(frozen=True)
class ChosenModel:
    """A model that was named on the command line.

    Attributes:
        path: where its file is, or will be.
        entry: to fetch; None if the file is here.
    """

    path: Path
    entry: CatalogueEntry | None = None

    def fetch(self, console: Console) -> None:
        """Fetch the file, unless it is here.

        Raises:
            LookoutError: it cannot be fetched; says what to do.
        """
        if self.entry is None:
            return
        try:
            get(self.entry.name, console)
        except LookoutError as error:
            raise LookoutError(f"{error}, or try the model that comes with Lookout: --model {DEMO}") from error

    @property
    def labels(self) -> str | None:
        """For `model.labels`, if the file has none; None otherwise."""
        entry = self.entry or entry_with(self.path)
        return entry.labels if entry else None


def choose(name_or_path: str) -> ChosenModel:
    """A model by its path, or by its name in the catalogue; nothing is fetched yet.

    Raises:
        LookoutError: there is none, or its licence must be accepted first.
    """
    path = Path(name_or_path)
    if path.exists():
        return ChosenModel(path.resolve())
    if path.suffix or len(path.parts) > 1:
        raise LookoutError(f"model {path} does not exist; `lookout model list` shows models to fetch by name")
    if name_or_path == DEMO:
        return ChosenModel(demo_model())
    entry = entry_of(name_or_path)
    kept = path_of(entry)
    if kept.exists():
        return ChosenModel(kept)
    _check_licence(entry, accept=False)
    return ChosenModel(kept, entry)


def info(options: Options, console: Console) -> None:
    """Print facts about a model file, as Lookout opens it.

    Raises:
        DetectorError: it cannot be used; says why.
    """
    with closing(open_detector("cpu", options)) as detector:
        model, path = detector.info, options.path
    table = Table(show_header=False)
    width, height = model.input_size
    labels = ", ".join(model.labels[:8]) + (f" and {len(model.labels) - 8} more" if len(model.labels) > 8 else "")
    for row in (
        ("file", f"{path}, {path.stat().st_size:,} bytes"),
        ("digest", model.digest),
        ("head", model.head),
        ("input", f"{width}x{height}"),
        ("precision", model.precision),
        ("labels", labels),
        *((fact.name, f"{fact.value} ({ORIGINS[fact.origin]})") for fact in model.facts if fact.name not in _SHOWN),
        *(("note", note) for note in model.notes),
    ):
        table.add_row(*row)
    console.print(table)


def export(path: Path, size: tuple[int, int], console: Console) -> Path:
    """Export weights of Ultralytics to ONNX with their own exporter: dynamic batch, opset 17.

    Args:
        size: width and height of the input.

    Raises:
        LookoutError: Ultralytics is not installed, or refuses.
    """
    if not path.is_file():
        raise LookoutError(f"{path} is not a file: give a .pt file of Ultralytics")
    if importlib.util.find_spec("ultralytics") is None:
        raise LookoutError("the export needs Ultralytics' own package (AGPL-3.0): pip install ultralytics onnx")
    from ultralytics import YOLO

    try:
        made = Path(
            YOLO(str(path)).export(format="onnx", dynamic=True, opset=17, imgsz=[*reversed(size)], simplify=False)
        )
    except Exception as error:
        raise LookoutError(f"Ultralytics cannot export {path}: {type(error).__name__}: {error}") from error
    target = path.with_suffix(".onnx")
    if made != target:
        shutil.move(made, target)
    _fix_size(target, size)
    console.print(f"{target}: any batch size; `lookout model info {target}` shows it", highlight=False, soft_wrap=True)
    return target


def _fix_size(path: Path, size: tuple[int, int]) -> None:
    """Fix width and height, which the exporter makes dynamic together with the batch."""
    import onnx

    model = onnx.load(path)
    for dimension, value in zip(model.graph.input[0].type.tensor_type.shape.dim[2:4], reversed(size)):
        dimension.dim_value = value
    onnx.save(model, path)
