"""`lookout calibrate` on the demo model and on real ones: its files, refusals and messages."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import cv2
import msgspec
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from calibration import speed
from calibration.agreement import compare
from calibration.bootstrap import Ruling
from calibration.calibrate import Calibration, CalibrationConfig
from calibration.coco import Truth
from calibration.evaluator import LabelEvaluator, Photos
from calibration.frames import FrameSet
from calibration.graph import Graph, quantised_layers
from calibration.outcome import LOWER, Outcome, Trial, decide, exit_code
from calibration.quantize import load, observe, quantize
from calibration.sensitivity import Cost, layers_to_restore, parts_of
from calibration.speed import Speed
from daemon.cli import invoke
from daemon.sources.scene import Scene
from detectors.accuracy_record import find, path_of
from detectors.detections import Detections
from detectors.factory import open_detector
from detectors.half import fp32_nodes, to_half
from detectors.port import Detector, DetectorError, Options, PostprocessParams, Precision
from tests.support.daemon import DEMO_MODEL
from tests.support.streets import labelled_streets

pytestmark = [pytest.mark.timeout(1200)]

_MINMAX = ("--precision", "int8", "--method", "minmax")
_SOURCES = "model: {{path: {model}}}\nsources:\n{sources}\n"


def _config(folder: Path) -> Path:
    """Four streets, 16 frames of each, ten seconds apart."""
    rows = [
        f"  - {{id: street-{seed}, type: synthetic, seed: {seed}, fps: 0.1, frames: 16, pace: fast}}"
        for seed in range(4)
    ]
    path = folder / "streets.yaml"
    path.write_text(_SOURCES.format(model=DEMO_MODEL, sources="\n".join(rows)))
    return path


def _calibrate(model: Path, origin: Path, out: Path, *more: str) -> int:
    backend = ["--backend", "cpu", "--threads", "1", "--frames", "36", "--held-out", "16", "--max-batch", "2"]
    return invoke(["calibrate", str(model), "--from", str(origin), "--out", str(out), *backend, *more])


def _outcome(out: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((out / "calibration.json").read_text())["outcome"]
    return found


@pytest.fixture(scope="module", autouse=True)
def _haste() -> Iterator[None]:
    """Speeds decide nothing here that a longer measurement would change, nor do finer histograms."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(speed, "TURN_S", 0.02)
        patch.setattr("calibration.quantize._BINS", 256)
        yield


@pytest.fixture(scope="module")
def streets(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return labelled_streets(tmp_path_factory.mktemp("streets"), 44)


@pytest.fixture(scope="module")
def few_streets(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return labelled_streets(tmp_path_factory.mktemp("few"), 32)


@pytest.fixture(scope="module")
def calibrated(streets: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output folder of the demo model, calibrated on its streets and scored by their labels."""
    folder = tmp_path_factory.mktemp("calibrated")
    labels = ["--images", str(streets[0]), "--annotations", str(streets[1]), "--judge-share", "0.7273"]  # 32 of 44
    more = ["--precision", "auto", "--max-ap-drop", "0.02", *labels]
    assert _calibrate(DEMO_MODEL, _config(folder), folder / "out", *more) == 0
    return folder / "out"


def _subset(annotations: Path, names: list[str], path: Path) -> Path:
    """The annotations of some photos."""
    truth = json.loads(annotations.read_text())
    truth["images"] = [row for row in truth["images"] if row["file_name"] in names]
    numbers = {row["id"] for row in truth["images"]}
    truth["annotations"] = [row for row in truth["annotations"] if row["image_id"] in numbers]
    path.write_text(json.dumps(truth))
    return path


@pytest.mark.slow
def test_the_accepted_file_and_its_record(calibrated: Path, streets: tuple[Path, Path]) -> None:
    """`lookout evaluate` over the test photos gives the recorded AP; the detector's info names the precision."""
    outcome = _outcome(calibrated)
    trial = next(row for row in outcome["trials"] if row["precision"] == "int8")
    assert trial["ruling"] == "accepted"
    assert trial["interval"]["high"] <= 0.02
    assert trial["value"] == pytest.approx(outcome["trials"][0]["value"] - trial["interval"]["drop"], abs=2e-4)
    file = calibrated / trial["file"]
    with closing(open_detector("cpu", Options(file))) as detector:
        assert detector.info.precision == "int8"
        assert detector.info.notes == ()
    figures, subset = calibrated / "again.json", _subset(streets[1], outcome["judging"], calibrated / "judging.json")
    again = ["--images", str(streets[0]), "--annotations", str(subset), "--backend", "cpu", "--json", str(figures)]
    assert invoke(["evaluate", "--model", str(file), *again]) == 0
    assert json.loads(figures.read_text())["ap"] == trial["value"]
    record = find(file)
    assert record is not None
    assert (record.precision, record.ruling, record.value) == ("int8", "accepted", trial["value"])
    assert (record.drop, record.high, record.units) == (trial["interval"]["drop"], trial["interval"]["high"], 32)
    assert record.line.startswith(f"AP {trial['value']:.4f}, {trial['reason']}")


@pytest.mark.slow
def test_photos_for_choosing_give_no_rulings(calibrated: Path) -> None:
    outcome = _outcome(calibrated)
    steering, judging = outcome["steering"], outcome["judging"]
    assert set(steering).isdisjoint(judging)
    assert sorted(steering + judging) == sorted(f"{number}.png" for number in range(44))
    assert len(judging) == 32
    scores = [row["score"]["accuracy"]["images"] for row in outcome["trials"] if row["score"]]
    assert scores == [32, 32, 32]


@pytest.mark.slow
def test_auto_chooses_the_fastest(calibrated: Path) -> None:
    """The choice follows from the turns in the report."""
    outcome = _outcome(calibrated)
    rows = [row for row in outcome["trials"] if row["ruling"] == "accepted"]
    assert len(rows) == 3
    best = rows[0]
    for row in rows[1:]:
        ratios = [mine / theirs for mine, theirs in zip(row["speed"]["turns"], best["speed"]["turns"])]
        if sorted(ratios)[3] >= 1.03 and sum(ratio <= 1 for ratio in ratios) <= 1:
            best = row
    assert outcome["chosen"] == best["precision"]
    assert outcome["why"].startswith(f"{best['precision']} is the fastest that passes")
    refused = next(row for row in outcome["trials"] if row["precision"] == "fp8")
    assert (refused["ruling"], refused["reason"]) == ("refused", "the CPU has no FP8 arithmetic")


@pytest.mark.slow
def test_a_changed_file_has_no_accuracy_record(calibrated: Path, tmp_path: Path) -> None:
    """The detector's notes say so."""
    trial = next(row for row in _outcome(calibrated)["trials"] if row["precision"] == "int8")
    copy = tmp_path / "copy.onnx"
    model = onnx.load(calibrated / trial["file"])
    model.producer_name = "somebody else"
    onnx.save(model, copy)
    shutil.copy(path_of(calibrated / trial["file"]), path_of(copy))
    with closing(open_detector("cpu", Options(copy))) as detector:
        assert any("has no accuracy record" in note for note in detector.info.notes)


@pytest.mark.slow
def test_the_report_page(calibrated: Path) -> None:
    page, text = (calibrated / "calibration.html").read_text(), (calibrated / "calibration.md").read_text()
    assert 'id="plot-tradeoff"' in page
    assert not re.search(r"(src|href)\s*=\s*[\"'](?!#)", page)
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    for words in ("Precisions", "AP by class", "by the rules of each TensorRT", "nothing found", "calibration frames"):
        assert words in text
    found = next(row for row in _outcome(calibrated)["trials"] if row["precision"] == "int8")["interval"]
    for words in (
        f"{found['low']:+.4f} to {found['high']:+.4f}",
        "32 photos",
        "precision | recall",
        "test pictures | 32",
    ):
        assert words in text


@pytest.mark.long
@pytest.mark.slow
def test_without_labels_the_float_model_is_the_measure(tmp_path: Path) -> None:
    """Scored on a source that was held out. Boxes that all agree suffice for a budget of 0.1."""
    out = tmp_path / "out"
    assert _calibrate(DEMO_MODEL, _config(tmp_path), out, *_MINMAX, "--min-agreement", "0.9") == 0
    outcome = _outcome(out)
    trial = outcome["trials"][1]
    agreement, interval = trial["score"]["agreement"], trial["interval"]
    assert outcome["measure"] == "agreement"
    assert (agreement["share"], agreement["frames"]) == (trial["value"], 16)
    assert (interval["units"], interval["unit"]) == (16, "blocks of 10 s")
    held = {row["source"] for row in outcome["frames"]["entries"] if row["held_out"]}
    assert len(held) == 1
    assert held.isdisjoint(row["source"] for row in outcome["frames"]["entries"] if not row["held_out"])
    assert set(outcome["steering"]).isdisjoint(outcome["judging"])
    assert (out / trial["file"]).exists()


@pytest.mark.long
def test_too_few_frames_decide_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Boxes that all agree do not suffice for a budget of 0.01: the ruling is undecided, the exit code is 3, and no
    file is left, nor that of an earlier run."""
    config, out = _config(tmp_path), tmp_path / "out"
    assert _calibrate(DEMO_MODEL, config, out, *_MINMAX, "--min-agreement", "0.9") == 0
    made = out / _outcome(out)["trials"][1]["file"]
    capsys.readouterr()
    assert _calibrate(DEMO_MODEL, config, out, *_MINMAX, "--min-agreement", "0.99") == 3
    trial = _outcome(out)["trials"][1]
    assert (trial["ruling"], trial["file"]) == ("undecided", None)
    assert trial["more"] > 0
    assert not made.exists()
    assert not path_of(made).exists()
    output = " ".join(capsys.readouterr().out.split())
    assert re.search(r"0\.0100 allowed: undecided, about [\d,]+ more blocks of 10 s would decide", output)
    assert "undecided" in (out / "calibration.md").read_text()


def _lopsided(model: onnx.ModelProto) -> None:
    """Scale one channel by 1000 and its weights in the next layer by 1/1000: equal in FP32, but INT8 loses the other
    channels.
    """
    _scaled(model, 1000.0, channels=1)


def _scaled(model: onnx.ModelProto, times: float, channels: int | None = None) -> None:
    """Scale channels of the third layer's input, all by default; its weights compensate."""
    layer = Graph(model).weighted[2]
    weights = next(row for row in model.graph.initializer if row.name == layer.input[1])
    values = numpy_helper.to_array(weights).copy()
    scale = np.ones((1, values.shape[1], 1, 1), np.float32)
    scale[:, :channels] = times
    values /= scale
    weights.CopyFrom(numpy_helper.from_array(values, weights.name))
    model.graph.initializer.append(numpy_helper.from_array(scale, "scale"))
    place = list(model.graph.node).index(layer)
    model.graph.node.insert(place, helper.make_node("Mul", [layer.input[0], "scale"], ["scaled"], "scaling"))
    layer.input[0] = "scaled"


def _cancelling(model: onnx.ModelProto) -> None:
    """Add 4096 to the third layer's input and subtract it: in FP16 the result is a multiple of four. The tensor is cut
    and joined in between, because onnxruntime's CPU does not round between nodes that it computes in FP32.
    """
    layer = Graph(model).weighted[2]
    model.graph.initializer.append(numpy_helper.from_array(np.array(4096, np.float32), "much"))
    place = list(model.graph.node).index(layer)
    nodes = [
        helper.make_node("Add", [layer.input[0], "much"], ["large"], "adding"),
        helper.make_node("Split", ["large"], ["left", "right"], "cutting", axis=3),
        helper.make_node("Concat", ["left", "right"], ["whole"], "joining", axis=3),
        helper.make_node("Sub", ["whole", "much"], ["small"], "taking"),
    ]
    for node in reversed(nodes):
        model.graph.node.insert(place, node)
    layer.input[0] = "small"


def _planted(folder: Path, change: Callable[[onnx.ModelProto], None]) -> Path:
    model = onnx.load(DEMO_MODEL)
    change(model)
    onnx.save(model, folder / "planted.onnx")
    return folder / "planted.onnx"


@pytest.mark.long
def test_a_large_loss_is_refused_and_leaves_no_file(
    few_streets: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Accepted only if layers may be restored: then the lossy one is in float."""
    model, out = _planted(tmp_path, _lopsided), tmp_path / "out"
    labels = ["--images", str(few_streets[0]), "--annotations", str(few_streets[1]), "--max-ap-drop", "0.02"]
    int8 = ["--precision", "int8", "--method", "minmax", *labels]
    assert _calibrate(model, _config(tmp_path), out, *int8, "--max-float", "0", "--judge-share", "1") == 1
    trial = _outcome(out)["trials"][1]
    assert (trial["ruling"], trial["file"], trial["interval"]["units"]) == ("refused", None, 32)
    assert trial["interval"]["low"] > 0.02
    assert list(out.glob("*.onnx")) == list(out.glob("*.verdict.json")) == []
    assert "0.0200 allowed: refused" in " ".join(capsys.readouterr().out.split())
    assert _calibrate(model, _config(tmp_path), out, *int8) == 0
    trial = _outcome(out)["trials"][1]
    assert Graph(onnx.load(model)).weighted[2].name in trial["float_layers"]
    assert len(trial["float_layers"]) <= 2


@pytest.mark.long
@pytest.mark.parametrize(
    ("change", "words"), [(_cancelling, ""), (lambda model: _scaled(model, 1e6), "scaling")], ids=["precision", "range"]
)
def test_fp16_layers_are_restored_too(
    few_streets: tuple[Path, Path], tmp_path: Path, change: Callable[[onnx.ModelProto], None], words: str
) -> None:
    """The imprecise layer and the overflowing one stay FP32; refused if none may."""
    model, out = _planted(tmp_path, change), tmp_path / "out"
    labels = ["--images", str(few_streets[0]), "--annotations", str(few_streets[1]), "--max-ap-drop", "0.02"]
    assert _calibrate(model, _config(tmp_path), out, "--precision", "fp16", *labels) == 0
    trial = _outcome(out)["trials"][1]
    assert 1 <= len(trial["float_layers"]) <= 3
    parts = parts_of(onnx.load(model))
    assert any({words or "adding"} <= parts[layer] for layer in trial["float_layers"])
    assert bool(trial["steps"]) is not bool(words)
    if not words:
        assert _calibrate(model, _config(tmp_path), out, "--precision", "fp16", "--max-float", "0", *labels) == 1


def test_all_photos_may_be_test_photos_only_if_none_chooses(
    streets: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    labels = ["--images", str(streets[0]), "--annotations", str(streets[1]), "--judge-share", "1"]
    assert _calibrate(DEMO_MODEL, _config(tmp_path), tmp_path / "out", *labels) == 2
    assert "set --method and --max-float 0" in " ".join(capsys.readouterr().err.split())


def _noise(folder: Path) -> Path:
    chance = np.random.default_rng(7)
    folder.mkdir()
    for number in range(36):
        cv2.imwrite(str(folder / f"{number}.png"), chance.integers(0, 256, (480, 640, 3), dtype=np.uint8))
    return folder


def test_fine_noise_is_unusable(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _calibrate(DEMO_MODEL, _noise(tmp_path / "noise"), tmp_path / "out") == 2
    assert "usable frame" in capsys.readouterr().err


@pytest.mark.slow
def test_empty_streets_are_refused(
    streets: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Such ranges may be good enough, but only by luck."""
    empty = tmp_path / "empty"
    empty.mkdir()
    for seed in range(36):
        cv2.imwrite(str(empty / f"{seed}.png"), Scene(320, 180, seed=seed, objects=0).draw(3))
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
    """Calibration and test photos differ. 32 photos cannot separate a drop of 0.01 from 0: undecided, with the number
    of photos needed. They can separate 0.05.
    """
    images = data / "images"
    labels = ["--images", str(images / "val"), "--annotations", str(images / "val.json"), "--labels", "coco"]
    more = ["--precision", "int8", "--method", method, "--frames", "128", *labels]
    model = data / "models" / f"{name}.onnx"
    assert _calibrate(model, images / "calibration", tmp_path, *more) == 3
    trial = _outcome(tmp_path)["trials"][1]
    assert (trial["ruling"], trial["interval"]["units"]) == ("undecided", 32)
    assert trial["interval"]["low"] <= 0.01 < trial["interval"]["high"]
    assert _calibrate(model, images / "calibration", tmp_path, *more, "--max-ap-drop", "0.05") == 0
    trial = _outcome(tmp_path)["trials"][1]
    assert len(trial["float_layers"]) < trial["layers"] / 10
    assert trial["portable"] == {"8.6": [], "10": [], "11": []}


def _ruling_on_wrong(
    model: Path, pixels: list[np.ndarray], labelled: tuple[Path, Path], folder: Path
) -> tuple[Ruling, float]:
    """The ruling on a file calibrated with these pixels, and its AP."""
    made = folder / "wrong.onnx"
    quantised = load(model)
    onnx.save(quantize(quantised, observe(quantised, pixels).ranges("minmax")), made)
    options = Options(model, labels=None if model == DEMO_MODEL else "coco", wanted=PostprocessParams(0.25))
    truth = Truth(*labelled)
    photos = Photos(truth, range(len(truth.paths)))
    evaluator = LabelEvaluator(lambda options: open_detector("cpu", options), options, photos, 0.01)
    score = evaluator.evaluate(replace(options, path=made))[0]
    return score.ruling, score.value


def _unscaled(photos: list[Path], size: int) -> list[np.ndarray]:
    """Pixels of 0 to 255 instead of 0 to 1."""
    rows = [cv2.imread(str(path)) for path in photos[:16]]
    return [
        cv2.resize(row, (size, size)).transpose(2, 0, 1)[None].astype(np.float32) for row in rows if row is not None
    ]


@pytest.mark.long
def test_the_wrong_preprocessing_is_caught(streets: tuple[Path, Path], tmp_path: Path) -> None:
    pixels = _unscaled(sorted(streets[0].glob("*.png")), 320)
    assert _ruling_on_wrong(DEMO_MODEL, pixels, streets, tmp_path)[0] == "refused"


@pytest.mark.needs("data")
@pytest.mark.long
def test_the_wrong_preprocessing_of_a_real_model_is_caught(data: Path, tmp_path: Path) -> None:
    labelled = (data / "images" / "val", data / "images" / "val.json")
    pixels = _unscaled(sorted((data / "images" / "calibration").glob("*.jpg")), 640)
    ruling, ap = _ruling_on_wrong(data / "models" / "yolov5n.onnx", pixels, labelled, tmp_path)
    assert (ruling, round(ap, 2)) == ("refused", 0.0)


# --- models that cannot be used -------------------------------------------------------------------------


def _quantised(model: onnx.ModelProto) -> None:
    model.graph.node.insert(0, helper.make_node("QuantizeLinear", [model.graph.input[0].name, "s", "z"], ["q"]))
    model.graph.initializer.append(numpy_helper.from_array(np.array(0.1, np.float32), "s"))
    model.graph.initializer.append(numpy_helper.from_array(np.array(0, np.int8), "z"))


def _dynamic(model: onnx.ModelProto) -> None:
    _quantised(model)
    model.graph.initializer.append(numpy_helper.from_array(np.zeros((1, 3, 1, 1), np.int8), "w"))
    model.graph.node.insert(1, helper.make_node("ConvInteger", ["q", "w"], ["integers"]))


@pytest.mark.parametrize(
    ("change", "precision", "words"),
    [
        (_quantised, "int8", "is already quantised (QuantizeLinear)"),
        (_dynamic, "int8", "is already quantised (ConvInteger"),
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
    output = capsys.readouterr()
    assert words in " ".join((output.err + output.out).split())
    assert not (tmp_path / "out" / f"model.{precision}.onnx").exists()


def test_annotations_that_do_not_match(
    tmp_path: Path, streets: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """Labels of other classes or photos are refused."""
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
    assert "the annotations belong to other photos" in capsys.readouterr().err


class _FaultyBackend:
    """A backend that computes one layer wrongly in INT8 and converts to FP16 itself; records opened paths."""

    def __init__(self, folder: Path, layer: str) -> None:
        self._folder, self._layer = folder, layer
        self.opened: list[Path] = []
        folder.mkdir()

    def __call__(self, options: Options) -> Detector:
        self.opened.append(options.path)
        model = onnx.load(options.path)
        for node in quantised_layers(Graph(model)):
            if node.name == self._layer:
                model.graph.initializer.append(numpy_helper.from_array(np.array(3, np.float32), "wrong"))
                place = list(model.graph.node).index(node)
                model.graph.node.insert(
                    place, helper.make_node("Mul", [node.input[0], "wrong"], ["wronged"], "wronging")
                )
                node.input[0] = "wronged"
        if options.precision == "fp16":
            model = to_half(model)
        path = self._folder / f"{len(self.opened)}.onnx"
        onnx.save(model, path)
        return open_detector("cpu", replace(options, path=path, precision="auto"))


def _calibration(
    folder: Path, streets: tuple[Path, Path], backend: _FaultyBackend, config: CalibrationConfig
) -> Outcome:
    """Calibrate with frames sampled by the command, on the test's backend."""
    assert _calibrate(DEMO_MODEL, _config(folder), folder / "out", "--precision", "fp8") == 1  # samples the frames
    frames = msgspec.json.decode((folder / "out" / "frames" / "manifest.json").read_bytes(), type=FrameSet)

    @contextmanager
    def stage(_name: str, _steps: int) -> Iterator[Callable[[], None]]:
        yield lambda: None

    config = replace(config, folder=folder / "out", labelled=streets, backend="elsewhere")
    cpu = partial(open_detector, "cpu")
    return Calibration(config, backend, cpu, frames, lambda: None, stage, "now").run()


@pytest.mark.long
def test_layers_are_restored_on_the_final_backend(few_streets: tuple[Path, Path], tmp_path: Path) -> None:
    """The layer is right on the CPU but wrong on the backend: it is restored to float."""
    layer = Graph(load(DEMO_MODEL)).weighted[1].name
    faulty = _FaultyBackend(tmp_path / "elsewhere", layer)
    options = Options(DEMO_MODEL, max_batch=2, threads=1, wanted=PostprocessParams(0.25), cache=tmp_path / "cache")
    config = CalibrationConfig(options, "int8", tmp_path, method="minmax", max_ap_drop=0.05, max_float=1.0)
    outcome = _calibration(tmp_path, few_streets, faulty, config)
    trial = outcome.trials[1]
    assert (trial.ruling, outcome.chosen) == ("accepted", "int8")
    assert layer in trial.float_layers
    assert not trial.steps[0].kept
    assert trial.methods["minmax"] > trial.steps[0].score
    assert faulty.opened.count(tmp_path / "out" / "demo.int8.onnx") > len(trial.steps)


@pytest.mark.long
def test_a_converting_backend_reads_fp32_nodes_from_the_file(few_streets: tuple[Path, Path], tmp_path: Path) -> None:
    model = _planted(tmp_path, lambda model: _scaled(model, 1e6))
    faulty = _FaultyBackend(tmp_path / "elsewhere", "")
    options = Options(model, max_batch=2, threads=1, wanted=PostprocessParams(0.25), cache=tmp_path / "cache")
    outcome = _calibration(tmp_path, few_streets, faulty, CalibrationConfig(options, "fp16", tmp_path))
    assert outcome.trials[1].ruling == "accepted"
    made = onnx.load(tmp_path / "out" / "planted.fp16.onnx")
    assert made.graph.input[0].type.tensor_type.elem_type == onnx.TensorProto.FLOAT
    assert "scaling" in fp32_nodes(made)


# --- the parts ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("needed", [1, 2, 3, 5, 8, 13, 19, 20])
def test_the_fewest_layers_are_restored(needed: int) -> None:
    ranked = [Cost(f"layer-{number}", 20.0 - number) for number in range(20)]
    count, steps = layers_to_restore(ranked, lambda layers: 1.0 if len(layers) >= needed else 0.0, 0.5)
    assert count == needed
    assert len(steps) <= 10
    assert [step.kept for step in steps] == [step.layers >= needed for step in steps]


def test_no_number_of_layers_reaches_the_score() -> None:
    """With `all_first` one try shows it."""
    ranked = [Cost(str(number), 1.0) for number in range(5)]
    count, steps = layers_to_restore(ranked, lambda _: 0.1, 0.5)
    assert (count, [step.layers for step in steps]) == (None, [1, 2, 4, 5])
    count, steps = layers_to_restore(ranked, lambda _: 0.1, 0.5, all_first=True)
    assert (count, [step.layers for step in steps]) == (None, [5])
    count, steps = layers_to_restore(ranked, lambda layers: float(len(layers) >= 3), 0.5, all_first=True)
    assert (count, [step.layers for step in steps]) == (3, [5, 1, 2, 4, 3])


def _trial(precision: Precision, fps: float, ruling: Ruling = "accepted") -> Trial:
    speed = Speed(8, fps, (fps,) * 7, 1.0, None, None, None, 1)
    return Trial(precision, ruling, f"reason {ruling}", "file", speed=speed if ruling == "accepted" else None)


@pytest.mark.parametrize(
    ("rates", "others", "chosen", "words"),
    [
        ((100.0, 180.0, 260.0), {}, "int8", "int8 is the fastest that passes"),
        ((100.0, 180.0, 182.0), {}, "fp16", "int8 passes but is no faster than fp16 here (1.01 times)"),
        ((100.0, 180.0, 260.0), {"int8": "refused"}, "fp16", "int8: reason refused"),
        ((100.0, 180.0, 260.0), {"int8": "undecided"}, "fp16", "int8: reason undecided (undecided counts as refused)"),
        ((100.0, 180.0, 260.0), {"int8": "undecided", "fp16": "refused"}, "fp32", "nothing lower passes: fp16: reason"),
    ],
)
def test_auto_decides(rates: tuple[float, ...], others: dict[Precision, Ruling], chosen: str, words: str) -> None:
    names: tuple[Precision, ...] = ("fp32", "fp16", "int8")
    trials = [_trial(name, fps, others.get(name, "accepted")) for name, fps in zip(names, rates)]
    precision, why = decide(trials, "auto")
    assert precision == chosen
    assert words in why


@pytest.mark.parametrize("ruling", ["refused", "undecided"])
def test_a_requested_precision_that_fails_is_not_chosen(ruling: Ruling) -> None:
    trials = [_trial("fp32", 100.0), _trial("int8", 200.0, ruling)]
    assert decide(trials, "int8") == ("fp32", f"int8: reason {ruling}")


@pytest.mark.parametrize(
    ("rulings", "requested", "code"),
    [
        (("accepted", "refused", "refused"), "fp16", 0),
        (("accepted", "refused", "refused"), "int8", 1),
        (("accepted", "refused", "undecided"), "int8", 3),
        (("accepted", "refused", "undecided"), "auto", 0),
        (("undecided", "refused", "refused"), "auto", 3),
        (("refused", "refused", "refused"), "auto", 0),
    ],
)
def test_exit_codes(rulings: tuple[Ruling, ...], requested: Any, code: int) -> None:
    """Rulings on FP16, FP8 and INT8."""
    trials = [_trial("fp32", 1.0), *(_trial(name, 1.0, ruling) for name, ruling in zip(LOWER, rulings))]
    assert exit_code(trials, requested) == code


def _turns(*rates: float) -> Speed:
    return Speed(8, sorted(rates)[len(rates) // 2], rates, 1.0, None, None, None, 1)


def test_the_choice_tolerates_a_busy_machine() -> None:
    """Interleaved turns are compared: load slows all of them, and one turn may be an outlier."""
    higher = Trial("fp32", "accepted", "", "file", speed=_turns(100, 60, 95, 40, 100, 98, 70))
    lower = Trial("fp16", "accepted", "", "file", speed=_turns(120, 70, 80, 50, 118, 121, 84))
    assert decide([higher, lower], "auto")[0] == "fp16"
    unsure = Trial("fp16", "accepted", "", "file", speed=_turns(120, 50, 80, 50, 118, 121, 84))
    precision, why = decide([higher, unsure], "auto")
    assert precision == "fp32"
    assert "fp16 passes but is not surely faster than fp32 here" in why


def _boxes(*rows: tuple[float, float]) -> Detections:
    """Boxes of one class in a row: position and confidence."""
    xyxy = np.array([[50 * x, 0, 50 * x + 20, 20] for x, _ in rows], np.float32).reshape(-1, 4)
    return Detections(xyxy, np.array([sure for _, sure in rows], np.float32), np.zeros(len(rows), np.int32))


def test_agreement_counts_missed_and_new_boxes() -> None:
    true = _boxes(*((float(x), 0.9) for x in range(20)))
    # One missed, one new, one with half the confidence; one just below the threshold still matches.
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
def test_frames_of_a_street_are_the_daemons(calibrated: Path) -> None:
    """The written frames are subset of the configured source."""
    manifest = json.loads((calibrated / "frames" / "manifest.json").read_text())
    entry = manifest["entries"][0]
    picture = cv2.imread(str(calibrated / "frames" / entry["file"]))
    assert picture is not None
    drawn = Scene(640, 360, seed=int(entry["source"].rpartition("-")[2]), fps=0.1).draw(entry["index"])
    assert float(np.abs(picture.astype(int) - drawn).mean()) < 3
