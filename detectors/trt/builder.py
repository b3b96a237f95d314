"""From an ONNX file to a plan, by TensorRT's builder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from detectors.port import DetectorError
from detectors.trt import seam
from detectors.trt.engine import Build, Recipe


def builder(trt: Any, logger: Any) -> Build:
    """A function that builds.

    Args:
        trt: the `tensorrt` module.
        logger: TensorRT's, one for the process.
    """

    def build(onnx: Path, recipe: Recipe) -> tuple[bytes, str]:
        maker = trt.Builder(logger)
        network = seam.make_network(trt, maker)
        parser = trt.OnnxParser(network, logger)
        if not parser.parse_from_file(str(onnx)):
            words = "; ".join(parser.get_error(number).desc() for number in range(parser.num_errors))
            raise DetectorError(f"TensorRT {recipe.tensorrt} cannot read {onnx}: {words}")
        config = maker.create_builder_config()
        config.builder_optimization_level = recipe.level
        seam.set_tactics(trt, config)
        seam.share_profiles(trt, config)
        road = seam.set_precision(trt, config, recipe.precision)
        config.add_optimization_profile(_profile(maker, network.get_input(0).name, recipe))
        plan = maker.build_serialized_network(network, config)
        if plan is None:
            raise DetectorError(f"TensorRT {recipe.tensorrt} cannot build {onnx} for {recipe.gpu}: see the log above")
        return bytes(plan), road

    return build


def _profile(maker: Any, name: str, recipe: Recipe) -> Any:
    """Batches from 1 to the largest; tactics are chosen for half of it."""
    width, height = recipe.input_size
    profile = maker.create_optimization_profile()
    shapes = [(batch, 3, height, width) for batch in (1, max(1, recipe.max_batch // 2), recipe.max_batch)]
    profile.set_shape(name, *shapes)
    return profile
