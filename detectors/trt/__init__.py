"""The NVIDIA backend, in the making: CUDA's nouns and the kernels before and after the engine. See docs/design.md."""
