"""GPUs by name, on a machine of three that a compiled stand-in for the driver shows."""

from __future__ import annotations

import json
import os
import sys
from contextlib import closing
from pathlib import Path

import pytest

from daemon.cli import invoke
from daemon.monitoring.probes import open_gpu_probe
from daemon.system.gpus import name_visible_gpus, visible_gpus
from daemon.system.mps import Mps
from detectors import factory
from detectors.port import BackendUnavailableError
from tests.daemon.test_mps import control  # noqa: F401 - a fixture
from tests.daemon.test_probes import Nvml
from tests.support.daemon import DEMO_MODEL
from tests.support.driver import built
from tests.support.streets import labelled_streets

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
        assert name_visible_gpus() is None
        assert visible_gpus() == names


def test_without_a_driver_it_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    _shown(monkeypatch, "1")
    assert "no NVIDIA driver that works" in (name_visible_gpus() or "")
    assert (visible_gpus(), os.environ["CUDA_VISIBLE_DEVICES"]) == (None, "1")


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


def test_an_unusable_gpu_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Where TensorRT is installed, too; the CPU is taken where it is asked for."""
    gpus = tmp_path / "gpus"
    (gpus / "0000:01:00.0").mkdir(parents=True)
    monkeypatch.setattr(factory, "_GPUS", gpus)
    if any(row.available for row in factory.availability()[:2]):
        pytest.fail("a stand-in is to be used by processes that are started from here alone")
    assert factory.best_backend() == "cpu"  # without TensorRT nobody expects the GPU to be used
    _install_broken_tensorrt(tmp_path, monkeypatch)
    with pytest.raises(BackendUnavailableError, match=r"cannot be used: .*libnvinfer.*; fix that, or choose the CPU"):
        factory.best_backend()
    (gpus / "0000:01:00.0").rmdir()
    assert factory.best_backend() == "cpu"


def _install_broken_tensorrt(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "tensorrt.py").write_text('raise ImportError("libnvinfer.so.11: cannot open shared object file")')
    monkeypatch.syspath_prepend(str(folder))


@pytest.mark.parametrize("command", ["run", "check", "demo", "evaluate", "calibrate", "bench run"])
def test_no_command_takes_the_cpu_in_silence(
    command: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "gpus" / "0000:01:00.0").mkdir(parents=True)
    monkeypatch.setattr(factory, "_GPUS", tmp_path / "gpus")
    _install_broken_tensorrt(tmp_path, monkeypatch)
    model = str(DEMO_MODEL)
    photos, truth = labelled_streets(tmp_path / "photos", 1)
    config = {"model": {"path": model}, "sources": [{"id": "street", "type": "synthetic", "frames": 1}]}
    (tmp_path / "config.yaml").write_text(json.dumps({**config, "publisher": {"endpoint": "tcp://127.0.0.1:*"}}))
    arguments = {
        "demo": ["--seconds", "1"],
        "evaluate": ["--model", model, "--images", str(photos), "--annotations", str(truth)],
        "calibrate": [model, "--from", str(photos), "--out", str(tmp_path / "out")],
        "bench run": ["--model", model, "--sources", "1", "--seconds", "1", "--repeats", "1"],
    }
    assert invoke([*command.split(), *arguments.get(command, ["-c", str(tmp_path / "config.yaml")])]) == 2
    said = capsys.readouterr()
    assert "cannot be used" in (said.out + said.err).replace("\n", " ")
    assert "--backend cpu" in (said.out + said.err).replace("\n", " ")


@pytest.mark.usefixtures("machine")
def test_figures_are_of_the_gpu_that_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever command opens the probe, and whether names were given before or not."""
    _shown(monkeypatch, "1")
    asked: list[str] = []

    class ProcessMessage(Nvml):
        def nvmlInit(self) -> None: ...  # noqa: N802
        def nvmlShutdown(self) -> None: ...  # noqa: N802

        def nvmlDeviceGetHandleByUUID(self, name: str) -> int:  # noqa: N802
            asked.append(name)
            return 1

    monkeypatch.setitem(sys.modules, "pynvml", ProcessMessage(3, set()))
    with closing(open_gpu_probe()) as probe:
        assert len(probe.read() or []) == 1
    assert asked == _NAMES[1:2]
