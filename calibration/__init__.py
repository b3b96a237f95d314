"""Offline work on models: evaluation (and later quantisation); imports detectors, never daemon."""
