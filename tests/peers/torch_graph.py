"""Checks the conversion for Torch-TensorRT, without a GPU: ONNX files, through onnx2torch, to programs of torch.export.

    PYTHON tests/peers/torch_graph.py MODEL.onnx ...

PYTHON has torch, onnx2torch and onnxruntime, and needs no Lookout. For each file it prints the largest difference of
the program's outputs from onnxruntime's, as a share of the largest value, or why the file cannot be converted. Files in
FP32 must agree; in FP16 each library rounds at other places.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import torch

_PROGRAM = Path(__file__).resolve().parents[1] / "bench" / "peers"
_DTYPES = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(int64)": np.int64}
_BATCH, _SIDE = 2, 640
_SHARE = 1e-3


def main() -> int:
    sys.path.insert(0, str(_PROGRAM))
    program = import_module("program")
    failed = False
    for path in sys.argv[1:]:
        session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
        inputs = {node.name: _values(node) for node in session.get_inputs()}
        expected = dict(zip([node.name for node in session.get_outputs()], session.run(None, inputs)))
        try:
            exported, tensors, names = program.exported(torch, path, inputs, "cpu")
        except program.NotRunError as error:
            sys.stdout.write(f"{path}: {error}\n")
            continue
        rows = list(range(len(next(iter(inputs.values())))))
        found = program.named(exported.module()(*tensors), names, rows)
        share = max(np.abs(found[name] - expected[name]).max() / np.abs(expected[name]).max() for name in names)
        halves = any(values.dtype == np.float16 for values in inputs.values())
        failed |= bool(share > _SHARE and not halves)
        sys.stdout.write(f"{path}: {share:.2g}\n")
    return int(failed)


def _values(node: Any) -> Any:
    """Smooth noise for pictures; a size for other inputs."""
    kind = _DTYPES[node.type]
    shape = [
        side if isinstance(side, int) else _BATCH if place == 0 else _SIDE for place, side in enumerate(node.shape)
    ]
    if len(shape) != 4:
        return np.full(shape, _SIDE, kind)
    coarse = np.random.default_rng(0).random((*shape[:2], shape[2] // 8, shape[3] // 8))
    return coarse.repeat(8, 2).repeat(8, 3).astype(kind)


if __name__ == "__main__":
    sys.exit(main())
