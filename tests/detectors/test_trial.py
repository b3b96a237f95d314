"""What is no detector is refused when it is opened, and the likely task is named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from detectors import trial
from detectors.cpu.detector import CpuDetector
from detectors.heads import Floats, recognise
from detectors.port import DetectorError, HostImage, Options
from tests.support.models import toy_model

_SIZE, _CELLS = (96, 96), 12 * 12 + 6 * 6 + 3 * 3


def _shown(raw: Floats, precision: str = "fp32") -> None:
    head = recognise([("output", (1, *raw.shape))], _SIZE, {})
    trial.check(lambda _: raw, head, precision)


def _rows(count: int) -> Floats:
    """Boxes, and scores as an untrained model may give them."""
    return np.random.default_rng(0).random((count, _CELLS), dtype=np.float32)


def test_a_detector_passes() -> None:
    rows = _rows(84)
    rows[:4] *= 96
    _shown(rows)


def test_key_points_are_not_scores() -> None:
    """G4: 56 rows are a box, one class, and 17 points of pixels and visibility."""
    rows = _rows(56)
    rows[5:] *= 96
    with pytest.raises(DetectorError, match=r"go from .* to 9\d\.\d+, .*those of a pose model; Lookout runs detection"):
        _shown(rows)


def test_angles_are_not_scores() -> None:
    """G4: of rotated boxes the last row is an angle, from -pi/4 to 3 pi/4."""
    rows = _rows(20)
    rows[-1] = rows[-1] * 3 - 0.78
    with pytest.raises(DetectorError, match="a last row that is no score is that of rotated boxes"):
        _shown(rows)


def test_scores_that_are_not_activated_are_told() -> None:
    with pytest.raises(DetectorError, match="its scores are not activated"):
        _shown(_rows(84) * 20 - 10)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize(
    ("precision", "remedy"), [("fp16", "set model.precision: fp32"), ("fp32", "is the file whole")]
)
def test_what_is_no_number_is_told_with_the_remedy(value: float, precision: str, remedy: str) -> None:
    """G13: such as what overflows in FP16."""
    rows = _rows(84)
    rows[40, 3] = value
    with pytest.raises(DetectorError, match=f"what is no number for a grey picture in {precision}: {remedy}"):
        _shown(rows, precision)


def test_noise_is_shown_as_well() -> None:
    """What overflows may do so on noise alone."""
    seen: list[HostImage] = []
    head = recognise([("output", (1, 84, _CELLS))], _SIZE, {})

    def run(picture: HostImage) -> Floats:
        seen.append(picture)
        return _rows(84) if len(seen) == 1 else np.full((84, _CELLS), np.inf, np.float32)

    with pytest.raises(DetectorError, match="for noise"):
        trial.check(run, head, "fp32")
    assert [picture.bgr.std() > 50 for picture in seen] == [False, True]


def test_a_file_of_one_batch_size_says_so_on_the_cpu_as_well(tmp_path: Path) -> None:
    """G12: whoever tries it here runs it on a GPU next."""
    fixed = CpuDetector(Options(toy_model(tmp_path / "fixed.onnx", batch=1), max_batch=8))
    assert any("made for batches of 1" in line and "dynamic=True" in line for line in fixed.info.notes)
    free = CpuDetector(Options(toy_model(tmp_path / "free.onnx"), max_batch=8))
    assert not any("batches of" in line for line in free.info.notes)
