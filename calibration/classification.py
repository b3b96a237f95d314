"""Accuracy of a classifier over labelled pictures: whether the right class comes first, or among the first five."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np

from calibration.coco import Tell
from detectors.pictures import read_picture
from detectors.port import Detector, DetectorError, HostImage

_PICTURES = (".jpg", ".jpeg", ".png", ".bmp", ".webp")
_COLUMNS = 2


@dataclass(frozen=True)
class ClassAccuracy:
    """Attributes:
    pictures: of the class.
    top1, top5: share of them whose class comes first, or among the first five.
    """

    pictures: int
    top1: float
    top5: float


@dataclass(frozen=True)
class Classification:
    """Accuracy over all pictures, and of each class that has any.

    Attributes:
        unreadable: files that are not pictures.
    """

    pictures: int
    top1: float
    top5: float
    classes: dict[str, ClassAccuracy]
    unreadable: list[str]


def labelled(path: Path) -> list[tuple[Path, str]]:
    """Pictures and their classes: of a folder with a folder for each class, or of a CSV of file and class.

    Raises:
        DetectorError: there are none.
    """
    try:
        pairs = _rows(path) if path.is_file() else _folders(path)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DetectorError(f"{path} cannot be read: {error}") from error
    if not pairs:
        raise DetectorError(f"{path} has no pictures: give a folder with a folder for each class, or a CSV file,class")
    return pairs


def _folders(path: Path) -> list[tuple[Path, str]]:
    return [
        (file, folder.name)
        for folder in sorted(path.iterdir())
        if folder.is_dir()
        for file in sorted(folder.rglob("*"))
        if file.suffix.lower() in _PICTURES
    ]


def _rows(path: Path) -> list[tuple[Path, str]]:
    pairs = []
    with path.open(newline="", encoding="utf-8") as file:
        for number, row in enumerate(csv.reader(file), 1):
            if len(row) != _COLUMNS:
                raise DetectorError(f"{path}:{number}: a line is file,class, but this one has {len(row)} columns")
            name, label = (value.strip() for value in row)
            if number == 1 and Path(name).suffix.lower() not in _PICTURES:
                continue  # the header
            pairs.append((path.parent / name, label))
    return pairs


def evaluate(detector: Detector, pairs: Sequence[tuple[Path, str]], tell: Tell | None = None) -> Classification:
    """Classify all pictures.

    Args:
        pairs: see `labelled`. A class is a label of the model, or a number of one. Where the model has no labels of its
            own, as many classes as it has stand for them in alphabetical order.
        tell: called after each batch.

    Raises:
        DetectorError: the model is no classifier, a class is not one of its labels, or no picture can be read.
    """
    if detector.info.head != "classify":
        raise DetectorError(f"{detector.info.name} is not a classifier: its head is {detector.info.head}")
    numbers = numbers_of(sorted({label for _, label in pairs}), detector.info.labels)
    hits: dict[str, list[int]] = {}  # place of the right class, by class
    unreadable: list[str] = []
    with closing(detector.lane()) as lane:
        for batch in _batches(pairs, detector.info.max_batch, unreadable):
            found, _ = lane.detect([image for image, _ in batch])
            for (_, label), best in zip(batch, found):
                places = np.flatnonzero(best.class_id == numbers[label]).tolist()
                hits.setdefault(label, []).append(places[0] if places else len(detector.info.labels))
            if tell is not None:
                tell(len(unreadable) + sum(map(len, hits.values())), len(pairs))
    if not hits:
        raise DetectorError(f"none of {len(pairs)} pictures can be read, {unreadable[0]} among them")
    every = [place for places in hits.values() for place in places]
    classes = {label: _accuracy(places) for label, places in sorted(hits.items())}
    whole = _accuracy(every)
    return Classification(whole.pictures, whole.top1, whole.top5, classes, unreadable)


def _accuracy(places: Sequence[int]) -> ClassAccuracy:
    return ClassAccuracy(len(places), _share(places, 1), _share(places, 5))


def _share(places: Sequence[int], first: int) -> float:
    return round(sum(place < first for place in places) / len(places), 4)


def numbers_of(classes: Sequence[str], labels: Sequence[str]) -> dict[str, int]:
    """The model's number of each class."""
    known = {label: number for number, label in enumerate(labels)}
    if all(label in known for label in classes):
        return {label: known[label] for label in classes}
    if all(label.isdecimal() and int(label) < len(labels) for label in classes):
        return {label: int(label) for label in classes}
    if len(classes) == len(labels) and labels[0] == "class_0":
        return {label: number for number, label in enumerate(classes)}
    unknown = next(label for label in classes if label not in known)
    raise DetectorError(
        f"{unknown!r} is not a label of the model, which has {len(labels)}: {', '.join(labels[:5])} ...; "
        "give --labels, or name classes by their numbers"
    )


def _batches(
    pairs: Sequence[tuple[Path, str]], size: int, unreadable: list[str]
) -> Iterator[list[tuple[HostImage, str]]]:
    """Readable pictures and their classes."""
    pictures = _read(pairs, unreadable)
    while batch := list(islice(pictures, size)):
        yield batch


def _read(pairs: Sequence[tuple[Path, str]], unreadable: list[str]) -> Iterator[tuple[HostImage, str]]:
    for path, label in pairs:
        bgr = read_picture(path)
        if bgr is None:
            unreadable.append(str(path))
        else:
            yield HostImage(bgr), label
