"""The streams that a GPU's decoder can decode."""

from __future__ import annotations

import msgspec

_EIGHT_BIT_420 = (None, "yuv420p", "yuvj420p", "nv12")


class SizeLimits(msgspec.Struct, frozen=True):
    """Smallest and largest picture of a codec, width and height, pixels."""

    least: tuple[int, int]
    most: tuple[int, int]


class Capability(msgspec.Struct, frozen=True):
    """One GPU's decoder.

    Attributes:
        engines: that decode side by side.
        codecs: those it decodes as 8-bit 4:2:0, by FFmpeg's name.
        refusal: why it is to decode nothing, None if it may.
    """

    engines: int
    codecs: dict[str, SizeLimits]
    refusal: str | None = None

    def unsupported_reason(self, codec: str, width: int, height: int, pixel_format: str | None) -> str | None:
        """Why such a stream cannot be decoded, None if it can. A size of 0 is not known yet."""
        if self.refusal:
            return self.refusal
        limits = self.codecs.get(codec)
        if limits is None:
            return f"the GPU does not decode {codec}, but {', '.join(self.codecs) or 'nothing'}"
        if pixel_format not in _EIGHT_BIT_420:
            return f"{pixel_format}: only 8-bit 4:2:0 is taken from the GPU's decoder"
        (least_width, least_height), (most_width, most_height) = limits.least, limits.most
        if width and not (least_width <= width <= most_width and least_height <= height <= most_height):
            return (
                f"{width}x{height}: the GPU decodes {codec} from {least_width}x{least_height} to "
                f"{most_width}x{most_height}"
            )
        return None
