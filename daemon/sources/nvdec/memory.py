"""What decoding a source takes of the GPU's memory, before it is taken.

The driver's part is of one H200 with driver 580 (`lookout bench part decode`, and `bench run` with 150 to 240 sources):
so many pictures of the coded size. How it grows with what is kept was seen in H.264 only.
"""

from __future__ import annotations

# Pictures that the stream may refer to, and one: usually so many where encoders use B-frames. A camera without them has
# three less in H.264, and one that does not say how many up to twelve more.
_KEPT = {"h264": 5, "hevc": 8}
_BESIDE = {"h264": 7.0, "hevc": 11.5}  # what else a decoder takes
_PICTURES = {"vp9": 20.5, "av1": 20.5, "mjpeg": 8.0}  # in all
_AHEAD = 6.4  # more where pictures may wait in the decoder


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
