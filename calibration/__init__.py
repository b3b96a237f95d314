"""Offline work on models: quantisation and evaluation; imports detectors, never daemon."""

import detectors  # noqa: F401 - before onnxruntime, whose environment it sets
