"""`lookout calibrate` on the demo model and on real ones: what it makes, what it refuses, and what it says."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from calibration.agreement import compare
from calibration.calibrate import Trial, decide
from calibration.graph import Graph
from calibration.quantize import load, observe, quantize
from calibration.sensitivity import Cost, restore
from calibration.speed import Speed
from daemon.cli import invoke
from daemon.sources.scene import Scene
from detectors.detections import Detections
from detectors.factory import open_detector
from detectors.port import DetectorError, Options, Precision, Wanted
from detectors.verdict import find, path_of
from tests.support.daemon import DEMO_MODEL
from tests.support.streets import labelled_streets

pytestmark = [pytest.mark.timeout(1200)]

_SOURCES = "model: {{path: {model}}}\nsources:\n{sources}\n"


def _config(folder: Path) -> Path:
    """Four streets, 12 frames of each."""
    rows = [
        f"  - {{id: street-{seed}, type: synthetic, seed: {seed}, fps: 1, frames: 12, pace: fast}}" for seed in range(4)
    ]
    path = folder / "streets.yaml"
    path.write_text(_SOURCES.format(model=DEMO_MODEL, sources="\n".join(rows)))
    return path


def _calibrate(model: Path, origin: Path, out: Path, *more: str) -> int:
    backend = ["--backend", "cpu", "--threads", "1", "--frames", "36", "--held-out", "12", "--max-batch", "2"]
    return invoke(["calibrate", str(model), "--from", str(origin), "--out", str(out), *backend, *more])


def _outcome(out: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((out / "calibration.json").read_text())["outcome"]
    return found


@pytest.fixture(scope="module")
def streets(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return labelled_streets(tmp_path_factory.mktemp("streets"), 24)


@pytest.fixture(scope="module")
def judged(streets: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo model calibrated on its streets and judged by their truth: the folder that was written."""
    folder = tmp_path_factory.mktemp("calibrated")
    labels = ["--images", str(streets[0]), "--annotations", str(streets[1])]
    assert _calibrate(DEMO_MODEL, _config(folder), folder / "out", "--precision", "auto", *labels) == 0
    return folder / "out"


@pytest.mark.slow
def test_the_file_passes_and_the_detector_says_what_it_is(judged: Path, streets: tuple[Path, Path]) -> None:
    """Its AP by `lookout evaluate` is the one that was promised, and messages name the precision."""
    outcome = _outcome(judged)
    trial = next(row for row in outcome["trials"] if row["precision"] == "int8")
    assert trial["accepted"]
    assert trial["value"] >= outcome["trials"][0]["value"] - 0.01
    file = judged / trial["file"]
    with closing(open_detector("cpu", Options(file))) as detector:
        assert detector.info.precision == "int8"
        assert detector.info.notes == ()
    figures = judged / "again.json"
    again = ["--images", str(streets[0]), "--annotations", str(streets[1]), "--backend", "cpu", "--json", str(figures)]
    assert invoke(["evaluate", "--model", str(file), *again]) == 0
    assert json.loads(figures.read_text())["ap"] == trial["value"]
    verdict = find(file)
    assert verdict is not None
    assert (verdict.precision, verdict.accepted, verdict.value) == ("int8", True, trial["value"])


@pytest.mark.slow
def test_auto_takes_the_fastest_and_says_so(judged: Path) -> None:
    outcome = _outcome(judged)
    turns = {row["precision"]: row["speed"]["turns"] for row in outcome["trials"] if row["accepted"]}
    chosen = turns.pop(outcome["chosen"])
    for other in turns.values():  # one that is faster every time, and worth it, would have been taken
        assert any(theirs < 1.03 * mine for mine, theirs in zip(chosen, other))
    refused = next(row for row in outcome["trials"] if row["precision"] == "fp8")
    assert "the CPU computes no FP8" in refused["reason"]
    assert outcome["chosen"] in outcome["why"]


@pytest.mark.slow
def test_a_changed_file_has_no_verdict(judged: Path, tmp_path: Path) -> None:
    """And whoever opens it is told."""
    trial = next(row for row in _outcome(judged)["trials"] if row["precision"] == "int8")
    copy = tmp_path / "copy.onnx"
    model = onnx.load(judged / trial["file"])
    model.producer_name = "somebody else"
    onnx.save(model, copy)
    shutil.copy(path_of(judged / trial["file"]), path_of(copy))
    with closing(open_detector("cpu", Options(copy))) as detector:
        assert any("nobody says what that costs" in note for note in detector.info.notes)


@pytest.mark.slow
def test_the_page_shows_it(judged: Path) -> None:
    page, text = (judged / "calibration.html").read_text(), (judged / "calibration.md").read_text()
    assert 'id="plot-tradeoff"' in page
    assert not re.search(r"(src|href)\s*=\s*[\"'](?!#)", page)
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    for words in ("Precisions", "AP by class", "by the rules of each TensorRT", "nothing found", "calibrated with"):
        assert words in text


@pytest.mark.slow
def test_without_labels_the_float_model_is_the_measure(tmp_path: Path) -> None:
    """By frames that it was not calibrated with; a budget that nothing can keep is a refusal that leaves no file."""
    config = _config(tmp_path)
    assert _calibrate(DEMO_MODEL, config, tmp_path / "out", "--precision", "int8", "--method", "minmax") == 0
    outcome = _outcome(tmp_path / "out")
    agreement = outcome["trials"][1]["score"]["agreement"]
    assert outcome["measure"] == "agreement"
    assert (agreement["share"], agreement["frames"]) == (outcome["trials"][1]["value"], 12)
    made = tmp_path / "out" / outcome["trials"][1]["file"]
    assert made.exists()
    strict = ["--precision", "int8", "--method", "percentile", "--min-agreement", "1", "--max-float", "0"]
    code = _calibrate(DEMO_MODEL, config, tmp_path / "out", *strict)
    trial = _outcome(tmp_path / "out")["trials"][1]
    assert (code == 0) is trial["accepted"]
    assert made.exists() is path_of(made).exists() is trial["accepted"]


def _noise(folder: Path) -> Path:
    chance = np.random.default_rng(7)
    folder.mkdir()
    for number in range(36):
        cv2.imwrite(str(folder / f"{number}.png"), chance.integers(0, 256, (480, 640, 3), dtype=np.uint8))
    return folder


def test_fine_noise_is_a_picture_of_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _calibrate(DEMO_MODEL, _noise(tmp_path / "noise"), tmp_path / "out") == 2
    assert "usable frame" in capsys.readouterr().err


@pytest.mark.slow
def test_streets_that_are_empty_show_a_model_nothing(
    streets: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ranges found by them may do, which nobody could know."""
    empty = tmp_path / "empty"
    empty.mkdir()
    for seed in range(36):
        cv2.imwrite(str(empty / f"{seed}.png"), Scene(640, 360, seed=seed, objects=0).draw(3))
    labels = ["--images", str(streets[0]), "--annotations", str(streets[1])]
    assert _calibrate(DEMO_MODEL, empty, tmp_path / "out", *labels) == 2
    assert "the float model sees" in capsys.readouterr().err


def test_eight_photos_are_too_few(
    streets: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    few = tmp_path / "few"
    few.mkdir()
    for number in range(8):
        shutil.copy(streets[0] / f"{number}.png", few)
    assert _calibrate(DEMO_MODEL, few, tmp_path / "out") == 2
    assert "only 8 usable frames of 8" in capsys.readouterr().err


@pytest.mark.needs("data")
@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("name", "method"), [("yolov5n", "minmax"), ("yolox_nano", "entropy")])
def test_real_models_keep_their_accuracy(data: Path, tmp_path: Path, name: str, method: str) -> None:
    """Calibrated on photos that are not among those it is judged by."""
    images = data / "images"
    labels = ["--images", str(images / "val"), "--annotations", str(images / "val.json"), "--labels", "coco"]
    more = ["--precision", "int8", "--method", method, "--frames", "128", *labels]
    assert _calibrate(data / "models" / f"{name}.onnx", images / "calibration", tmp_path, *more) == 0
    first, trial = _outcome(tmp_path)["trials"]
    assert trial["value"] >= first["value"] - 0.01
    assert len(trial["float_layers"]) < trial["layers"] / 10
    assert trial["portable"] == {"8.6": [], "10": [], "11": []}


def _least_and_wrong(
    model: Path, pixels: list[np.ndarray], labelled: tuple[Path, Path], folder: Path
) -> tuple[float, float]:
    """The least AP that passes, and that of a file that was calibrated on these pixels."""
    from calibration.judge import Judge

    made = folder / "wrong.onnx"
    quantised = load(model)
    onnx.save(quantize(quantised, observe(quantised, pixels).ranges("minmax")), made)
    options = Options(model, labels=None if model == DEMO_MODEL else "coco", wanted=Wanted(0.25))
    judge = Judge(lambda options: open_detector("cpu", options), options, [], labelled, 0.01, 0.25)
    return judge.least, judge.value(replace(options, path=made))


def _unscaled(photos: list[Path], size: int) -> list[np.ndarray]:
    """Of 0 to 255 instead of 0 to 1."""
    rows = [cv2.imread(str(path)) for path in photos[:16]]
    return [
        cv2.resize(row, (size, size)).transpose(2, 0, 1)[None].astype(np.float32) for row in rows if row is not None
    ]


@pytest.mark.slow
def test_the_wrong_preprocessing_is_caught(streets: tuple[Path, Path], tmp_path: Path) -> None:
    pixels = _unscaled(sorted(streets[0].glob("*.png")), 320)
    least, found = _least_and_wrong(DEMO_MODEL, pixels, streets, tmp_path)
    assert found < least


@pytest.mark.needs("data")
@pytest.mark.long
def test_so_it_is_with_a_real_model(data: Path, tmp_path: Path) -> None:
    labelled = (data / "images" / "val", data / "images" / "val.json")
    pixels = _unscaled(sorted((data / "images" / "calibration").glob("*.jpg")), 640)
    least, found = _least_and_wrong(data / "models" / "yolov5n.onnx", pixels, labelled, tmp_path)
    assert found < least


# --- models that cannot be used -------------------------------------------------------------------------


def _quantised(model: onnx.ModelProto) -> None:
    model.graph.node.insert(0, helper.make_node("QuantizeLinear", [model.graph.input[0].name, "s", "z"], ["q"]))
    model.graph.initializer.append(numpy_helper.from_array(np.array(0.1, np.float32), "s"))
    model.graph.initializer.append(numpy_helper.from_array(np.array(0, np.int8), "z"))


def _dynamic(model: onnx.ModelProto) -> None:
    _quantised(model)
    model.graph.initializer.append(numpy_helper.from_array(np.zeros((1, 3, 1, 1), np.int8), "w"))
    model.graph.node.insert(1, helper.make_node("ConvInteger", ["q", "w"], ["integers"]))


def _large(model: onnx.ModelProto) -> None:
    """Weights of one layer a million times as large, those of the next as much smaller: the same model in FP32."""
    layer = Graph(model).weighted[1]
    tensor = next(row for row in model.graph.initializer if row.name == layer.input[1])
    tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor) * np.float32(1e6), tensor.name))


@pytest.mark.parametrize(
    ("change", "precision", "words"),
    [
        (_quantised, "int8", "is quantised already (QuantizeLinear)"),
        (_dynamic, "int8", "is quantised already (ConvInteger"),
        (_large, "fp16", "FP16 overflows at"),
    ],
)
def test_models_that_cannot_be_used(
    tmp_path: Path,
    change: Callable[[onnx.ModelProto], None],
    precision: str,
    words: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    model = onnx.load(DEMO_MODEL)
    change(model)
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    more = ["--precision", precision, "--min-agreement", "0"]
    assert _calibrate(path, _config(tmp_path), tmp_path / "out", *more) != 0
    said = capsys.readouterr()
    assert words in " ".join((said.err + said.out).split())
    assert not (tmp_path / "out" / f"model.{precision}.onnx").exists()


def test_annotations_that_do_not_fit(
    tmp_path: Path, streets: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """Other classes, and other photos."""
    truth = json.loads(streets[1].read_text())
    for row in truth["categories"]:
        row["name"] = f"not {row['name']}"
    others = tmp_path / "others.json"
    others.write_text(json.dumps(truth))
    config = _config(tmp_path)
    assert (
        _calibrate(DEMO_MODEL, config, tmp_path / "out", "--images", str(streets[0]), "--annotations", str(others)) == 2
    )
    assert "pass --labels" in capsys.readouterr().err
    truth = json.loads(streets[1].read_text())
    truth["images"][0]["width"] = 4000
    others.write_text(json.dumps(truth))
    assert (
        _calibrate(DEMO_MODEL, config, tmp_path / "out", "--images", str(streets[0]), "--annotations", str(others)) == 2
    )
    assert "they are of other photos" in capsys.readouterr().err


# --- the parts ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("needed", [1, 2, 3, 5, 8, 13, 19, 20])
def test_as_few_layers_as_will_do_go_back_to_float(needed: int) -> None:
    ranked = [Cost(f"layer-{number}", 20.0 - number) for number in range(20)]
    count, steps = restore(ranked, lambda layers: 1.0 if len(layers) >= needed else 0.0, 0.5)
    assert count == needed
    assert len(steps) <= 10
    assert [step.kept for step in steps] == [step.layers >= needed for step in steps]


def test_where_no_number_of_layers_will_do() -> None:
    count, steps = restore([Cost("only", 1.0), Cost("other", 0.5)], lambda _: 0.1, 0.5)
    assert count is None
    assert [step.layers for step in steps] == [1, 2]


def _trial(precision: Precision, fps: float, *, accepted: bool = True) -> Trial:
    speed = Speed(8, fps, (fps,) * 7, 1.0, None, None, None, 1)
    return Trial(precision, accepted, "refused: AP 0.3, 0.4 at least", "file", speed=speed if accepted else None)


@pytest.mark.parametrize(
    ("rates", "refused", "chosen", "words"),
    [
        ((100.0, 180.0, 260.0), (), "int8", "int8 is the fastest that passes"),
        ((100.0, 180.0, 182.0), (), "fp16", "int8 passes and is no faster than fp16 here (1.01 times)"),
        ((100.0, 180.0, 260.0), ("int8",), "fp16", "int8 refused: AP 0.3"),
        ((100.0, 180.0, 260.0), ("int8", "fp16"), "fp32", "fp16 refused"),
    ],
)
def test_auto_decides(rates: tuple[float, ...], refused: tuple[str, ...], chosen: str, words: str) -> None:
    names: tuple[Precision, ...] = ("fp32", "fp16", "int8")
    trials = [_trial(name, fps, accepted=name not in refused) for name, fps in zip(names, rates)]
    precision, why = decide(trials, "auto")
    assert precision == chosen
    assert words in why


def _turns(*rates: float) -> Speed:
    return Speed(8, sorted(rates)[len(rates) // 2], rates, 1.0, None, None, None, 1)


def test_a_busy_machine_hides_what_is_faster_no_more_than_it_must() -> None:
    """Turns that were made beside each other are compared: all of them slow down, and one may be odd."""
    higher = Trial("fp32", True, "", "file", speed=_turns(100, 60, 95, 40, 100, 98, 70))
    lower = Trial("fp16", True, "", "file", speed=_turns(120, 70, 80, 50, 118, 121, 84))
    assert decide([higher, lower], "auto")[0] == "fp16"
    unsure = Trial("fp16", True, "", "file", speed=_turns(120, 50, 80, 50, 118, 121, 84))
    precision, why = decide([higher, unsure], "auto")
    assert precision == "fp32"
    assert "fp16 passes and is not surely faster than fp32 here" in why


def _boxes(*rows: tuple[float, float]) -> Detections:
    """Boxes of one class in a row: where, and how sure."""
    xyxy = np.array([[50 * x, 0, 50 * x + 20, 20] for x, _ in rows], np.float32).reshape(-1, 4)
    return Detections(xyxy, np.array([sure for _, sure in rows], np.float32), np.zeros(len(rows), np.int32))


def test_agreement_counts_what_is_missed_and_what_is_new() -> None:
    true = _boxes(*((float(x), 0.9) for x in range(20)))
    # One is gone, one is new, one is half as sure, and one that falls just below the threshold is still the same.
    seen = _boxes(*((float(x), 0.8) for x in range(2, 20)), (0.0, 0.2), (40.0, 0.7))
    agreement, rows = compare([true] * 2, [seen] * 2, 0.25)
    assert (agreement.matched, agreement.missed, agreement.new) == (38, 2, 2)
    assert agreement.share == pytest.approx(38 / 42, abs=1e-4)
    assert agreement.mean_iou == 1
    assert agreement.confidence_shift == pytest.approx((18 * -0.1 - 0.7) / 19, abs=1e-4)
    assert [len(row.missed) for row in rows] == [1, 1]
    with pytest.raises(DetectorError, match="too few to compare by"):
        compare([true], [seen], 0.25)


@pytest.mark.slow
def test_frames_of_a_street_are_the_daemons(judged: Path) -> None:
    """What is written is what a source of the configuration shows."""
    manifest = json.loads((judged / "frames" / "manifest.json").read_text())
    entry = manifest["entries"][0]
    picture = cv2.imread(str(judged / "frames" / entry["file"]))
    assert picture is not None
    drawn = Scene(640, 360, seed=int(entry["source"].rpartition("-")[2]), fps=1).draw(entry["index"])
    assert float(np.abs(picture.astype(int) - drawn).mean()) < 3
