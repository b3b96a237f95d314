"""The NVIDIA backend: TensorRT engines, kernels and GPU memory. docs/decisions.md says why."""
