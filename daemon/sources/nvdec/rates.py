"""How fast one decoding engine is, to know beforehand how many streams it can take.

Measured on one H200 with seven engines, driver 580 (`lookout bench part decode`): 1080p H.264 at 4 Mbit/s with
B-frames, and HEVC at 1.5 Mbit/s. Other generations differ, and high bit rates take longer; codecs that were not
measured are taken for H.264.
"""

from __future__ import annotations

_PIXELS_PER_S = {"h264": 4_800 * 1920 * 1080 / 7, "hevc": 9_150 * 1920 * 1080 / 7}

SESSIONS = 270
"""That one GPU has room for at once, with memory to spare: 288 in one process, 279 in four, 271 in eight, whatever the
codec, size and latency. Beyond, the driver says that it is out of memory. Of an H200; no other card was asked."""


def engine_pixels_per_s(codec: str) -> float:
    """Of one engine."""
    return _PIXELS_PER_S.get(codec, _PIXELS_PER_S["h264"])
