"""The cost of decoding a source: GPU memory, and a share of the decoding engines.

Measured on one H200 with seven engines, driver 580 (`lookout bench part decode`, and `bench run` with 150 to 240
sources), and on an H100: memory of decoders of HEVC with 1 to 20 pictures in their buffers, and of H.264 with 5 and 20.
Speed was measured with 1080p H.264 at 4 Mbit/s with B-frames, and with HEVC at 1.5 Mbit/s. Other generations differ,
high bit rates take longer, and a codec that was not measured is estimated as H.264.
"""

from __future__ import annotations

# Reference pictures and one more, as usual where encoders use B-frames. A camera without B-frames has three less in
# H.264; a stream that does not state the number has up to twelve more.
_DPB_SIZE = {"h264": 5, "hevc": 8}
_DECODER_BYTES = 4 << 20  # of any size
_EXTRA_PICTURES = {"h264": 2 / 3, "hevc": 4.0}  # what else a decoder has, in pictures
_ALL_PICTURES = {"vp9": 16.5, "av1": 16.5, "mjpeg": 4.0}  # all pictures in a decoder, but for those that may be mapped
_SURFACE = 4 / 3  # pictures' bytes in one of a decoder, also in one that may be mapped: 4 MiB in 1080p
_QUEUED_PICTURES = 6.4  # further pictures where the decoder queues for throughput
_PIXELS_PER_S = {"h264": 4_800 * 1920 * 1080 / 7, "hevc": 9_150 * 1920 * 1080 / 7}

MAX_SESSIONS = 270
"""Sessions that one H200 has room for at once, with a margin. The driver reports that it is out of memory at 288 in one
process, 279 in four and 271 in eight, for every codec, size and latency. Other cards were not measured."""


def picture_bytes(width: int, height: int) -> int:
    """Bytes of a picture in NV12, its size rounded up to macroblocks."""
    return -(-width // 16) * 16 * -(-height // 16) * 16 * 3 // 2


def mapped_pictures(*, low_latency: bool) -> int:
    """Pictures of a decoder that may be mapped at once. A live source's next one comes when the last is long copied."""
    return 1 if low_latency else 2


def decoder_bytes(
    codec: str, width: int, height: int, surfaces: int, *, low_latency: bool = True, dpb_size: int | None = None
) -> int:
    """GPU memory of one source: its decoder and its surfaces.

    Args:
        dpb_size: pictures in the decoder's picture buffer, None before the stream's parameters are known.
    """
    fixed, pictures = 0, _ALL_PICTURES.get(codec, max(_ALL_PICTURES.values()))
    if codec in _EXTRA_PICTURES:
        fixed, pictures = _DECODER_BYTES, _EXTRA_PICTURES[codec] + _SURFACE * (dpb_size or _DPB_SIZE[codec])
    pictures += _SURFACE * mapped_pictures(low_latency=low_latency)
    pictures += surfaces + (0 if low_latency else _QUEUED_PICTURES)
    return fixed + round(pictures * picture_bytes(width, height))


def engine_pixels_per_s(codec: str) -> float:
    """Decoding rate of one engine."""
    return _PIXELS_PER_S.get(codec, _PIXELS_PER_S["h264"])
