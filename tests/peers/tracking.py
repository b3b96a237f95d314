"""The tracker beside ByteTrack of Roboflow's `trackers`, on the same boxes: HOTA, IDF1, MOTA and switches by TrackEval.

    python -m tests.peers.tracking

It needs `pip install trackers trackeval`. Figures are means over scenes of 20 objects and 30 s, from known seeds.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

import numpy as np
from supervision import Detections as PeerDetections
from trackers import ByteTrackTracker

from daemon.analytics.track_stage import Tracker, TrackerStage
from daemon.commands.mot import parse_drop
from daemon.commands.tracking_score import ScoredFrame, TrackingScore, open_metrics, score
from daemon.config import parse
from daemon.pipeline.ledger import Ledger
from tests.analytics.walks import Seen, walk

_DROPS = ("", "bursts:12/60", "stride:5", "random:0.5")
Track = Callable[[Sequence[Seen]], list[list[int]]]


def _lookout(frames: Sequence[Seen]) -> list[list[int]]:
    """Ids of each frame's boxes, 0 for none."""
    config = parse("model: {path: x}\ntracking: {enabled: true}\nsources: [{id: street, type: synthetic}]\n")
    stage = TrackerStage(Tracker(config, Ledger()), ("person",))
    results = [stage([seen.frame], [seen.found])[0].tracks for seen in frames]
    return [tracks.id.tolist() for tracks in results if tracks is not None]


def _peer(frames: Sequence[Seen]) -> list[list[int]]:
    tracker = ByteTrackTracker(
        track_activation_threshold=0.25, high_conf_det_threshold=0.25, minimum_consecutive_frames=3
    )
    results = []
    for seen in frames:
        found = seen.found
        boxes = PeerDetections(
            found.xyxy, confidence=found.confidence, class_id=found.class_id, data={"row": np.arange(len(found))}
        )
        tracked = tracker.update(boxes, timestamp=(seen.frame.pts or 0) / 1e9)
        ids = np.zeros(len(found), np.int64)
        ids[np.asarray(tracked.data["row"])] = np.maximum(tracked.tracker_id + 1, 0)  # the order is another one
        results.append(ids.tolist())
    return results


def _frames(frames: Sequence[Seen], ids: Sequence[Sequence[int]]) -> list[ScoredFrame]:
    rows = []
    for seen, own in zip(frames, ids):
        tracks = np.array(own, np.int64)
        boxes = seen.found.xyxy[tracks > 0].astype(np.float64)
        rows.append(ScoredFrame(np.arange(len(seen.truth)), seen.truth, tracks[tracks > 0], boxes))
    return rows


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--scenes", type=int, default=8)
    scenes = arguments.parse_args().scenes
    metrics = open_metrics()
    for drop in _DROPS:
        for name, track in (("lookout", _lookout), ("trackers", _peer)):
            _show(drop, name, [_scored(seed, drop, track, metrics) for seed in range(scenes)])


def _scored(seed: int, drop: str, track: Track, metrics: object) -> TrackingScore:
    dropped = parse_drop(drop, seed)
    frames = [seen for seen in walk(seed) if not dropped(seen.frame.seq)]
    return score(_frames(frames, track(frames)), metrics)


def _show(drop: str, name: str, scores: Sequence[TrackingScore]) -> None:
    hota, idf1, mota, switches = np.mean([(s.hota, s.idf1, s.mota, s.switches) for s in scores], axis=0)
    print(f"{drop or 'all':14} {name:9} HOTA {hota:.1f}  IDF1 {idf1:.1f}  MOTA {mota:.1f}  switches {switches:.1f}")  # noqa: T201


if __name__ == "__main__":
    main()
