"""YOLO detectors behind one port; imports nothing of the daemon."""
