"""The NVIDIA backend: TensorRT engines, kernels and GPU memory. See docs/design.md."""
