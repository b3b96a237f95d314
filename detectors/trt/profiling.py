"""Times of the layers of an opened detector's engine, or of an engine in the store, which needs no ONNX file."""

from __future__ import annotations

from contextlib import ExitStack, closing

import msgspec

from detectors.cuda import Device
from detectors.layer_times import Layer, LayerTimes
from detectors.port import DetectorError
from detectors.trt.detector import TrtDetector
from detectors.trt.engine import EngineStore
from detectors.trt.layers import LayerTimer
from detectors.trt.library import Library
from detectors.trt.owner import EngineOwner
from detectors.trt.recipe import Manifest, Recipe


def profile_detector(detector: TrtDetector, batch: int | None, runs: int) -> LayerTimes:
    """Times of a detector's engine.

    Args:
        batch: number of pictures; None for the largest batch.

    Raises:
        DetectorError: the engine does not take this batch, or does not run.
    """
    key = msgspec.convert(detector.manifest.recipe, Recipe).key
    batch = _checked(key, detector.manifest, batch)
    detector.device.make_current()
    with closing(LayerTimer(detector.owner)) as timer:
        layers = timer.run(batch, detector.info.input_size, runs)
    return _times(key, detector.manifest, batch, runs, layers)


def profile_stored(
    library: Library, store: EngineStore, prefix: str, device: int, batch: int | None, runs: int
) -> LayerTimes:
    """Times of the engine whose key starts with a prefix. See `profile_detector`.

    Raises:
        DetectorError: no such engine, or it cannot be loaded on this GPU.
    """
    entry = store.find(prefix)
    if entry.manifest is None:
        raise DetectorError(f"engine {entry.key} cannot be used: {entry.problem}; `lookout engine prune` removes it")
    batch = _checked(entry.key, entry.manifest, batch)
    recipe = entry.manifest.recipe
    with ExitStack() as undo:
        opened = undo.enter_context(closing(Device(device)))
        plan = undo.enter_context(closing(EngineOwner(library)))
        if not plan.load(entry.plan.read_bytes(), opened):
            raise DetectorError(
                f"engine {entry.key} does not load here with {library.builder}: it was built by {recipe['builder']} "
                f"for {entry.manifest.card}; give its ONNX file instead, to build one for this GPU"
            )
        timer = undo.enter_context(closing(LayerTimer(plan)))
        width, height = recipe["input_size"]
        layers = timer.run(batch, (width, height), runs)
    return _times(entry.key, entry.manifest, batch, runs, layers)


def _checked(key: str, manifest: Manifest, batch: int | None) -> int:
    largest, dynamic = int(manifest.recipe["max_batch"]), bool(manifest.recipe["dynamic"])
    if batch is None:
        return largest
    if not 1 <= batch <= largest or (batch < largest and not dynamic):
        takes = f"1 to {largest}" if dynamic else f"{largest} alone"
        raise DetectorError(f"engine {key} takes batches of {takes}, not of {batch}")
    return batch


def _times(key: str, manifest: Manifest, batch: int, runs: int, layers: list[Layer]) -> LayerTimes:
    recipe = manifest.recipe
    return LayerTimes(
        key=key,
        model=manifest.model,
        precision=recipe["precision"],
        gpu=manifest.card,
        builder=recipe["builder"],
        batch=batch,
        runs=runs,
        layers=layers,
    )
