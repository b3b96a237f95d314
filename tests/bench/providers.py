"""`python -m tests.bench providers MODEL`: onnxruntime's providers in turns, over the same pictures.

Every provider is open for the whole time, with a lane of its own, so that a slower machine slows all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter, process_time

import numpy as np

from detectors.detections import Detections
from detectors.factory import Provider, open_detector
from detectors.matching import iou_matrix
from detectors.port import Detector, HostImage, Lane, Options, PostprocessParams
from tests.bench.efficiency import decode

_WARM_UP = 3  # runs of each batch


@dataclass(frozen=True)
class ProvidersOptions:
    """See `python -m tests.bench providers --help`."""

    model: Path
    clip: Path
    providers: tuple[Provider, ...]
    batches: tuple[int, ...] = (1, 4)
    labels: str | None = None
    threads: int = 0
    rounds: int = 5
    seconds: float = 2.0


@dataclass(frozen=True)
class ProviderCost:
    """Of a provider and a batch: medians of the rounds.

    Attributes:
        infer_ms: inference of a batch.
        cpu_ms: CPU time of a picture, with letterbox and NMS.
        nodes: as in `ModelInfo.nodes`.
        differs_px: largest difference of a box from the first provider's.
        unmatched: boxes of either that the other lacks, out of `boxes` of the first.
    """

    provider: str
    precision: str
    batch: int
    infer_ms: float
    cpu_ms: float
    nodes: tuple[tuple[str, int], ...]
    boxes: int
    unmatched: int
    differs_px: float
    differs_confidence: float


def providers(options: ProvidersOptions) -> list[ProviderCost]:
    """Measure.

    Raises:
        LookoutError, DetectorError: the clip, the model or a provider cannot be used.
    """
    pictures = decode(options.clip, 64)
    found: dict[tuple[int, int], list[tuple[float, float]]] = {}
    with ExitStack() as stack:
        opened: list[tuple[Detector, Lane]] = []
        for provider in options.providers:
            wanted = Options(
                options.model, labels=options.labels, wanted=PostprocessParams(0.25), max_batch=max(options.batches),
                threads=options.threads, provider=provider,
            )  # fmt: skip
            detector = stack.enter_context(closing(open_detector("ort", wanted)))
            opened.append((detector, stack.enter_context(closing(detector.lane()))))
        boxes = [[lane.detect([picture])[0][0] for picture in pictures] for _, lane in opened]
        for batch in options.batches:
            for turn in range(options.rounds):
                for number in np.roll(range(len(opened)), turn).tolist():  # none is always the first
                    cost = _cost(opened[number][1], pictures, batch, options.seconds)
                    found.setdefault((number, batch), []).append(cost)
        return [
            ProviderCost(
                provider,
                detector.info.precision,
                batch,
                round(median(row[0] for row in found[number, batch]), 2),
                round(median(row[1] for row in found[number, batch]), 2),
                detector.info.nodes,
                *_differences(boxes[0], boxes[number]),
            )
            for batch in options.batches
            for number, (provider, (detector, _)) in enumerate(zip(options.providers, opened))
        ]


def _cost(lane: Lane, pictures: Sequence[HostImage], batch: int, seconds: float) -> tuple[float, float]:
    """Median milliseconds of a batch's inference, and of the CPU for a picture."""
    for _ in range(_WARM_UP):
        lane.detect(pictures[:batch])
    times: list[int] = []
    done = 0
    until, cpu = perf_counter() + seconds, process_time()
    while perf_counter() < until:
        start = done % (len(pictures) - batch + 1)
        times.append(lane.detect(pictures[start : start + batch])[1].infer)
        done += batch
    return median(times) / 1e6, (process_time() - cpu) / done * 1e3


def _differences(first: Sequence[Detections], other: Sequence[Detections]) -> tuple[int, int, float, float]:
    """Boxes of the first, how many have no counterpart, and the largest differences of those that have one."""
    count = unmatched = 0
    pixels = confidence = 0.0
    for one, two in zip(first, other):
        count += len(one)
        pairs = (iou_matrix(one.xyxy, two.xyxy) > 0.5) & (one.class_id[:, None] == two.class_id[None])
        unmatched += int((~pairs.any(1)).sum() + (~pairs.any(0)).sum())
        for row, column in enumerate(np.where(pairs, iou_matrix(one.xyxy, two.xyxy), -1).argmax(1) if len(two) else ()):
            if pairs[row, column]:
                pixels = max(pixels, float(np.abs(one.xyxy[row] - two.xyxy[column]).max()))
                confidence = max(confidence, float(abs(one.confidence[row] - two.confidence[column])))
    return count, unmatched, round(pixels, 3), round(confidence, 5)
