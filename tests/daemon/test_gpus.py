"""GPUs by name, on a machine of three that a compiled stand-in for the driver shows."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from daemon.gpus import name_visible, visible
from daemon.mps import Mps
from detectors import factory
from detectors.port import BackendUnavailableError
from tests.daemon.test_mps import control  # noqa: F401 - a fixture
from tests.support.driver import built

pytestmark = pytest.mark.needs("g++", "nvcuvid")
_NAMES = [f"GPU-00000000-0000-0000-0000-00000000000{number}" for number in (1, 2, 3)]


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("driver"), "cuda")


@pytest.fixture
def machine(libraries: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        (tmp_path / "proc" / f"0000:0{number}:00.0").mkdir(parents=True)
    monkeypatch.setattr(factory, "_GPUS", tmp_path / "proc")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(libraries))  # of processes that are started from here
    monkeypatch.setenv("LOOKOUT_TEST_GPUS", "3")


def _shown(monkeypatch: pytest.MonkeyPatch, shown: str | None) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")  # so that it is as it was at the end
    if shown is None:
        del os.environ["CUDA_VISIBLE_DEVICES"]
    else:
        os.environ["CUDA_VISIBLE_DEVICES"] = shown


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize(
    ("shown", "names"),
    [
        (None, _NAMES),
        ("1", _NAMES[1:2]),
        ("2,0", [_NAMES[2], _NAMES[0]]),
        (_NAMES[1], _NAMES[1:2]),
        ("0,7", _NAMES[:1]),
    ],
)
def test_what_is_visible_has_names_in_its_order(
    shown: str | None, names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second call changes nothing, nor does a process that is started from here see another."""
    _shown(monkeypatch, shown)
    for _ in range(2):
        assert name_visible() is None
        assert visible() == names


def test_without_a_driver_it_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    _shown(monkeypatch, "1")
    assert "no NVIDIA driver that works" in (name_visible() or "")
    assert (visible(), os.environ["CUDA_VISIBLE_DEVICES"]) == (None, "1")


@pytest.mark.usefixtures("machine")
def test_the_service_and_its_clients_mean_the_same_gpu(
    control: Path,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By number 1 the service would have one GPU, its number 0, and a client that asks for number 1 none."""
    _shown(monkeypatch, "1")
    mps = Mps()
    try:
        assert mps.reason is None
        assert control.with_name("pid.gpus").read_text().strip() == _NAMES[1]
        assert os.environ["CUDA_VISIBLE_DEVICES"] == _NAMES[1]
    finally:
        mps.close()


def test_a_gpu_that_cannot_be_used_is_not_passed_over_in_silence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Where TensorRT is installed, too; the CPU is taken where it is asked for."""
    gpus = tmp_path / "gpus"
    (gpus / "0000:01:00.0").mkdir(parents=True)
    monkeypatch.setattr(factory, "_GPUS", gpus)
    if factory.availability()[0].available:
        pytest.fail("a stand-in is to be used by processes that are started from here alone")
    assert factory.best_backend() == "cpu"  # without TensorRT nobody expects the GPU to be used
    (tmp_path / "tensorrt.py").write_text('raise ImportError("libnvinfer.so.11: cannot open shared object file")')
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(BackendUnavailableError, match=r"cannot be used: .*libnvinfer.*; mend that, or set model"):
        factory.best_backend()
    (gpus / "0000:01:00.0").rmdir()
    assert factory.best_backend() == "cpu"
