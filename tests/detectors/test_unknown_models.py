"""Models that Lookout does not run are refused in one line that names what was seen, and the likely task."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from detectors.ort.detector import OrtDetector
from detectors.port import DetectorError, Options

Shape = Sequence[int | str]
Given = Sequence[tuple[str, int, Shape]]
Made = Sequence[tuple[str, Shape]]
_FLOAT, _INT, _BYTE, _TEXT = TensorProto.FLOAT, TensorProto.INT64, TensorProto.UINT8, TensorProto.STRING
_SMALL, _HALF = TensorProto.INT8, TensorProto.FLOAT16
_PICTURE: tuple[str, int, Shape] = ("images", _FLOAT, (1, 3, 96, 96))
_CELLS = 12 * 12 + 6 * 6 + 3 * 3


def _model(
    path: Path, inputs: Given, outputs: Made | dict[str, np.ndarray], metadata: dict[str, str], *, listed: bool = False
) -> Path:
    """A file whose outputs are constants: random ones for shapes.

    Args:
        listed: the outputs are a sequence of tensors.
    """
    rng, nodes, infos = np.random.default_rng(0), [], []
    if not isinstance(outputs, dict):
        shapes = [(name, [int(side) for side in shape]) for name, shape in outputs]
        outputs = {name: np.asarray(rng.normal(0, 3, shape), np.float32) for name, shape in shapes}
    for name, array in outputs.items():
        value = numpy_helper.from_array(array)
        nodes.append(helper.make_node("Constant", [], [name], value=value))
        infos.append(helper.make_tensor_value_info(name, value.data_type, array.shape))
    if listed:
        nodes.append(helper.make_node("SequenceConstruct", list(outputs), ["list"]))
        infos = [helper.make_tensor_sequence_value_info("list", _FLOAT, None)]
    graph = helper.make_graph(nodes, "other", [helper.make_tensor_value_info(*given) for given in inputs], infos)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    for key, value in metadata.items():
        model.metadata_props.add(key=key, value=value)
    onnx.save(model, path)
    return path


def _refused(
    path: Path,
    inputs: Given,
    outputs: Made | dict[str, np.ndarray],
    metadata: dict[str, str] | None = None,
    *,
    listed: bool = False,
) -> str:
    with pytest.raises(DetectorError) as caught:
        OrtDetector(Options(_model(path / "other.onnx", inputs, outputs, metadata or {}, listed=listed), threads=1))
    text = str(caught.value)
    assert "\n" not in text
    return text


def _scores(*shape: int) -> np.ndarray:
    """Values of 0 to 1, as a sigmoid gives them."""
    return np.random.default_rng(0).random(shape, dtype=np.float32)


def _boxes(rows: int, size: float, *, classes: int, centre: bool = False) -> np.ndarray:
    """Rows of a detector whose scores are what they should be: boxes of pixels, and scores of 0 to 1."""
    found = _scores(1, rows, 4 + classes)
    found[..., :2] *= size / 2
    found[..., 2:4] *= size / 2
    found[..., 2:4] += 0 if centre else size / 2
    return found


# Families that have one picture for an input: the outputs, and words that name what was seen and the likely task.
PICTURES: dict[str, tuple[Made | dict[str, np.ndarray], str]] = {
    "DeepLab, FCN, SegFormer": ([("scores", (1, 21, 96, 96))], "scores 1x21x96x96 .*semantic segmentation"),
    "TensorFlow's DeepLab": ([("scores", (1, 96, 96, 21))], "scores 1x96x96x21 .*semantic segmentation"),
    "segmentation with argmax": ({"labels": np.ones((1, 96, 96), np.int64)}, "labels 1x96x96 .*semantic segmentation"),
    "SegFormer at a quarter": ([("logits", (1, 150, 24, 24))], "logits 1x150x24x24 .*feature maps"),
    "depth": ([("depth", (1, 1, 96, 96))], "depth 1x1x96x96 .*semantic segmentation or another picture"),
    "MiDaS": ([("predicted_depth", (1, 96, 96))], "predicted_depth 1x96x96 .*another picture"),
    "super resolution": ([("high", (1, 3, 192, 192))], "high 1x3x192x192 .*super resolution"),
    "a backbone with FPN": (
        [("p3", (1, 64, 12, 12)), ("p4", (1, 64, 6, 6)), ("p5", (1, 64, 3, 3))],
        "p3 1x64x12x12, p4 .*feature maps",
    ),
    "YOLOv3 of Darknet": ([("cells", (1, 255, 12, 12))], "cells 1x255x12x12 .*feature maps"),
    "YOLOv5 without its decoding": ([("cells", (1, 3, 12, 12, 85))], "cells 1x3x12x12x85 .*raw grids of anchors"),
    "HRNet, ViTPose": ([("heat", (1, 17, 24, 24))], "heat 1x17x24x24 .*feature maps"),
    "OpenPose": ([("heat", (1, 19, 12, 12)), ("pafs", (1, 38, 12, 12))], "heat .*pafs .*feature maps"),
    "CenterNet": (
        [("hm", (1, 80, 24, 24)), ("wh", (1, 2, 24, 24)), ("reg", (1, 2, 24, 24))],
        "hm .*wh .*reg .*feature maps",
    ),
    "DINO, a ViT's tokens": ([("tokens", (1, 197, 384))], "tokens 1x197x384 .*sequence of vectors"),
    "an encoder of SAM": ([("embeddings", (1, 256, 64, 64))], "embeddings 1x256x64x64 .*feature maps"),
    "ReID": ([("embedding", (1, 512))], "embedding of 512 values .*model.head: classify"),
    "a classifier": ([("logits", (1, 1000))], "logits of 1000 values .*model.head: classify"),
    "a classifier of 1x1 maps": ([("logits", (1, 1000, 1, 1))], "logits of 1000 values .*model.head: classify"),
    "a classifier of 1x1 maps, channels last": ([("logits", (1, 1, 1, 1000))], "logits 1x1x1x1000"),
    "Inception with a second classifier": (
        [("logits", (1, 1000)), ("aux", (1, 1000))],
        "logits 1x1000, aux 1x1000 .*several classifiers",
    ),
    "age": ([("age", (1, 1))], "age 1x1"),
    "age and sex": ([("age", (1, 1)), ("sex", (1, 2))], "age 1x1, sex 1x2 .*several classifiers"),
    "quality, without a batch": ([("quality", ())], "quality of a single number"),
    "head pose": ([("angles", (1, 3))], "angles of 3 values"),
    "SSD": ([("boxes", (1, 100, 4)), ("scores", (1, 100, 21))], "boxes 1x100x4, scores .*boxes and scores apart"),
    "SSD with anchors, RetinaFace": (
        [("loc", (1, 378, 4)), ("conf", (1, 378, 2)), ("landms", (1, 378, 10))],
        "loc 1x378x4, conf 1x378x2, landms .*boxes and scores apart",
    ),
    "YOLO-NAS, DAMO-YOLO": ([("bbox", (1, _CELLS, 4)), ("scores", (1, _CELLS, 80))], "bbox .*YOLO-NAS"),
    "BlazeFace": (
        [("regressors", (1, 896, 16)), ("classificators", (1, 896, 1))],
        "regressors 1x896x16, classificators 1x896x1",
    ),
    "FaceMesh": ([("landmarks", (1, 1404)), ("score", (1, 1))], "landmarks 1x1404, score 1x1"),
    "68 landmarks": ([("landmarks", (1, 136))], "landmarks of 136 values"),
    "boxes and scores of one class": ([("boxes", (1, 100, 4)), ("scores", (1, 100))], "boxes .*scores 1x100"),
    "EfficientDet of TensorFlow": (
        [("boxes", (1, 100, 4)), ("classes", (1, 100)), ("scores", (1, 100)), ("count", (1,))],
        "boxes 1x100x4, classes .*count 1",
    ),
    "EfficientNMS": (
        {
            "num_dets": np.ones((1, 1), np.int32),
            "det_boxes": _scores(1, 100, 4),
            "det_scores": _scores(1, 100),
            "det_classes": np.zeros((1, 100), np.int32),
        },
        "num_dets 1x1, det_boxes 1x100x4, .*EfficientNMS.*with NMS inside",
    ),
    "Faster R-CNN of torchvision": (
        [("boxes", (100, 4)), ("labels", (100,)), ("scores", (100,))],
        "outputs are boxes 100x4, labels 100, scores 100 .*torchvision",
    ),
    "Mask R-CNN of torchvision": (
        [("boxes", (100, 4)), ("labels", (100,)), ("scores", (100,)), ("masks", (100, 1, 96, 96))],
        "outputs are boxes 100x4, labels 100, scores 100",
    ),
    "YOLOv7 with its NMS": (
        {"output": _boxes(100, 96, classes=3)[0]},
        "output 100x7 .*YOLOv7 .*with NMS inside.*--grid",
    ),
    "another input size": ([("rows", (1, 84, 77))], "rows 1x84x77 .*another input size"),
    "pose without metadata": ([("rows", (1, 56, _CELLS))], "56 rows indicate a pose model"),
    "scores without a sigmoid": ([("rows", (1, 84, _CELLS))], "range from 0 to 1"),
    "five columns": ([("rows", (1, 300, 5))], "rows 1x300x5"),
    "YOLOv6, decoded YOLOX": (
        {"rows": _boxes(_CELLS, 96, classes=81)},
        "boxes for a grey picture are not those of yolox: widths are pixels",
    ),
    "YOLOv8 transposed": (
        {"rows": _boxes(_CELLS, 96, classes=80)},
        "boxes for a grey picture are not those of yolox: .*transposed YOLOv8",
    ),
    "YOLOv8 with boxes as shares": ({"rows": _scores(1, 84, _CELLS)}, "not those of yolov8: they are shares"),
    "YOLOv5 with boxes as shares": ({"rows": _scores(1, 3 * _CELLS, 85)}, "not those of yolov5: they are shares"),
    "NMS inside with boxes as shares": (
        {"rows": np.concatenate((_scores(1, 300, 5), np.ones((1, 300, 1), np.float32)), axis=2)},
        "boxes are shares of the picture, not pixels: set model.box_units: shares",
    ),
    "six measures of each of 21 points": (
        {"rows": 50 * _scores(1, 21, 6) ** 6},
        "those of end2end|scores of end2end range",
    ),
    "six measures with a probability": (
        {"rows": np.concatenate((90 * _scores(1, 21, 4), _scores(1, 21, 2)), axis=2)},
        "not those of end2end: the sixth column has fractions",
    ),
    "YOLOv5-face": ({"rows": 96 * _scores(1, 3 * _CELLS, 16)}, "range from 0 to 1"),
    "NanoDet": ([("output", (1, _CELLS + 4, 112))], "output 1x193x112|scores for"),
    "OCR by CTC": ([("logits", (1, 26, 37))], "logits 1x26x37 .*characters of a text"),
    "OCR by CTC, time first": ([("logits", (26, 1, 37))], "logits 26x1x37 .*characters of a text"),
    "an empty output": ([("nothing", (1, 0, 6))], "nothing 1x0x6 .*as many rows as it finds"),
    "video out": ([("video", (1, 3, 8, 96, 96))], "video 1x3x8x96x96 .*video"),
    "lanes of a road": ([("lanes", (1, 101, 56, 4))], "lanes 1x101x56x4 .*feature maps"),
}


# They have ultralytics' metadata: without it their family is asked for.
STATED = ("NMS inside with boxes as shares", "six measures of each of 21 points", "six measures with a probability")


@pytest.mark.parametrize("family", PICTURES)
def test_other_outputs_are_refused(tmp_path: Path, family: str) -> None:
    outputs, expected = PICTURES[family]
    stated = {"names": "{0: 'one', 1: 'two'}", "task": "detect"} if family in STATED else {}
    text = _refused(tmp_path, [_PICTURE], outputs, stated)
    assert re.search(expected, text), text


# Families with other inputs: the inputs, and the likely task.
OTHERS: dict[str, tuple[Given, str]] = {
    "wav2vec": ([("input_values", _FLOAT, (1, 16000))], "an audio model"),
    "a waveform without a name": ([("x", _FLOAT, (1, 16000))], "an audio model"),
    "Silero's detector of voices": (
        [("input", _FLOAT, (1, 512)), ("state", _FLOAT, (2, 1, 128)), ("sr", _INT, ())],
        "a model of tables or of features",
    ),
    "Whisper's encoder": ([("input_features", _FLOAT, (1, 80, 3000))], "an audio model"),
    "a spectrogram without a name": ([("x", _FLOAT, (1, 80, 3000))], "an audio model"),
    "Whisper's decoder": (
        [("decoder_input_ids", _INT, (1, 4)), ("encoder_hidden_states", _FLOAT, (1, 1500, 384))],
        "a language model",
    ),
    "YAMNet": ([("waveform", _FLOAT, ("samples",))], "an audio model"),
    "a text encoder": ([("tokens", _INT, (1, 77))], "a language model"),
    "BERT": (
        [(name, _INT, (1, 77)) for name in ("input_ids", "attention_mask", "token_type_ids")],
        "a language model",
    ),
    "GPT with its past": (
        [("input_ids", _INT, (1, 1)), ("past_key_values.0.key", _FLOAT, (1, 12, 5, 64))],
        "a model of pictures and text|a language model",
    ),
    "CLIP": ([("input_ids", _INT, (1, 77)), ("pixel_values", _FLOAT, (1, 3, 96, 96))], "a model of pictures and text"),
    "Grounding DINO": (
        [("pixel_values", _FLOAT, (1, 3, 96, 96)), ("input_ids", _INT, (1, 7)), ("pixel_mask", _INT, (1, 96, 96))],
        "a model of pictures and text",
    ),
    "text": ([("text", _TEXT, (1,))], "a language model"),
    "TensorFlow": ([("images", _FLOAT, (1, 96, 96, 3))], "channels last"),
    "TensorFlow, bytes": ([("images", _BYTE, (1, 96, 96, 3))], "channels last"),
    "a classifier of digits, channels last": ([("images", _FLOAT, (1, 28, 28, 1))], "channels last"),
    "OCR": ([("images", _FLOAT, (1, 1, 32, 100))], "grey pictures, such as one that reads text"),
    "a VAE's decoder": ([("latent", _FLOAT, (1, 4, 64, 64))], "latent pictures"),
    "bytes": ([("images", _BYTE, (1, 3, 96, 96))], "pictures of integers"),
    "int8": ([("images", _SMALL, (1, 3, 96, 96))], "pictures of integers"),
    "stereo, optical flow": (
        [("left", _FLOAT, (1, 3, 96, 96)), ("right", _FLOAT, (1, 3, 96, 96))],
        "several pictures, such as optical flow",
    ),
    "matting with a memory": (
        [("src", _FLOAT, (1, 3, 96, 96)), ("r1i", _FLOAT, (1, 16, 48, 48)), ("ratio", _FLOAT, (1,))],
        "a memory of earlier pictures",
    ),
    "clips": ([("clip", _FLOAT, (1, 3, 8, 96, 96))], "video clips"),
    "SlowFast": ([("slow", _FLOAT, (1, 3, 4, 96, 96)), ("fast", _FLOAT, (1, 3, 32, 96, 96))], "video clips"),
    "a threshold beside the picture": (
        [("images", _FLOAT, (1, 3, 96, 96)), ("threshold", _FLOAT, (1,))],
        "make them constants",
    ),
    "a size of another type": ([_PICTURE, ("orig_target_sizes", _FLOAT, (1, 2))], r"an int64 input \(batch, 2\)"),
    "PaddleDetection": (
        [_PICTURE, ("im_shape", _FLOAT, (1, 2))],
        "PaddleDetection.* without scale_factor and im_shape",
    ),
    "double precision": ([("images", TensorProto.DOUBLE, (1, 3, 96, 96))], "in float32 or float16"),
    "a picture without a batch": ([("image", _FLOAT, (3, 96, 96))], "but has image"),
    "PointNet": ([("points", _FLOAT, (1, 3, 1024))], "point clouds"),
    "point clouds, points first": ([("points", _FLOAT, (1, 1024, 3))], "point clouds"),
    "a table": ([("features", _FLOAT, (1, 30))], "tables"),
    "no input": ([], "but has none, which looks like a constant"),
}


@pytest.mark.parametrize("family", OTHERS)
def test_other_inputs_are_refused(tmp_path: Path, family: str) -> None:
    inputs, expected = OTHERS[family]
    text = _refused(tmp_path, inputs, [("output", (1, 84, _CELLS))])
    assert "needs one float input of (batch, 3, height, width), but has" in text
    assert all(name in text for name, *_ in inputs)
    assert re.search(expected, text), text


@pytest.mark.parametrize("task", ["semantic", "depth", "track", "super-resolution"])
def test_other_tasks_are_refused(tmp_path: Path, task: str) -> None:
    assert f"the model's task is '{task}'" in _refused(tmp_path, [_PICTURE], [("o", (1, 84, _CELLS))], {"task": task})


@pytest.mark.parametrize("task", ["pose", "obb", "segment", "classify"])
def test_outputs_must_be_those_of_the_task(tmp_path: Path, task: str) -> None:
    text = _refused(tmp_path, [_PICTURE], [("o", (1, 84, 77))], {"task": task})
    assert f"the task is {task}" in text


def test_a_sequence_is_not_read(tmp_path: Path) -> None:
    text = _refused(tmp_path, [_PICTURE], [("boxes", (10, 4)), ("scores", (10, 4))], listed=True)
    assert "the output list is seq(tensor(float)), and Lookout reads tensors of numbers" in text


def test_texts_are_not_read(tmp_path: Path) -> None:
    text = _refused(tmp_path, [_PICTURE], {"words": np.array([["a", "b"]], object)})
    assert "the output words is tensor(string)" in text


def test_a_graph_without_outputs(tmp_path: Path) -> None:
    assert "other.onnx" in _refused(tmp_path, [_PICTURE], [])


def test_there_are_sixty_families() -> None:
    assert len(PICTURES) + len(OTHERS) >= 60
