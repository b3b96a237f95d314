"""The CPU backend: onnxruntime."""
