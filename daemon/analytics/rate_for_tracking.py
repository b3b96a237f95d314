"""Whether a source's frames are close enough together to be tracked."""

from __future__ import annotations

from daemon.analytics.source_time import INTERVALS

LEAST_FPS = 3.0  # somebody who walks moves by the width of a body between two frames


def note_on_pace(fps: float, timeout_s: float) -> str | None:
    """The consequences for the tracks of a source of which so many frames a second are analysed; None for none."""
    effects = []
    if fps < LEAST_FPS:
        effects.append("objects that move further than their own size between two frames get no id")
    if INTERVALS / fps > timeout_s:
        effects.append(f"objects count as gone after {INTERVALS / fps:.3g} s, later than timeout_s says")
    if not effects:
        return None
    return f"{fps:.3g} frames/s are analysed, too few to track well: {', and '.join(effects)}; see max_fps"
