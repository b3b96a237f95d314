"""The streams that a GPU's decoder can decode."""

from __future__ import annotations

import msgspec

_EIGHT_BIT_420 = (None, "yuv420p", "yuvj420p", "nv12")


class SizeLimits(msgspec.Struct, frozen=True):
    """Smallest and largest picture of a codec: width and height, pixels."""

    smallest: tuple[int, int]
    largest: tuple[int, int]


class Capability(msgspec.Struct, frozen=True):
    """One GPU's decoder.

    Attributes:
        engines: decoding engines that work in parallel.
        codecs: FFmpeg's names of the codecs that the GPU decodes as 8-bit 4:2:0.
        refusal: why the decoder must not be used, None if it may.
    """

    engines: int
    codecs: dict[str, SizeLimits]
    refusal: str | None = None

    def unsupported_reason(self, codec: str, width: int, height: int, pixel_format: str | None) -> str | None:
        """Why a stream cannot be decoded, None if it can. A size of 0 means that the size is not known yet."""
        if self.refusal:
            return self.refusal
        limits = self.codecs.get(codec)
        if limits is None:
            return f"the GPU does not decode {codec}, only {', '.join(self.codecs) or 'nothing'}"
        if pixel_format not in _EIGHT_BIT_420:
            return f"{pixel_format}: only 8-bit 4:2:0 is decoded on the GPU"
        (least_width, least_height), (most_width, most_height) = limits.smallest, limits.largest
        if width and not (least_width <= width <= most_width and least_height <= height <= most_height):
            return (
                f"{width}x{height}: the GPU decodes {codec} from {least_width}x{least_height} to "
                f"{most_width}x{most_height}"
            )
        return None
