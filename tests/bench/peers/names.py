"""The engines that `python -m tests.bench engine --peer` can run."""

from __future__ import annotations

OWN = "lookout"
SERVED = "triton"
ON_CPU = "onnxruntime-cpu"
PEERS = {
    ON_CPU: "ONNX Runtime, CPU",
    "onnxruntime-cuda": "ONNX Runtime, CUDA",
    "onnxruntime-tensorrt": "ONNX Runtime, TensorRT",
    "torch-tensorrt": "Torch-TensorRT",
    SERVED: "Triton server",
}
"""Name on the command line, and title of the row."""
