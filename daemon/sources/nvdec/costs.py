"""What decoding a source costs: the GPU's memory, and a share of its decoding engines.

Measured on one H200 with seven engines, driver 580 (`lookout bench part decode`, and `bench run` with 150 to 240
sources). Memory is so many pictures of the coded size; its growth with the pictures kept was measured with H.264 only.
Speed is that of 1080p H.264 at 4 Mbit/s with B-frames, and of HEVC at 1.5 Mbit/s. Other generations differ, and high
bit rates take longer; a codec that was not measured is taken for H.264.
"""

from __future__ import annotations

# Pictures that the stream may refer to, and one: usually so many where encoders use B-frames. A camera without them has
# three less in H.264, and one that does not say how many up to twelve more.
_KEPT = {"h264": 5, "hevc": 8}
_BESIDE = {"h264": 7.0, "hevc": 11.5}  # what else a decoder takes
_PICTURES = {"vp9": 20.5, "av1": 20.5, "mjpeg": 8.0}  # in all
_AHEAD = 6.4  # more where pictures may wait in the decoder
_PIXELS_PER_S = {"h264": 4_800 * 1920 * 1080 / 7, "hevc": 9_150 * 1920 * 1080 / 7}

SESSIONS = 270
"""That one GPU has room for at once, with memory to spare: 288 in one process, 279 in four, 271 in eight, whatever the
codec, size and latency. Beyond, the driver says that it is out of memory. Of an H200; no other card was asked."""


def picture_bytes(width: int, height: int) -> int:
    """NV12, rounded up to the macroblock."""
    return -(-width // 16) * 16 * -(-height // 16) * 16 * 3 // 2


def decoder_bytes(
    codec: str, width: int, height: int, surfaces: int, *, low_latency: bool = True, kept: int | None = None
) -> int:
    """Of one source, its decoder and its surfaces together.

    Args:
        kept: pictures that the decoder keeps by the stream's parameters, None where they have not been seen.
    """
    if codec in _BESIDE:
        pictures = _BESIDE[codec] + (kept or _KEPT[codec])
    else:
        pictures = _PICTURES.get(codec, max(_PICTURES.values()))
    return round((pictures + (0 if low_latency else _AHEAD) + surfaces) * picture_bytes(width, height))


def engine_pixels_per_s(codec: str) -> float:
    """Of one engine."""
    return _PIXELS_PER_S.get(codec, _PIXELS_PER_S["h264"])
