"""YOLO detectors behind one port; imports nothing of the daemon."""

import os

# onnxruntime 1.29 and later report models and the machine to Microsoft unless they see this when they are loaded.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
