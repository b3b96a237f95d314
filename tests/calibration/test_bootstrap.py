"""Statistics of the gate: AP of resampled photos, coverage of the intervals, and the rulings."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from calibration.bootstrap import MIN_UNITS, Interval, Ruling, drop_of_ap, drop_of_share, more, ruling_of
from calibration.coco import Truth, score
from calibration.matches import Category, Matches
from detectors.detections import Detections

IOUS = np.linspace(0.5, 0.95, 10)
KINDS = 5
CATEGORIES = [3, 6, 9, 12]


def _street(chance: np.random.Generator, photos: int, loss: float) -> tuple[Matches, Matches]:
    """Matches of a detector, and of a slightly different one that misses more objects."""
    photo = np.repeat(np.arange(photos), 1 + chance.poisson(3, photos))
    kind = chance.integers(KINDS, size=len(photo))
    hard = chance.normal(0, 0.8, photos)[photo]
    found = chance.random(len(photo)) < 0.8
    quality = chance.normal(0.75, 0.15, len(photo)) - 0.1 * hard
    sure = chance.normal(0.5, 1.2, len(photo)) - hard
    wrong = np.repeat(np.arange(photos), chance.poisson(5, photos))
    wrong_kind, wrong_sure = chance.integers(KINDS, size=len(wrong)), chance.normal(-1, 1, len(wrong))

    def seen(missed: float) -> Matches:
        kept = found & (chance.random(len(photo)) >= missed)
        scores = np.concatenate([sure[kept], wrong_sure]) + chance.normal(0, 0.2, kept.sum() + len(wrong))
        places = np.concatenate([photo[kept], wrong])
        kinds = np.concatenate([kind[kept], wrong_kind])
        ious = np.concatenate([quality[kept] + chance.normal(0, 0.03, kept.sum()), np.zeros(len(wrong))])
        rows = []
        for number in range(KINDS):
            of = np.flatnonzero(kinds == number)
            of = of[np.argsort(-scores[of])]
            tp = ious[None, of] >= IOUS[:, None]
            truths = np.bincount(photo[kind == number], minlength=photos)
            rows.append(Category(scores[of], places[of], tp, np.zeros_like(tp), truths))
        return Matches(rows, np.arange(photos))

    return seen(0.0), seen(loss)


class Album:
    """Random photos with ground truth, some of it crowds, and random detections."""

    def __init__(self, photos: int) -> None:
        chance = np.random.default_rng(11)
        self.truth: list[list[dict[str, object]]] = []
        self.found: list[Detections] = []
        for _ in range(photos):
            truth, boxes, kinds = [], [], []
            for _ in range(int(chance.integers(0, 7))):
                x, y, width, height = (float(value) for value in chance.integers(10, 100, 4))
                kind, crowd = int(chance.integers(len(CATEGORIES))), int(chance.random() < 0.2)
                truth.append({"category_id": CATEGORIES[kind], "bbox": [x, y, width, height], "iscrowd": crowd})
                for _ in range(int(chance.integers(0, 4))):
                    left, top = x + chance.normal(0, 8), y + chance.normal(0, 8)
                    boxes.append((left, top, left + width, top + height))
                    kinds.append(kind if chance.random() < 0.8 else 0)
            confidence = -np.sort(-chance.random(len(boxes)).astype(np.float32))
            xyxy = np.array(boxes, np.float32).reshape(-1, 4)
            self.truth.append(truth)
            self.found.append(Detections(xyxy, confidence, np.array(kinds, np.int32)))

    def write(self, path: Path, photos: Sequence[int]) -> Truth:
        """Ground truth of these photos, with repetitions; a photo's id is not its index."""
        content: dict[str, list[object]] = {"images": [], "annotations": [], "categories": []}
        content["categories"] = [{"id": number, "name": str(number)} for number in CATEGORIES]
        for place, photo in enumerate(photos):
            content["images"].append({"id": 7 * place + 2, "file_name": f"{place}.png"})
            content["annotations"] += [{"image_id": 7 * place + 2, **row} for row in self.truth[photo]]
        path.write_text(json.dumps(content))
        return Truth(path.parent, path)


def _coco(truth: Truth, found: Sequence[Detections]) -> float:
    """AP by COCOeval itself."""
    from pycocotools.cocoeval import COCOeval

    rows = [
        {"image_id": photo, "category_id": CATEGORIES[kind], "score": sure, "bbox": [x0, y0, x1 - x0, y1 - y0]}
        for photo, one in zip(truth.ids, found)
        for (x0, y0, x1, y1), sure, kind in zip(one.xyxy.tolist(), one.confidence.tolist(), one.class_id.tolist())
    ]
    with contextlib.redirect_stdout(io.StringIO()):
        scores = COCOeval(truth.coco, truth.coco.loadRes(rows), "bbox")
        scores.evaluate()
        scores.accumulate()
        scores.summarize()
    return float(scores.stats[0])


def test_weights_of_one_are_cocos_own_ap(tmp_path: Path) -> None:
    album = Album(40)
    truth = album.write(tmp_path / "truth.json", range(40))
    evaluation, matches = score(truth, range(40), CATEGORIES, album.found)
    expected = _coco(truth, album.found)
    assert 0.1 < expected < 0.9
    assert matches.ap(np.ones(40, np.int64)) == pytest.approx(expected, abs=1e-9)
    assert evaluation.ap == pytest.approx(expected, abs=1e-4)


def test_a_weight_counts_copies_of_a_photo(tmp_path: Path) -> None:
    """A photo with weight three counts as three copies; one with weight zero is left out."""
    album = Album(12)
    weights = np.array([0, 3, 1, 2, 0, 0, 1, 4, 1, 1, 0, 2])
    copies = [int(photo) for photo in np.repeat(np.arange(12), weights)]
    matches = score(album.write(tmp_path / "once.json", range(12)), range(12), CATEGORIES, album.found)[1]
    again = album.write(tmp_path / "copies.json", copies)
    expected = _coco(again, [album.found[photo] for photo in copies])
    assert matches.ap(weights) == pytest.approx(expected, abs=1e-9)
    assert matches.ap(weights) != pytest.approx(matches.ap(np.ones(12, np.int64)), abs=1e-3)


def test_a_part_has_its_own_photos_only(tmp_path: Path) -> None:
    album = Album(30)
    truth = album.write(tmp_path / "truth.json", range(30))
    whole = score(truth, range(30), CATEGORIES, album.found)[1]
    some = [1, 4, 5, 9, 17, 22, 28]
    alone = score(truth, some, CATEGORIES, [album.found[photo] for photo in some])[1]
    kept = np.zeros(30, np.int64)
    kept[some] = 1
    ones = np.ones(len(some), np.int64)
    assert whole.ap(kept) == whole.part(some).ap(ones) == alone.ap(ones)


def test_photos_without_objects_have_no_ap(tmp_path: Path) -> None:
    album = Album(12)
    empty = next(photo for photo, rows in enumerate(album.truth) if not rows)
    matches = score(album.write(tmp_path / "truth.json", range(12)), range(12), CATEGORIES, album.found)[1]
    assert np.isnan(matches.ap(np.eye(12, dtype=np.int64)[empty]))


@pytest.mark.long
@pytest.mark.parametrize("loss", [0.0, 0.08])
def test_the_interval_covers_the_true_drop(loss: float) -> None:
    """A 95 % interval covers in 92 % or more of 200 draws of 32 photos. The truth is measured on 30,000 photos."""
    chance = np.random.default_rng(5)
    many = np.ones(30_000, np.int64)
    reference, other = _street(chance, len(many), loss)
    true = reference.ap(many) - other.ap(many)
    assert true == pytest.approx(loss / 3, abs=0.01)
    found = [drop_of_ap(*_street(chance, 32, loss), seed, 300) for seed in range(200)]
    covered = sum(row.low <= true <= row.high for row in found)
    assert covered >= 0.92 * len(found)
    spread = float(np.std([row.drop for row in found]))
    assert float(np.mean([row.sd for row in found])) == pytest.approx(spread, rel=0.35)


@pytest.mark.parametrize("frames", [1, 6])
def test_the_interval_of_a_share_covers_it(frames: int) -> None:
    """Groups of 30 frames differ; frames within a group do not, so they add no certainty."""
    chance = np.random.default_rng(3)
    covered = 0
    for seed in range(200):
        shares = chance.beta(45, 5, 30)
        matched = chance.binomial(4, shares) * frames
        counts = np.stack([matched, 4 * frames - matched, np.zeros(30, np.int64)], axis=1)
        found = drop_of_share(1.0, counts, seed, resamples=300)
        covered += found.low <= 0.1 <= found.high
    assert covered >= 0.92 * 200


def test_few_boxes_that_all_agree_prove_little() -> None:
    """No resample shows a loss, but a tenth of the boxes may still disagree."""
    few, many = (drop_of_share(1.0, np.full((10, 3), (each, 0, 0)), 0) for each in (3, 60))
    assert (few.drop, few.low) == (0, 0)
    assert few.high == pytest.approx(0.11, abs=0.01)
    assert (ruling_of(few, 0.05), ruling_of(many, 0.05)) == ("undecided", "accepted")


def test_frames_of_one_clip_are_one_unit() -> None:
    """Ten copies of each photo do not narrow the interval."""
    reference, other = _street(np.random.default_rng(1), 32, 0.1)
    ten = [_ten_times(matches) for matches in (reference, other)]
    once, over = drop_of_ap(reference, other, 0, 400), drop_of_ap(ten[0], ten[1], 0, 400)
    assert (over.units, over.unit) == (32, "clips")
    assert (over.drop, over.sd) == pytest.approx((once.drop, once.sd), abs=2e-4)


def _ten_times(matches: Matches) -> Matches:
    """Clips of ten equal frames."""
    rows = [
        Category(
            np.repeat(row.scores, 10),
            np.repeat(row.photo, 10) * 10 + np.tile(np.arange(10), len(row.photo)),
            np.repeat(row.tp, 10, axis=1),
            np.repeat(row.ignored, 10, axis=1),
            np.repeat(row.truths, 10),
        )
        for row in matches.categories
    ]
    return Matches(rows, np.repeat(matches.groups, 10), "clips")


def test_the_same_seed_gives_the_same_interval() -> None:
    reference, other = _street(np.random.default_rng(1), 32, 0.1)
    assert drop_of_ap(reference, other, 1, 100) == drop_of_ap(reference, other, 1, 100)
    assert drop_of_ap(reference, other, 1, 100) != drop_of_ap(reference, other, 2, 100)
    assert drop_of_ap(reference, reference, 1, 100) == Interval(0.0, 0.0, 0.0, 0.0, 32, "photos")


def _interval(low: float, drop: float, high: float, units: int = 32) -> Interval:
    return Interval(drop, low, high, 0.0, units, "photos")


@pytest.mark.parametrize(
    ("found", "ruling"),
    [
        (_interval(-0.02, -0.01, 0.0), "accepted"),
        (_interval(-0.002, 0.004, 0.0100), "accepted"),
        (_interval(-0.002, 0.004, 0.0101), "undecided"),
        (_interval(0.0100, 0.02, 0.03), "undecided"),
        (_interval(0.0101, 0.02, 0.03), "refused"),
        (_interval(0.0, 0.0, 0.0), "accepted"),
        (_interval(0.0, 0.0, 0.0, MIN_UNITS - 1), "undecided"),
        (_interval(0.3, 0.4, 0.5, MIN_UNITS - 1), "undecided"),
        (_interval(0.3, 0.4, 0.5, MIN_UNITS), "refused"),
    ],
)
def test_rulings(found: Interval, ruling: Ruling) -> None:
    assert ruling_of(found, 0.01) == ruling


@pytest.mark.parametrize(
    ("found", "photos"),
    [
        (_interval(-0.01, 0.0, 0.02), 96),  # half the width needs four times as many
        (_interval(0.0, 0.02, 0.05), 96),  # over the budget, the lower side counts
        (_interval(-0.009, 0.0037, 0.023), 269),
        (_interval(-0.01, 0.0101, 0.02), None),  # no number of photos separates 0.0101 from 0.01
        (_interval(-0.01, 0.01, 0.02), None),
        (_interval(-0.02, -0.01, 0.0), 0),  # decided
        (_interval(0.02, 0.03, 0.04), 0),
        (_interval(0.0, 0.0, 0.0, 3), MIN_UNITS - 3),
        (_interval(-0.01, 0.0, 0.0100001), 1),
    ],
)
def test_more_units_for_a_decision(found: Interval, photos: int | None) -> None:
    assert more(found, 0.01) == photos


def test_a_budget_of_zero() -> None:
    """An equal model keeps to a budget of zero; no number of photos proves it."""
    assert ruling_of(_interval(0.0, 0.0, 0.0), 0.0) == "accepted"
    assert (ruling_of(_interval(-0.1, 0.0, 0.1), 0.0), more(_interval(-0.1, 0.0, 0.1), 0.0)) == ("undecided", None)


@pytest.mark.slow
def test_the_estimated_number_of_photos_mostly_decides() -> None:
    """With the estimated number of further photos, at least half of the undecided draws of 40 photos are decided."""
    chance = np.random.default_rng(2)
    decided = tried = 0
    for seed in range(60):
        found = drop_of_ap(*_street(chance, 40, 0.0), seed, 200)
        estimate = more(found, 0.015)
        if ruling_of(found, 0.015) == "undecided" and estimate is not None and estimate < 400:
            again = drop_of_ap(*_street(chance, 40 + estimate, 0.0), seed, 200)
            tried, decided = tried + 1, decided + (ruling_of(again, 0.015) != "undecided")
    assert tried > 15
    assert decided >= tried / 2
