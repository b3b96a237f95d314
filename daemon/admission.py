"""Who gets how much of a detector that cannot do all that is asked of it: decided when sources come and go.

Without it, frames that no lane has time for are dropped when newer ones come, after they were decoded and converted.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Literal

from daemon.errors import SourceError
from daemon.messages import VideoFormat

Mode = Literal["off", "degrade", "refuse"]
_ROOM = 0.9  # of the measured rate: pictures differ, and the machine does other things
_DECODER_ROOM = 0.98  # what is asked of a decoder is known better than what it can do, and being late costs little
UNKNOWN_FPS = 30.0

Limit = Callable[[float | None], None]
"""Tells a source how many frames a second it has, None for all; called from any thread, and returns at once."""


class Admission:
    """Shares `capacity` frames a second among the sources that are up; safe to use from every thread.

    Args:
        mode: off lets everybody in at full rate; degrade lets everybody in, and lowers the highest rates to one that
            fits; refuse lets a source in only if there is room for all of it.
        capacity: of the detector, measured.
        decoder: share of the GPU's decoder that a format takes, of which there is only refusing: a lower rate lowers
            what is looked at, and all has to be decoded before.
    """

    def __init__(
        self, mode: Mode = "off", capacity: float = float("inf"), decoder: Callable[[VideoFormat], float] | None = None
    ) -> None:
        self._mode, self._measured, self._decoder = mode, capacity, decoder
        self._decoding: dict[str, float] = {}
        self._capacity = capacity * _ROOM
        self._sources: dict[str, tuple[float, Limit]] = {}
        self._lock = threading.Lock()

    def enter(self, source: str, fps: float | None, limit: Limit, format: VideoFormat | None = None) -> None:
        """A source is connected, and will give frames of this format.

        Raises:
            SourceError: there is no room for it; to be tried again later.
        """
        if self._mode == "off":
            return
        wanted = fps or UNKNOWN_FPS
        with self._lock:
            taken = sum(other for other, _ in self._sources.values())
            if self._mode == "refuse" and taken + wanted > self._capacity:
                raise SourceError(
                    f"not admitted: it asks for {wanted:.0f} frames/s, the sources that are up for {taken:.0f}, "
                    f"and the detector does {self._measured:.0f}; see admission"
                )
            if self._decoder and format:
                self._admit_to_decoder(source, self._decoder(format))
            self._sources[source] = (wanted, limit)
            self._share()

    def leave(self, source: str) -> None:
        """A source is not connected any more; what was its own is for the others."""
        with self._lock:
            self._decoding.pop(source, None)
            if self._sources.pop(source, None):
                self._share()

    @property
    def measured(self) -> float | None:
        """What the detector does, None where everybody is let in."""
        return None if self._mode == "off" else self._measured

    def reason(self, fps: float) -> str:
        """Why a source is limited, for its status."""
        return f"limited to {fps:.1f} frames/s: the detector does {self._measured:.0f} in all"

    def _admit_to_decoder(self, source: str, asked: float) -> None:
        taken = sum(self._decoding.values())
        if self._mode == "refuse" and asked and taken + asked > _DECODER_ROOM:
            raise SourceError(
                f"not admitted: it asks for {asked:.1%} of the GPU's decoder, of which the sources that are up take "
                f"{taken:.0%}; see admission, or set decode: cpu"
            )
        self._decoding[source] = asked

    def _share(self) -> None:
        level = fair_level([wanted for wanted, _ in self._sources.values()], self._capacity)
        for wanted, limit in self._sources.values():
            limit(level if level is not None and level < wanted else None)


def fair_level(demands: Sequence[float], capacity: float) -> float | None:
    """The rate that nobody may exceed so that all fit, and nobody who asks for less gives anything up; None if all fit.

    Max-min fairness: those below the level get what they ask for, those above share the rest equally.
    """
    left, waiting = capacity, sorted(demands)
    while waiting and waiting[0] <= left / len(waiting):
        left -= waiting.pop(0)
    return left / len(waiting) if waiting else None
