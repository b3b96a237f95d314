"""The tracker beside ByteTrack and OC-SORT of Roboflow's `trackers`, on the same boxes of drawn pedestrians.

    python -m tests.peers.tracking

It needs `pip install trackers trackeval`, in an environment of its own. Figures are IDF1 by TrackEval, means over
sequences of 30 s from known seeds. Lookout runs as in `lookout evaluate --mot`. A peer runs with its own thresholds and
with Lookout's, frame by frame and with the frames' times; in each row the best of these counts. It remembers a lost
track for as long as its default, and in another column for as long as Lookout.
"""

from __future__ import annotations

import argparse
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from supervision import Detections as PeerDetections
from trackers import ByteTrackTracker, OCSORTTracker

from daemon.commands.mot import MotFrame, MotOptions, by_file, evaluate, folders_of, frames_of, scored
from daemon.commands.mot_files import read_sequence
from daemon.commands.tracking_score import ScoredFrame, open_metrics, score
from tests.peers.pedestrians import PLACES, write_sequence

_RATES = (7, 10, 30)
_SECONDS = 30.0
_BETWEEN_S = 6.0  # gaps
_MEMORY_S = 3.0  # Lookout's
_UNIT_HZ = 30.0  # the peers give their memory in frames at this rate
_OWN = {"high_conf_det_threshold": 0.25}  # Lookout's threshold
_PEERS: Mapping[str, tuple[Callable[..., Any], Sequence[Mapping[str, float]]]] = {
    "ByteTrack": (ByteTrackTracker, ({}, {"track_activation_threshold": 0.25, **_OWN})),
    "OC-SORT": (OCSORTTracker, ({}, _OWN)),
}


def _drops(fps: int) -> Iterator[tuple[str, str]]:
    """Name and option of each row."""
    yield "all", ""
    for gap_s in (0.5, 1.0, 2.0):
        gap = round(gap_s * fps)
        yield f"gaps of {gap_s:g} s", f"bursts:{gap}/{gap + round(_BETWEEN_S * fps)}"
    for stride in (2, 3, 5):
        yield f"every {stride}.", f"stride:{stride}"


def _peer(tracker: Any, frames: Sequence[MotFrame], *, with_times: bool) -> list[ScoredFrame]:
    results = []
    for frame in frames:
        found, ids = frame.found, np.zeros(len(frame.found), np.int64)
        data = {"row": np.arange(len(found))}
        boxes = PeerDetections(found.xyxy, confidence=found.confidence, class_id=found.class_id, data=data)
        tracked = tracker.update(boxes, timestamp=frame.ns / 1e9) if with_times else tracker.update(boxes)
        if len(tracked):  # in another order
            ids[np.asarray(tracked.data["row"])] = np.maximum(tracked.tracker_id + 1, 0)
        results.append(scored(frame, ids, found))
    return results


def _memory(frames: Sequence[MotFrame], fps: float, *, with_times: bool) -> Mapping[str, float]:
    """The options by which a peer remembers a track for as long as Lookout. Frame by frame it counts frames."""
    rate = fps if with_times else len(frames) / _SECONDS
    return {"lost_track_buffer": round(_MEMORY_S * _UNIT_HZ), "frame_rate": rate}


def _best_of_peer(name: str, folder: Path, fps: float, drop: str, metrics: Any, *, as_long: bool) -> float:
    """
    Args:
        as_long: it remembers tracks for as long as Lookout.
    """
    make, thresholds = _PEERS[name]
    sequences = [read_sequence(path) for path in folders_of(folder)]
    options = MotOptions(folder, drop)
    shown = [list(frames_of(sequence, options, by_file(sequence))) for sequence in sequences]
    means = []
    for own in thresholds:
        for times in (False, True):
            found = []
            for frames in shown:
                memory = _memory(frames, fps, with_times=times) if as_long else {"frame_rate": fps} if times else {}
                found.append(score(_peer(make(**own, **memory), frames, with_times=times), metrics).idf1)
            means.append(float(np.mean(found)))
    return max(means)


def _lookout(folder: Path, drop: str) -> float:
    found = evaluate(MotOptions(folder, drop)).sequences
    return float(np.mean([one.idf1 for one in found.values()]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=int, default=100, help="seed of the first walk at each place")
    parser.add_argument("--walks", type=int, default=3, help="at each place")
    arguments = parser.parse_args()
    metrics = open_metrics()
    warnings.simplefilter("ignore")
    columns = [(peer, as_long) for peer in _PEERS for as_long in (False, True)]
    names = [f"{peer}, {_MEMORY_S:g} s" if as_long else peer for peer, as_long in columns]
    print("| frames/s | analysed | Lookout | " + " | ".join(names) + " |")  # noqa: T201
    print("|---|---|---|" + "---|" * len(names))  # noqa: T201
    with tempfile.TemporaryDirectory() as folder:
        for fps in _RATES:
            there = Path(folder) / str(fps)
            for seed in range(arguments.first, arguments.first + arguments.walks):
                for place in PLACES:
                    write_sequence(there / f"{place.name}-{seed}", place, seed, fps, _SECONDS)
            for name, drop in _drops(fps):
                figures = [_lookout(there, drop)]
                for peer, as_long in columns:
                    figures.append(_best_of_peer(peer, there, fps, drop, metrics, as_long=as_long))
                print(f"| {fps} | {name} | " + " | ".join(f"{figure:.1f}" for figure in figures) + " |", flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
