"""What scores mean, and where each fact about a model is known from: a key, the file, the family, or a trial."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from daemon.config.load import parse
from daemon.control.plan import classifier_options, options_of
from daemon.errors import ConfigError
from detectors.ort.detector import OrtDetector
from detectors.port import DetectorError, HostImage, Options, PostprocessParams
from detectors.semantics import NOTHING_KNOWN, Semantics
from tests.support.exports import IMAGENET, SIDE, Export

_STATED = {"mean": str(list(IMAGENET[0])), "std": str(list(IMAGENET[1]))}
_COLOURS = Semantics(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
_MAGENTA = np.full((SIDE, SIDE, 3), (255, 0, 255), np.uint8)
_CONFIG = "model: {path: m%s}\nsources: [{id: cam, type: synthetic}]\ntracking: {enabled: true}\n"


def _classifier(folder: Path, scores: str, *, exclusive: bool = False) -> Path:
    """Scores of how red, green and blue a picture is, of 0.1 to 0.9: probabilities, per cent, or logits."""
    made = Export(colours=IMAGENET, batch=1)
    mean, std = (made.value(np.array([row], np.float32)) for row in IMAGENET)
    pooled = made.op("ReduceMean", "images", axes=[2, 3], keepdims=0)
    colours = made.op("Add", made.op("Mul", pooled, std), mean)
    shares = made.op("Add", made.op("Mul", colours, made.value(np.float32(0.8))), made.value(np.float32(0.1)))
    if exclusive:
        shares = made.op("Div", shares, made.op("ReduceSum", shares, made.value([1]), keepdims=1))
    if scores == "logits":
        others = made.op("Sub", made.value(np.float32(1)), shares)
        shares = made.op("Log", made.op("Div", shares, others))
    if scores == "per cent":
        shares = made.op("Mul", shares, made.value(np.float32(100)))
    made.output(shares, "scores", [1, 3])
    (folder / "labels.txt").write_text("red\ngreen\nblue\n")
    return made.save(folder / "colours.onnx")


def _scores(path: Path, semantics: Semantics) -> dict[int, float]:
    labels = str(path.with_name("labels.txt"))
    options = Options(path, "classify", labels, wanted=PostprocessParams(0.0), threads=1, semantics=semantics)
    with closing(OrtDetector(options)) as detector, closing(detector.lane()) as lane:
        found = lane.detect([HostImage(_MAGENTA)])[0][0]
        return dict(zip(found.class_id.tolist(), found.confidence.tolist()))


@pytest.mark.parametrize(
    ("scores", "activation", "expected"),
    [
        ("probabilities", None, (0.9, 0.1, 0.9)),
        ("logits", "sigmoid", (0.9, 0.1, 0.9)),
        ("logits", None, (81 / 163, 1 / 163, 81 / 163)),
    ],
)
def test_classes_that_do_not_exclude_each_other_keep_their_scores(
    tmp_path: Path, scores: str, activation: str | None, expected: tuple[float, ...]
) -> None:
    """A softmax of two probabilities of 0.9 would make less than 0.5 of each."""
    semantics = Semantics(_COLOURS.mean, _COLOURS.std, activation=activation)  # type: ignore[arg-type]
    found = _scores(_classifier(tmp_path, scores), semantics)
    assert [found[label] for label in range(3)] == pytest.approx(expected, abs=0.01)


def test_probabilities_of_exclusive_classes_stay_as_they_are(tmp_path: Path) -> None:
    found = _scores(_classifier(tmp_path, "probabilities", exclusive=True), _COLOURS)
    assert found[0] == pytest.approx(0.9 / 1.9, abs=0.01)


def test_per_cent_are_refused(tmp_path: Path) -> None:
    """A softmax of them would be sure of each picture."""
    path = _classifier(tmp_path, "per cent", exclusive=True)
    with pytest.raises(DetectorError, match="has per cent, not probabilities: export"):
        _scores(path, _COLOURS)


def test_a_classifier_with_one_score_is_refused_with_the_remedy(tmp_path: Path) -> None:
    made = Export(batch=1)
    score = made.op("ReduceMean", "images", axes=[1, 2, 3], keepdims=0)
    made.output(made.op("Unsqueeze", score, made.value([1])), "score", [1, 1])
    with pytest.raises(DetectorError, match=r"one score, for yes or no: wrap .*\(b, 2\), 1 - p and p"):
        OrtDetector(Options(made.save(tmp_path / "one.onnx"), "classify", threads=1, max_batch=1))


def test_each_fact_says_where_it_is_from(tmp_path: Path) -> None:
    made = Export(colours=IMAGENET)
    boxes, score, label = made.top(made.boxes(made.corners / np.float32(SIDE)))
    made.output(made.join(boxes, score, label), "output0", ["batch", 10, 6])
    path = made.save(tmp_path / "export.onnx", {**_STATED, "names": "['red', 'blue']"})
    for first_class, origin in ((0, "key"), (None, "trial")):
        with closing(OrtDetector(Options(path, threads=1, semantics=Semantics(first_class=first_class)))) as detector:
            facts = {fact.name: (fact.value, fact.origin) for fact in detector.info.facts}
        assert facts == {
            "head": ("end2end", "family"),
            "mean": ("0.485 0.456 0.406", "file"),
            "std": ("0.229 0.224 0.225", "file"),
            "channels": ("RGB", "family"),
            "fit": ("letterbox", "family"),
            "box_units": ("shares", "trial"),
            "first_class": ("0", origin),
            "labels": ("2", "file"),
        }


def test_the_keys_of_a_configuration_reach_the_model() -> None:
    keys = ", mean: [0.5, 0.5, 0.5], std: [0.25, 0.25, 0.25], activation: sigmoid"
    row = f"classifiers: [{{name: a, path: x, for: [car]{keys}}}]\n"
    config = parse(_CONFIG % f"{keys}, box_units: shares, first_class: 1" + row)
    expected = Semantics((0.5,) * 3, (0.25,) * 3, activation="sigmoid")
    assert options_of(config).semantics == Semantics((0.5,) * 3, (0.25,) * 3, None, "sigmoid", "shares", 1)
    assert classifier_options(config, config.classifiers[0]).semantics == expected
    assert options_of(parse(_CONFIG % "")).semantics == NOTHING_KNOWN


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ("mean: [0.5, 0.5]", r"model\.mean: .*3"),
        ("mean: 0.5", r"model\.mean: "),
        ("std: [a, b, c]", r"model\.std\[0\]: must be a number"),
        ("std: [-1, 1, 1]", r"model\.std\[0\]: "),
        ("activation: relu", r"model\.activation: must be one of none, sigmoid, softmax"),
        ("box_units: shares_", r"model\.box_units: must be one of pixels, shares"),
        ("first_class: 2", r"model\.first_class: "),
    ],
)
def test_a_mistake_in_a_key_is_one_line(keys: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as raised:
        parse(_CONFIG % f", {keys}")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("std", [(0.0, 1.0, 1.0), (0.229, 57.0, 57.0)])
def test_a_deviation_that_no_colours_have_is_refused(tmp_path: Path, std: tuple[float, float, float]) -> None:
    with pytest.raises(DetectorError, match=r"no colours have a mean of .* and a deviation of .*"):
        _scores(_classifier(tmp_path, "logits"), Semantics(_COLOURS.mean, std))
