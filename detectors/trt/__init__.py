"""The NVIDIA backend: TensorRT engines, and everything around them on the GPU. See docs/design.md."""
