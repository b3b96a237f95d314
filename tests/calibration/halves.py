"""`python -m tests.calibration.halves`: how often one half of the photos contradicts the ruling of the other half.

Real models are quantised several ways and run on the shared photos once. The photos are split into random halves, each
half rules on a file, and pairs of rulings are counted. For comparison, the rule without intervals: how often a drop
within the budget on one half is over it on the other.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import numpy as np
import onnx
from rich.console import Console
from rich.table import Table

from calibration.bootstrap import Interval, Ruling, drop_of_ap, ruling_of
from calibration.coco import Truth, measure
from calibration.frames import photos
from calibration.graph import copy_of
from calibration.matches import Matches
from calibration.quantize import METHODS, load, observe, quantize
from detectors.half import to_half
from detectors.ort.detector import OrtDetector
from detectors.port import HostImage, Options, PostprocessParams

BUDGET = 0.01
MODELS = ("yolov5n", "yolov8n")
_PHOTOS = 24  # calibration photos
_DATA = Path(os.environ.get("LOOKOUT_TEST_DATA", Path(__file__).resolve().parents[3] / "shared" / "data"))


@dataclass
class Tally:
    """Rulings on one file over all splits.

    Attributes:
        whole: the loss on all photos.
        rulings: count of each pair of rulings.
        passed, failed: halves with a drop within the budget, and those of them whose other half is over it.
        over: accepted halves whose other half shows a drop over the budget.
    """

    whole: Interval | None = None
    rulings: Counter[tuple[Ruling, Ruling]] = field(default_factory=Counter)
    passed: int = 0
    failed: int = 0
    over: int = 0

    @property
    def accepted(self) -> int:
        return sum(count for (first, _), count in self.rulings.items() if first == "accepted")

    @property
    def contradicted(self) -> int:
        """Accepted on one half and refused on the other."""
        return self.rulings["accepted", "refused"]

    def add(self, other: Tally) -> None:
        self.rulings.update(other.rulings)
        self.passed, self.failed, self.over = (
            self.passed + other.passed, self.failed + other.failed, self.over + other.over,
        )  # fmt: skip


def files(data: Path, name: str, folder: Path) -> Iterator[tuple[str, Path]]:
    """The model in float, in FP16, and in INT8 by each method."""
    path = data / "models" / f"{name}.onnx"
    yield "fp32", path
    model = load(path)
    made = folder / f"{name}.onnx"
    onnx.save(to_half(copy_of(model)), made)
    yield "fp16", made
    with closing(OrtDetector(Options(path, labels="coco", max_batch=1))) as detector, closing(detector.lane()) as lane:
        pictures = islice(photos(data / "images" / "calibration"), _PHOTOS)
        inputs = [lane.preprocess([HostImage(picture.bgr)]).copy() for picture in pictures]
    seen = observe(model, inputs)
    for method in METHODS:
        onnx.save(quantize(model, seen.ranges(method)), made)
        yield method, made


def matches_of(data: Path, name: str) -> dict[str, Matches]:
    """Each file's detections on the shared photos."""
    truth = Truth(data / "images" / "val", data / "images" / "val.json")
    wanted = PostprocessParams(0.001, 0.65, 300, multi_label=True)
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for label, path in files(data, name, Path(folder)):
            with closing(OrtDetector(Options(path, labels="coco", wanted=wanted, max_batch=1))) as detector:
                found[label] = measure(detector, truth)[1]
    return found


def tally(reference: Matches, other: Matches, cuts: Sequence[Sequence[int]], budget: float, resamples: int) -> Tally:
    """Rulings of both halves of each split.

    Args:
        cuts: the photos of one half, for each split.
    """
    result = Tally(drop_of_ap(reference, other, 0))
    for number, half in enumerate(cuts):
        rest = sorted(set(range(len(reference.groups))) - set(half))
        found = [drop_of_ap(reference.part(part), other.part(part), number, resamples) for part in (half, rest)]
        for one, two in (found, found[::-1]):
            result.rulings[ruling_of(one, budget), ruling_of(two, budget)] += 1
            result.passed += one.drop <= budget
            result.failed += one.drop <= budget < two.drop
            result.over += ruling_of(one, budget) == "accepted" and two.drop > budget
    return result


def halves(count: int, photos: int, seed: int = 0) -> list[list[int]]:
    """The first half of each of `count` random splits."""
    chance = np.random.default_rng(seed)
    return [sorted(chance.permutation(photos)[: photos // 2].tolist()) for _ in range(count)]


def all_tallies(data: Path, cuts: int, budget: float, resamples: int = 200) -> dict[str, Tally]:
    """Tallies of all quantised files, by model and method."""
    rows: dict[str, Tally] = {}
    for name in MODELS:
        found = matches_of(data, name)
        reference = found.pop("fp32")
        chosen = halves(cuts, len(reference.groups))
        for label, other in found.items():
            rows[f"{name} {label}"] = tally(reference, other, chosen, budget, resamples)
    return rows


def _loss(found: Interval | None) -> str:
    return f"{found.drop:+.4f} ({found.low:+.3f} to {found.high:+.3f}), {found.sd:.4f}" if found else ""


def _share(part: int, whole: int) -> str:
    return f"{part} of {whole}" + (f" ({part / whole:.1%})" if whole else "")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=_DATA)
    parser.add_argument("--halves", type=int, default=480, help="random halves per file")
    parser.add_argument("--budget", type=float, default=BUDGET)
    parser.add_argument("--resamples", type=int, default=200)
    args = parser.parse_args()
    rows = all_tallies(args.data, args.halves // 2, args.budget, args.resamples)
    sums: dict[str, Tally] = {}
    for name, row in rows.items():
        for group in ("all", "FP16" if name.endswith("fp16") else "INT8"):
            sums.setdefault(group, Tally()).add(row)
    table = Table(
        "", "drop on all (95 %), sd", "halves: accepted", "refused", "undecided", "accepted, refused on the other",
        "accepted, drop over budget on the other", "without intervals: passed, failed on the other",
    )  # fmt: skip
    for name, row in {**rows, **sums}.items():
        firsts = Counter[str]()
        for (first, _), count in row.rulings.items():
            firsts[first] += count
        counts = [str(firsts[word]) for word in ("accepted", "refused", "undecided")]
        table.add_row(
            name, _loss(row.whole), *counts, _share(row.contradicted, row.accepted), _share(row.over, row.accepted),
            _share(row.failed, row.passed),
        )  # fmt: skip
    Console(width=180).print(table)
    every = sums["all"]
    return int(every.contradicted > 0.05 * every.accepted)


if __name__ == "__main__":
    raise SystemExit(main())
