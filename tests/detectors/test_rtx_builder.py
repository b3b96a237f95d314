"""The real builder of TensorRT RTX, which needs no GPU: engines for cards elsewhere, by the command line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import onnx
import pytest

from daemon.cli import invoke
from detectors.factory import engine_store
from tests.support.daemon import ROOT
from tests.support.models import toy_model
from tests.support.needs import RTX

pytestmark = pytest.mark.needs("tensorrt-rtx")
# As the package tensorrt-rtx has it, over the unpacked wheels.
_PACKAGE = "from tensorrt_rtx_bindings import *\nfrom tensorrt_rtx_bindings import __version__\n"
_COMMANDS = """
import sys
from daemon.cli import invoke
folder = sys.argv[1]
for word in ("toy rtx30,rtx40", "toy rtx30,rtx40", "int8 rtx40", "fp8 rtx30", "toy h100"):
    model, cards = word.split()
    command = ["engine", "build", f"{folder}/{model}.onnx", "--for", cards, "--max-batch", "2", "--cache", folder]
    print("exit code", invoke(command), flush=True)
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """A folder of engines, and what the commands said. All in one process, because the library takes long to load."""
    folder = tmp_path_factory.mktemp("rtx")
    model = onnx.load(toy_model(folder / "toy.onnx"))
    for name in ("int8", "fp8"):
        del model.metadata_props[:]
        model.metadata_props.add(key="lookout.precision", value=name)
        onnx.save(model, folder / f"{name}.onnx")
    (folder / "tensorrt_rtx.py").write_text(_PACKAGE)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (folder, RTX, ROOT))), "COLUMNS": "160"}
    command = [sys.executable, "-c", _COMMANDS, str(folder)]
    return folder, subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)


def test_an_engine_for_cards_elsewhere(
    built: tuple[Path, subprocess.CompletedProcess[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    """It is built once, and says what it is for."""
    folder, done = built
    assert done.stdout.count("exit code 0") == 2, done.stdout + done.stderr
    (entry,) = engine_store(folder).entries()
    assert f"copy {entry.plan.name} to the site's folder of engines" in done.stdout
    assert entry.manifest is not None
    assert entry.manifest.precision_mode == "FP16 in the graph, strongly typed"
    assert entry.manifest.recipe["builder"].startswith("TensorRT RTX 1.")
    assert entry.manifest.plan_bytes > 1000
    assert invoke(["engine", "show", entry.key, "--cache", str(folder)]) == 0
    assert "compute capability 8.6, 8.9 (rtx30, rtx40, l4)" in capsys.readouterr().out


def test_what_cannot_be_built_is_one_line(built: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    _, done = built
    lines = [line for line in done.stderr.splitlines() if line.startswith("lookout: ")]
    assert [line.split(":")[1].strip()[:40] for line in lines] == [
        "TensorRT RTX has no convolutions in INT8",
        "compute capability 8.6 (rtx30) has no FP",
        "no card is named h100",
    ]
    assert done.stdout.count("exit code 2") == 3
