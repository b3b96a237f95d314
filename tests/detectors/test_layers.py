"""Layer reports of 8.6 and 11, with and without details."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.support.daemon import ROOT
from tests.support.needs import BINDINGS

pytestmark = pytest.mark.needs("bindings", "g++")
_CONV = "/model.0/conv/Conv + PWN(PWN(/model.0/act/Sigmoid), /model.0/act/Mul)"
_EIGHT = {
    "Layers": [
        {
            "Name": _CONV,
            "LayerType": "CaskConvolution",
            "Inputs": [{"Name": "a", "Format/Datatype": "Thirty-two wide channel vectorized row major Int8 format"}],
            "Outputs": [{"Name": "b", "Format/Datatype": "Channel major FP16 format where channel % 8 == 0"}],
        },
        {
            "Name": "b_QuantizeLinear",
            "LayerType": "Scale",
            "Inputs": [{"Name": "b", "Format/Datatype": "Row major linear FP32"}],
            "Outputs": [{"Name": "c", "Format/Datatype": "Row major Int8 format"}],
        },
    ],
    "Bindings": ["images", "output0"],
}
# The report of an engine with dynamic batches, with a control character in its JSON.
_ANY_BATCH = {
    "Layers": [
        {
            "Name": "model.1.conv.weight + model.1.conv.weight_QuantizeLinear + /model.1/conv/Conv",
            "LayerType": "CaskConvolution",
            "Inputs": [{"Name": "a", "Dimensions": [-1, 16, 320, 320], "Format/Datatype": "N/A due to dynamic shapes"}],
            "Outputs": [
                {"Name": "b", "Dimensions": [-1, 32, 160, 160], "Format/Datatype": "N/A due to dynamic shapes"}
            ],
            "TacticName": "sm80_xmma_fprop_implicit_gemm_interleaved_i8f16_i8i32_f32_nchw_vect_c_32kcrs_vect_c_32",
            "Metadata": "[ONNX Layer: /model.1/conv/Conv]\x1e[ONNX Layer: /model.1/act/Sigmoid]",
        },
    ],
    "Bindings": ["images", "output0"],
}
_ELEVEN = {
    "Layers": [
        {
            "Name": _CONV,
            "LayerType": "CaskConvolution",
            "Inputs": [{"Name": "a", "Format": "Row major", "DataType": "Int8"}],
            "Outputs": [{"Name": "b", "Format": "Row major", "DataType": "Half"}],
        },
    ],
    "I/O Tensors": ["images", "output0"],
}
_PLAIN = {"Layers": [_CONV, "Reformatting CopyNode"], "Bindings": []}
_READ = """
import ctypes, json, sys
from pathlib import Path
folder = Path(sys.argv[1])
for library in sorted(folder.glob("lib*.so.*")):
    ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
sys.path.insert(0, str(folder))
import tensorrt_bindings
from detectors.trt.hooks import make_profiler
from detectors.trt.layers import read, with_times
times = {}
profiler = make_profiler(tensorrt_bindings, times)
for took in (1.0, 3.0):
    profiler.report_layer_time("b_QuantizeLinear", took)
rows = with_times(read(sys.stdin.read()), {name: max(row) for name, row in times.items()})
fields = [(row.kind, len(row.parts), row.precision, row.output, row.unfused, row.milliseconds) for row in rows]
print(json.dumps(fields))
"""


@pytest.mark.parametrize(
    (("report", "expected")),
    [
        (_EIGHT, [["CaskConvolution", 2, "int8", "fp16", False, None], ["Scale", 1, "fp32", "int8", True, 3.0]]),
        (_ANY_BATCH, [["CaskConvolution", 3, "int8", "fp16", False, None]]),
        (_ELEVEN, [["CaskConvolution", 2, "int8", "fp16", False, None]]),
        (_PLAIN, [["", 2, None, None, False, None], ["", 1, None, None, False, None]]),
    ],
    ids=["8.6", "8.6, any batch", "11", "without details"],
)
def test_layers(report: dict[str, object], expected: list[list[object]]) -> None:
    subprocess.run([sys.executable, str(ROOT / "tests/support/tensorrt_api.py"), str(BINDINGS / "11"), "11"],
                   check=True, capture_output=True)  # fmt: skip
    run = [sys.executable, "-c", _READ, str(BINDINGS / "11")]
    words = json.dumps(report).replace("\\u001e", "\x1e")
    done = subprocess.run(run, input=words, text=True, check=True, capture_output=True, cwd=ROOT)
    assert json.loads(done.stdout) == expected
