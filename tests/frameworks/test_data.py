"""The stored models and results belong together, and to the pictures."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest

from tests.frameworks.expected import FINELY_MASKED, MASKED, PICTURES, load
from tests.support.pictures import digest, picture

pytestmark = pytest.mark.slow(2)  # onnxruntime 1.20 cannot run all of the files
HEADS = Path(__file__).resolve().parents[1] / "data/heads"
RESULTS = sorted(HEADS.glob("*.npz"))


def test_every_model_has_results() -> None:
    assert [path.stem for path in RESULTS] == [path.stem for path in sorted(HEADS.glob("*.onnx"))]
    assert RESULTS


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: str(path.stem))
def test_results_have_rows_and_masks_of_the_pictures(path: Path) -> None:
    expected = load(path)
    numbers = expected.rows[:, 0]
    assert expected.rows.shape[1] == len(expected.facts["columns"])
    assert expected.sure.shape == (PICTURES,)
    assert set(numbers) <= set(range(PICTURES))
    assert (np.diff(numbers) >= 0).all()
    if len(expected.masks):
        assert [len(expected.masks), len(expected.fine)] == [
            int((numbers < count).sum()) for count in (MASKED, FINELY_MASKED)
        ]


def test_this_machine_draws_the_same_pictures() -> None:
    drawn = digest(picture(number) for number in range(PICTURES))
    assert {load(path).facts["pictures"] for path in RESULTS} == {drawn}


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: str(path.stem))
def test_a_model_takes_a_picture_as_it_is_placed(path: Path) -> None:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = ort.InferenceSession(str(path.with_suffix(".onnx")), options, providers=["CPUExecutionProvider"])
    first, *others = session.get_inputs()
    given = {first.name: load(path).placing.planes(picture(0))[None]}
    given.update({other.name: np.array([[300, 200]], np.int64) for other in others})
    assert all(np.isfinite(output).all() for output in session.run(None, given))
