"""How many frames wait on a board, and how lanes take them."""

from __future__ import annotations

from dataclasses import dataclass

PATIENT_DEPTH = 2  # frames of a source that waits for lanes where others do not


@dataclass(frozen=True)
class BoardRules:
    """How many frames wait, and how lanes take them.

    Attributes:
        depth: None for live mode: one frame a source, replaced by the next. In lossless mode, the maximum number of
            frames that wait for each source.
        max_age_ns: a lane drops live frames older than this as stale.
        lanes: number of lanes. In lossless mode a batch has frames of at most one lane's share of the sources: a source
            is in flight once, and a batch with one frame of each source would leave none to the other lanes.
        batch: maximum size of a batch; None for the size that the lane asks for.
        gather: batches are so fast that a lane may wait for a larger one; ignored in lossless mode.
    """

    depth: int | None
    max_age_ns: int
    lanes: int = 1
    batch: int | None = None
    gather: bool = False
