"""Over the stand-in of TensorRT RTX: engines of other machines, and kernels that are compiled once for a card."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import onnx
import pytest

from detectors.cuda import Device
from detectors.factory import availability, best_backend, open_detector, profile_engine
from detectors.port import BackendUnavailableError, DetectorError
from detectors.trt import runtime_cache
from detectors.trt.ahead import build_ahead
from detectors.trt.engine import EngineStore
from detectors.trt.library import load
from tests.support import fake_tensorrt as tensorrt
from tests.support.events import logged
from tests.trt.parts import BACKEND, host_pictures, opened, options_of


def _kernels(folder: Path) -> Path:
    (path,) = (folder / "engines").glob(f"*{runtime_cache.SUFFIX}")
    return path


def _opened(toy: Path, folder: Path) -> int:
    """Kernels that are compiled for a detector and its lane."""
    tensorrt.calm()
    with opened(toy, folder) as (_, lane):
        assert len(lane.detect(host_pictures(3))[0]) == 3
        assert tensorrt.called["execute_async_v3"] > 0
        return tensorrt.called["compile"]


def test_kernels_are_compiled_once_for_a_card(toy: Path, unbuilt: Path) -> None:
    assert _opened(toy, unbuilt) == 4  # batches of 1, 2, 3 and 4
    assert "a_stand_in" in _kernels(unbuilt).name
    assert _opened(toy, unbuilt) == 0


@pytest.mark.parametrize("content", [b"kernels of 1.7.1 for SM86", b"rubbish"])
def test_kernels_of_another_version_or_card_are_compiled_again(toy: Path, unbuilt: Path, content: bytes) -> None:
    _opened(toy, unbuilt)
    _kernels(unbuilt).write_bytes(content)
    with logged() as logs:
        assert _opened(toy, unbuilt) == 4
    assert [row["file"] for row in logs if "compiled again" in row["event"]] == [_kernels(unbuilt).name]
    assert _opened(toy, unbuilt) == 0


def _unwritable(path: Path, _: pytest.MonkeyPatch) -> None:
    path.with_suffix(f"{runtime_cache.SUFFIX}.new").mkdir()


def _too_many(_: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime_cache, "MOST_BYTES", 10)


@pytest.mark.parametrize(
    ("happens", "words"), [(_unwritable, "compiled kernels cannot be kept"), (_too_many, "too many to keep")]
)
def test_kernels_that_cannot_be_kept_are_compiled_again(
    toy: Path,
    unbuilt: Path,
    monkeypatch: pytest.MonkeyPatch,
    happens: Callable[[Path, pytest.MonkeyPatch], None],
    words: str,
) -> None:
    """With one line for each start."""
    _opened(toy, unbuilt)
    path = _kernels(unbuilt)
    path.unlink()
    happens(path, monkeypatch)
    with logged() as logs:
        assert _opened(toy, unbuilt) == 4
    assert len([row for row in logs if words in row["event"]]) == 1
    assert not path.exists()


def test_an_engine_built_ahead_is_taken(toy: Path, unbuilt: Path) -> None:
    """By a card that it is for, under another file name as well."""
    key = build_ahead(load(BACKEND), options_of(toy, unbuilt), ("sm_86", "sm_89"))
    renamed = toy.with_name("renamed.onnx")
    renamed.write_bytes(toy.read_bytes())
    for model in (toy, renamed):
        _opened(model, unbuilt)
    assert [entry.key for entry in EngineStore(unbuilt / "engines").entries()] == [key]


def test_an_engine_for_other_cards_is_left_alone(toy: Path, unbuilt: Path) -> None:
    """Another is built, and the log says why. It cannot be timed here."""
    key = build_ahead(load(BACKEND), options_of(toy, unbuilt), ("sm_86",))
    with logged() as logs:
        _opened(toy, unbuilt)
    (reason,) = (row["reason"] for row in logs if row["event"] == "engine not taken")
    assert reason == "it is for compute capability 8.6 (rtx30), and not for 8.9"
    with (
        logged() as logs,
        pytest.raises(DetectorError, match=r"does not load here .* for compute capability 8\.6 \(rtx30\); give its"),
    ):
        profile_engine(key, unbuilt, None, 1)
    assert [row["reason"] for row in logs if row["event"] == "an engine does not load"] == ["unsupported cc"]


def test_auto_takes_it_for_cards_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """And says on others what they need."""
    assert best_backend() == BACKEND == availability()[0].backend
    monkeypatch.setenv("LOOKOUT_TEST_CAPABILITY", "9.0")
    words = r"a stand-in has compute capability 9\.0, TensorRT RTX 1\.7\.1 runs on 7\.5, 8\.0, 8\.6, 8\.9, 12\.0, 12\.1"
    with pytest.raises(BackendUnavailableError, match=f"backend trt-rtx is not available: {words}: install TensorRT"):
        open_detector(BACKEND, options_of(Path("no.onnx"), Path("nowhere")))
    assert best_backend() == "cpu"  # the kernel's list of GPUs is empty here


def test_int8_is_refused_before_a_build(toy: Path, tmp_path: Path, unbuilt: Path) -> None:
    model = onnx.load(toy)
    model.metadata_props.add(key="lookout.precision", value="int8")
    onnx.save(model, tmp_path / "int8.onnx")
    with pytest.raises(DetectorError, match="TensorRT RTX has no convolutions in INT8"):
        open_detector(BACKEND, options_of(tmp_path / "int8.onnx", unbuilt))
    assert not [*unbuilt.glob("engines/*")]


def test_a_device_has_an_architecture_without_a_context() -> None:
    assert Device.architecture_of(0) == "sm_89"
