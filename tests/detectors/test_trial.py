"""Models of other tasks are refused when opened, and the likely task is named."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from detectors.heads.layout import Floats, Head, ModelFacts, Outputs
from detectors.heads.recognise import recognise
from detectors.labels import resolve
from detectors.letterbox import preprocess
from detectors.model import fixed_batch, within_nms
from detectors.ort.detector import OrtDetector
from detectors.port import DetectorError, HostImage, Options, PostprocessParams
from detectors.semantics import Semantics
from detectors.trial import Run, Trial
from tests.support.models import toy_model
from tests.support.pictures import picture

_HEADS = Path(__file__).parents[1] / "data" / "heads"
_SIZE, _CELLS = (96, 96), 12 * 12 + 6 * 6 + 3 * 3


def _shown(raw: Floats, precision: str = "fp32") -> None:
    _tried(lambda _, pictures: {"output": np.stack([raw] * len(pictures))}, raw.shape, precision)


def _tried(run: Run, shape: tuple[int, ...], precision: str = "fp32") -> None:
    head = recognise(ModelFacts([("output", (1, *shape))], _SIZE, {}))
    Trial(run, precision, Semantics(), lambda classes: resolve(None, {}, classes), batch=8).settle(head)


def _rows(count: int) -> Floats:
    """Boxes and scores of an untrained model."""
    return np.random.default_rng(0).random((count, _CELLS), dtype=np.float32)


def test_a_detector_passes() -> None:
    rows = _rows(84)
    rows[:4] *= 96
    _shown(rows)


def test_key_points_are_not_scores() -> None:
    """G4: 56 rows are a box, one class, and 17 points with x, y and visibility."""
    rows = _rows(56)
    rows[5:] *= 96
    with pytest.raises(DetectorError, match=r"range from .* to 9\d\.\d+, .*56 rows indicate a pose model"):
        _shown(rows)


def test_angles_are_not_scores() -> None:
    """G4: the last row of rotated boxes is an angle, from -pi/4 to 3 pi/4."""
    rows = _rows(20)
    rows[-1] = rows[-1] * 3 - 0.78
    with pytest.raises(DetectorError, match="a last row without scores indicates rotated boxes"):
        _shown(rows)


def test_scores_that_are_not_activated_are_refused() -> None:
    with pytest.raises(DetectorError, match="its scores are not activated"):
        _shown(_rows(84) * 20 - 10)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize(
    ("precision", "remedy"), [("fp16", "set model.precision: fp32"), ("fp32", "check that the file is complete")]
)
def test_nan_and_infinity_are_refused_with_a_remedy(value: float, precision: str, remedy: str) -> None:
    """G13: such as an overflow in FP16."""
    rows = _rows(84)
    rows[40, 3] = value
    with pytest.raises(DetectorError, match=f"NaN or infinity for a grey picture in {precision}: {remedy}"):
        _shown(rows, precision)


def test_the_trial_includes_noise() -> None:
    """Some models overflow on noise only."""
    seen: list[HostImage] = []
    rows = _rows(84)
    rows[:4] *= 96

    def run(_: Head, pictures: Sequence[HostImage]) -> Outputs:
        seen.extend(pictures)
        return {"output": rows[None] if len(seen) == 1 else np.full((1, 84, _CELLS), np.inf, np.float32)}

    with pytest.raises(DetectorError, match="for noise"):
        _tried(run, rows.shape)
    assert [picture.bgr.std() > 50 for picture in seen] == [False, True]


def test_a_fixed_batch_size_gives_a_note_on_the_cpu_too(tmp_path: Path) -> None:
    """G12: such a file would be slow on a GPU later."""
    fixed = OrtDetector(Options(toy_model(tmp_path / "fixed.onnx", batch=1), max_batch=8))
    assert any("batch size of 1" in line and "dynamic=True" in line for line in fixed.info.notes)
    free = OrtDetector(Options(toy_model(tmp_path / "free.onnx"), max_batch=8))
    assert not any("batches of" in line for line in free.info.notes)


def test_a_batch_is_no_larger_than_what_nms_inside_was_exported_for() -> None:
    """All further pictures would come back without boxes: here the file shows it, and the detector does not."""
    file = _HEADS / "yolov8-nms.onnx"  # exported with batch=4
    pictures = [HostImage(picture(number)) for number in range(4)]
    wanted = PostprocessParams(0.1)
    with closing(OrtDetector(Options(file, wanted=wanted, max_batch=8))) as detector:
        assert detector.info.max_batch == 4
        assert sum("NMS inside for batches up to 4, so 8 is not possible" in line for line in detector.info.notes) == 1
        batch = np.stack([preprocess(one.bgr, detector.head.spec) for one in pictures * 2])
        (rows,) = detector.run(batch).values()
        assert (rows[:4, :, 4] > 0).any()
        assert not (rows[4:, :, 4] > 0).any()
    with closing(OrtDetector(Options(file, wanted=wanted, max_batch=2))) as detector:
        assert detector.info.max_batch == 2
        assert not any("NMS inside" in line for line in detector.info.notes)


def test_a_batch_without_pictures_is_refused() -> None:
    with pytest.raises(DetectorError, match="batch is fixed at 0: export it with a dynamic batch"):
        fixed_batch(0, Options(Path("m.onnx")))


@pytest.mark.parametrize(
    ("metadata", "batch"),
    [
        ({"args": "{'nms': True}", "batch": "3"}, 3),
        ({"args": "{'nms': True}", "batch": "9"}, 8),
        ({"args": "{'nms': False}", "batch": "3"}, 8),
        ({"args": "{'nms': None}", "batch": "3"}, 8),
        ({"args": "{'nms': True}"}, 8),
        ({"args": "{'nms': True}", "batch": "many"}, 8),
        ({"args": "[1", "batch": "3"}, 8),
        ({"args": "7", "batch": "3"}, 8),
        ({"batch": "3"}, 8),
    ],
)
def test_the_batch_that_metadata_state(metadata: dict[str, str], batch: int) -> None:
    options, notes = within_nms(Options(Path("m.onnx"), max_batch=8), metadata)
    assert (options.max_batch, len(notes)) == (batch, int(batch == 3))
