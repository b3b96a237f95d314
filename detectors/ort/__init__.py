"""onnxruntime: the CPU backend, and other accelerators through its execution providers."""
