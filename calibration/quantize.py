"""INT8 as Q/DQ pairs in the graph, in a form that TensorRT 8.6, 10, 11 and onnxruntime read.

Symmetric; one scale per activation tensor and per weight channel. Only weighted layers read integers, and the residual
input of an addition if a layer reads the same integers. The head stays float. There is no pair between a convolution
and its activation, so that TensorRT fuses convolution, activation and quantisation.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort
from onnx import version_converter

from calibration.graph import Graph, add_pair, drop_unused, quantised_layers, sort_nodes
from detectors.port import DetectorError

Method = Literal["minmax", "entropy", "percentile"]
METHODS: tuple[Method, ...] = ("minmax", "percentile", "entropy")
OPSET = 17  # the newest that TensorRT 8.6 reads
_TYPES = ("Conv", "ConvTranspose", "Gemm", "MatMul")
_BINS, _LEVELS = 512, 128
_PERCENTILE = 99.99
_MIN_SCALE = 2.0**-14  # smaller scales lose digits in FP16
INTEGER_OPS = ("ConvInteger", "MatMulInteger", "DynamicQuantizeLinear", "QLinearConv", "QLinearMatMul")
_PAIR = ("QuantizeLinear", "DequantizeLinear")
_QUANTISED_OPS = (*_PAIR, *INTEGER_OPS)

Ranges = dict[str, tuple[float, float]]
"""Smallest and largest value of each tensor."""


def load(path: Path) -> onnx.ModelProto:
    """Read a float model; older opsets are converted to 17.

    Raises:
        DetectorError: not an ONNX file, or already quantised.
    """
    try:
        model = onnx.load(str(path))
        onnx.checker.check_model(model)
    except Exception as error:  # protobuf's and onnx's exceptions have no common base
        raise DetectorError(f"{path} is not a complete ONNX model: {str(error).splitlines()[0][:160]}") from error
    found = sorted({node.op_type for node in model.graph.node} & set(_QUANTISED_OPS))
    if found:
        raise DetectorError(f"{path} is already quantised ({', '.join(found)}): give its float original")
    version = next(entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx"))
    if version < OPSET:
        try:
            model = version_converter.convert_version(model, OPSET)
        except Exception as error:
            raise DetectorError(
                f"{path} has opset {version} and cannot be converted to {OPSET}: export it with opset {OPSET}"
            ) from error
    _name_nodes(model)
    return model


def targets(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    """The layers to quantise: the weighted ones outside the head."""
    graph = Graph(model)
    head = {node.output[0] for node in graph.head}
    return [node for node in graph.weighted if node.output[0] not in head]


class Histograms:
    """Histograms of the tensors to quantise."""

    def __init__(self) -> None:
        from onnxruntime.quantization.calibrate import HistogramCollector

        self._collector = HistogramCollector("entropy", False, _BINS, _LEVELS, _PERCENTILE, "same")

    def collect(self, arrays: dict[str, npt.NDArray[np.float32]]) -> None:
        with contextlib.redirect_stdout(io.StringIO()):  # the collector prints its progress
            self._collector.collect(arrays)

    def ranges(self, method: Method) -> Ranges:
        """Smallest and largest value of each tensor: of all values, a percentile of them, or by lowest entropy loss."""
        if method == "minmax":
            seen = self._collector.get_histogram_dict()
            return {name: (float(row[2]), float(row[3])) for name, row in seen.items()}
        self._collector.method = method
        with contextlib.redirect_stdout(io.StringIO()):
            found = self._collector.compute_collection_result()
        self._collector.method = "entropy"
        return {name: (float(row[0]), float(row[1])) for name, row in found.items()}


def observe(
    model: onnx.ModelProto,
    inputs: Iterable[npt.NDArray[Any]],
    threads: int = 0,
    advance: Callable[[], None] = lambda: None,
) -> Histograms:
    """Run a model over inputs and collect histograms of the tensors to quantise.

    Args:
        inputs: (b, 3, height, width) float32 each, preprocessed by the detector.

    Raises:
        DetectorError: a value is not finite.
    """
    names = sorted({node.input[0] for node in targets(model)} | set(_projected(model)))
    own = model.graph.input[0].name
    session = session_of(with_outputs(model, [name for name in names if name != own]), threads)
    histograms = Histograms()
    names_read = [entry.name for entry in session.get_outputs() if entry.name in names]
    for batch in inputs:
        arrays = dict(zip(names_read, session.run(names_read, {own: batch})))
        if own in names:
            arrays[own] = batch
        for name, array in arrays.items():
            if not np.isfinite(array).all():
                raise DetectorError(f"the model computes infinities at {name} and cannot be quantised")
        histograms.collect(arrays)
        advance()
    return histograms


def quantize(model: onnx.ModelProto, ranges: Ranges) -> onnx.ModelProto:
    """An INT8 copy.

    Raises:
        DetectorError: no layer can be quantised.
    """
    from onnxruntime.quantization.calibrate import CalibrationMethod, TensorData, TensorsData
    from onnxruntime.quantization.qdq_quantizer import QDQQuantizer
    from onnxruntime.quantization.quant_utils import QuantType

    layers = [Graph(model).layer_of(node) for node in targets(model)]
    if not layers:
        raise DetectorError("the model has no layer that can be quantised")
    data = {name: TensorData(lowest=np.float32(low), highest=np.float32(high)) for name, (low, high) in ranges.items()}
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    quantizer = QDQQuantizer(
        copy,
        per_channel=True,
        reduce_range=False,
        weight_qType=QuantType.QInt8,
        activation_qType=QuantType.QInt8,
        tensors_range=TensorsData(CalibrationMethod.MinMax, data),
        nodes_to_quantize=layers,
        nodes_to_exclude=[],
        op_types_to_quantize=list(_TYPES),
        extra_options={
            "ActivationSymmetric": True,
            "WeightSymmetric": True,
            "AddQDQPairToWeight": True,
            "QuantizeBias": False,
            "OpTypesToExcludeOutputQuantization": list(_TYPES),
            "MinimumRealRange": 2 * 127 * _MIN_SCALE,
        },
    )
    quantizer.quantize_model()
    quantizer.model.topological_sort()
    result: onnx.ModelProto = quantizer.model.model
    _narrow(result, set(layers))
    _project(result, ranges)
    drop_unused(result)
    mark(result, "int8")
    return result


def session_of(model: onnx.ModelProto, threads: int = 0) -> ort.InferenceSession:
    """An onnxruntime session on the CPU."""
    settings = ort.SessionOptions()
    settings.intra_op_num_threads = threads
    # Threads that spin between runs would use whole cores while Python works.
    settings.add_session_config_entry("session.force_spinning_stop", "1")
    settings.log_severity_level = 4
    return ort.InferenceSession(model.SerializeToString(), settings, providers=["CPUExecutionProvider"])


def with_outputs(model: onnx.ModelProto, names: Sequence[str]) -> onnx.ModelProto:
    """A copy with these tensors as additional outputs."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    known = {entry.name for entry in copy.graph.output}
    copy.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names if name not in known)
    return copy


def _narrow(model: onnx.ModelProto, layers: set[str]) -> None:
    """Leave integers only to quantised layers and residual additions; the quantiser gives them to every reader."""
    graph = Graph(model)
    for node in graph.nodes:
        if graph.layer_of(node) not in layers and node.op_type not in _PAIR:
            node.input[:] = [graph.origin(name) for name in node.input]
    graph = Graph(model)
    integers = {graph.origin(node.input[0]): node.input[0] for node in quantised_layers(graph)}
    for node, place in graph.residuals:
        node.input[place] = integers.get(node.input[place], node.input[place])


def _projected(model: onnx.ModelProto) -> list[str]:
    """The projection outputs that additions read, where both layers are quantised."""
    quantised = {node.output[0] for node in targets(model)}
    return [node.input[place] for node, place in Graph(model).projections if quantised.issuperset(node.input)]


def _project(model: onnx.ModelProto, ranges: Ranges) -> None:
    """Add a pair behind each projection: an addition fuses with one layer only if the other's output is an integer."""
    graph = Graph(model)
    quantised = {node.output[0] for node in quantised_layers(graph)}
    for node, place in graph.projections:
        name = node.input[place]
        if name in ranges and quantised.issuperset(node.input):
            scale = max(max(map(abs, ranges[name])) / (_LEVELS - 1), _MIN_SCALE)
            node.input[place] = add_pair(model, name, scale, "projected")
    sort_nodes(model)


def mark(model: onnx.ModelProto, precision: str) -> None:
    """Write the precision of the layers into the file's metadata."""
    entry = next((row for row in model.metadata_props if row.key == "lookout.precision"), None)
    if entry is None:
        entry = model.metadata_props.add(key="lookout.precision")
    entry.value = precision


def _name_nodes(model: onnx.ModelProto) -> None:
    """Name unnamed nodes: the quantiser finds nodes by name."""
    for node in model.graph.node:
        node.name = node.name or f"{node.op_type}_of_{node.output[0]}"
