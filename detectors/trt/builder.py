"""From an ONNX file to a plan, by TensorRT's builder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import onnx

from detectors.port import DetectorError
from detectors.trt import seam
from detectors.trt.engine import Build, Built, Progress, locked, write_whole
from detectors.trt.recipe import Recipe


def builder(trt: Any, logger: Any, folder: Path) -> Build:
    """A function that builds.

    Args:
        trt: the `tensorrt` module.
        logger: TensorRT's, one for the process.
        folder: where timing caches are kept: what one build measured, the next need not measure again.
    """

    def build(path: Path, recipe: Recipe, progress: Progress) -> Built:
        maker = trt.Builder(logger)
        network = seam.make_network(trt, maker)
        parser = trt.OnnxParser(network, logger)
        if not _parse(parser, path, in_graph=recipe.precision == "fp16" and seam.is_strongly_typed(trt)):
            words = "; ".join(parser.get_error(number).desc() for number in range(parser.num_errors))
            raise DetectorError(f"{recipe.builder} cannot read {path}: {words}")
        config = maker.create_builder_config()
        config.builder_optimization_level = recipe.level
        seam.set_tactics(trt, config)
        seam.share_profiles(trt, config)
        seam.watch(trt, config, progress.say)
        road = seam.set_precision(trt, config, network, recipe.precision)
        if recipe.dynamic:
            config.add_optimization_profile(_profile(maker, network.get_input(0).name, recipe))
        timings = folder / f"timing-{recipe.builder}-{recipe.gpu}.cache".replace(" ", "_")
        _load_timings(config, timings)
        plan = maker.build_serialized_network(network, config)
        if plan is None:
            raise DetectorError(f"{recipe.builder} cannot build {path} for {recipe.gpu}: see the log above")
        _keep_timings(config, timings)
        return Built(bytes(plan), road)

    return build


def _parse(parser: Any, path: Path, *, in_graph: bool) -> bool:
    if not in_graph:
        return bool(parser.parse_from_file(str(path)))
    from detectors.trt.half import to_half

    return bool(parser.parse(to_half(onnx.load(path)).SerializeToString()))


def _profile(maker: Any, name: str, recipe: Recipe) -> Any:
    """Batches from 1 to the largest; tactics are chosen for half of it."""
    width, height = recipe.input_size
    profile = maker.create_optimization_profile()
    shapes = [(batch, 3, height, width) for batch in (1, max(1, recipe.max_batch // 2), recipe.max_batch)]
    profile.set_shape(name, *shapes)
    return profile


def _load_timings(config: Any, path: Path) -> None:
    """Another card of the same name and TensorRT is near enough, which is what ignore_mismatch means: its name is the
    file's."""
    timings = config.create_timing_cache(path.read_bytes() if path.is_file() else b"")
    if timings is None:  # damaged
        os.replace(path, path.with_suffix(".bad"))
        timings = config.create_timing_cache(b"")
    config.set_timing_cache(timings, True)


def _keep_timings(config: Any, path: Path) -> None:
    """With what another process has put there meanwhile."""
    timings = config.get_timing_cache()
    with locked(path.with_suffix(".lock")):
        if path.is_file():
            others = config.create_timing_cache(path.read_bytes())
            if others is not None:
                timings.combine(others, True)
        write_whole(path, bytes(timings.serialize()))
