"""Facts about an ONNX file, and the recipe of its engine."""

from __future__ import annotations

from typing import cast

import onnx

from detectors.heads.refusals import Input, likely_of_inputs
from detectors.model import digest_of, input_sizes, quantised, read
from detectors.onnx_graph import graph_of
from detectors.port import DetectorError, Options
from detectors.trt import compat
from detectors.trt.cards import check_precision
from detectors.trt.recipe import Recipe, Target


class ModelFile:
    """Facts about an ONNX file.

    Attributes:
        integers: precision of the quantised layers; None for a float model.
        precision: precision of the engine.
        sizes: width and height of the input, at which the model is opened; its own first.
        batch: fixed batch size; None if dynamic.
        graph: facts about its graph.
    """

    def __init__(self, options: Options) -> None:
        content = read(options.path)
        try:
            model = onnx.load_model_from_string(content)
            inputs = [node for node in model.graph.input if node.name not in {w.name for w in model.graph.initializer}]
            pictures = [node for node in inputs if len(node.type.tensor_type.shape.dim) == 4]
            dims = (
                [dim.dim_value or dim.dim_param or "?" for dim in pictures[0].type.tensor_type.shape.dim]
                if pictures
                else []
            )
            self.graph = graph_of(content)
        except Exception as error:  # protobuf's exceptions have no common base
            raise DetectorError(f"{options.path} is not a complete ONNX model") from error
        if len(pictures) != 1 or (isinstance(dims[1], int) and dims[1] != 3):
            rows = [_input(node) for node in inputs]
            seen = ", ".join(f"{row.name} {row.kind} {'x'.join(map(str, row.shape))}" for row in rows) or "none"
            raise DetectorError(
                f"{options.path}: needs one input of (batch, 3, height, width), but has {seen}{likely_of_inputs(rows)}"
            )
        self.digest = digest_of(options.path, content)
        self.metadata = {prop.key: prop.value for prop in model.metadata_props}
        self.integers = quantised(content, self.metadata)
        self.precision = _precision(options, self.integers)
        self.sizes = input_sizes(dims, self.metadata, options)
        self.batch: int | None = dims[0] if isinstance(dims[0], int) else None

    def recipe(self, options: Options, target: Target) -> Recipe:
        """The recipe of the file's engine.

        Raises:
            DetectorError: the target cannot compute in this precision.
        """
        recipe = Recipe(
            onnx_sha256=self.digest,
            builder=target.builder,
            gpu=target.gpu,
            architecture=target.architecture,
            precision=self.precision,
            max_batch=options.max_batch if self.batch is None else self.batch,
            input_size=self.sizes[0],
            further_sizes=self.sizes[1:],
            level=options.builder_level,
            dynamic=self.batch is None,
        )
        if recipe.portable:
            check_precision(recipe.precision, recipe.architecture)
        return recipe


def _input(node: onnx.ValueInfoProto) -> Input:
    tensor = node.type.tensor_type
    kind = onnx.TensorProto.DataType.Name(tensor.elem_type).lower()
    return Input(node.name, kind, tuple(dim.dim_value for dim in tensor.shape.dim))


def _precision(options: Options, integers: str | None) -> compat.Precision:
    if options.precision == "auto":
        return cast("compat.Precision", integers or "fp16")
    if options.precision != integers and (integers or options.precision in ("int8", "fp8")):
        what = f"is quantised to {integers}" if integers else "is not quantised: run `lookout calibrate`"
        raise DetectorError(f"precision {options.precision} is not possible: {options.path} {what}")
    return options.precision
