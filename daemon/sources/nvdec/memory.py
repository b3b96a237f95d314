"""What decoding a source takes of the GPU's memory, before it is taken.

The driver's part is of one H200 with driver 580 (`lookout bench decode`, and `bench streams` with 150 to 240 sources):
so many pictures of the coded size.
"""

from __future__ import annotations

# A decoder keeps as many pictures as the stream may refer to, which for H.264 is four, as encoders have it that use
# B-frames; a camera without them needs three less. It works with more.
_PICTURES = {"h264": 12.0, "hevc": 19.5, "vp9": 20.5, "av1": 20.5, "mjpeg": 8.0}
_AHEAD = 6.4  # more where pictures may wait in the decoder


def picture_bytes(width: int, height: int) -> int:
    """NV12, rounded up to the macroblock."""
    return -(-width // 16) * 16 * -(-height // 16) * 16 * 3 // 2


def decoder_bytes(codec: str, width: int, height: int, surfaces: int, *, low_latency: bool = True) -> int:
    """Of one source, its decoder and its surfaces together."""
    pictures = _PICTURES.get(codec, max(_PICTURES.values())) + (0 if low_latency else _AHEAD)
    return round((pictures + surfaces) * picture_bytes(width, height))
