"""Models of other tasks are refused when opened, and the likely task is named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from detectors import trial
from detectors.cpu.detector import CpuDetector
from detectors.heads.layout import Floats, ModelFacts, Outputs
from detectors.heads.recognise import recognise
from detectors.port import DetectorError, HostImage, Options
from tests.support.models import toy_model

_SIZE, _CELLS = (96, 96), 12 * 12 + 6 * 6 + 3 * 3


def _shown(raw: Floats, precision: str = "fp32") -> None:
    head = recognise(ModelFacts([("output", (1, *raw.shape))], _SIZE, {}))
    trial.check(lambda _: {"output": raw}, head, precision)


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
    head = recognise(ModelFacts([("output", (1, 84, _CELLS))], _SIZE, {}))

    def run(picture: HostImage) -> Outputs:
        seen.append(picture)
        return {"output": _rows(84) if len(seen) == 1 else np.full((84, _CELLS), np.inf, np.float32)}

    with pytest.raises(DetectorError, match="for noise"):
        trial.check(run, head, "fp32")
    assert [picture.bgr.std() > 50 for picture in seen] == [False, True]


def test_a_fixed_batch_size_gives_a_note_on_the_cpu_too(tmp_path: Path) -> None:
    """G12: such a file would be slow on a GPU later."""
    fixed = CpuDetector(Options(toy_model(tmp_path / "fixed.onnx", batch=1), max_batch=8))
    assert any("batch size of 1" in line and "dynamic=True" in line for line in fixed.info.notes)
    free = CpuDetector(Options(toy_model(tmp_path / "free.onnx"), max_batch=8))
    assert not any("batches of" in line for line in free.info.notes)
