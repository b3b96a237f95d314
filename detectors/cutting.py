"""Cuts parts out of pictures in host memory."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from detectors.port import HostImage, Image, Part, PreparedImage, on_host


class HostCutter:
    """See `detectors.port.Cutter`. Each copy has memory of its own, of its part alone."""

    def cut(self, parts: Sequence[Part]) -> list[Image | PreparedImage | None]:
        return [cut_on_host(part) for part in parts]

    def release_done(self) -> None:
        """Pictures are copied at once."""

    def close(self) -> None:
        """Holds nothing."""


def cut_on_host(part: Part) -> HostImage:
    """A copy of a part of a picture in host memory."""
    left, top, right, bottom = part.box
    return HostImage(np.array(on_host(part.image).bgr[top:bottom, left:right], order="C"))
