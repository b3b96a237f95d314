"""Transformers that detect: tiny models of the transformers library, and what it finds with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxslim
import torch
import transformers
from torch import nn

from tests.frameworks.expected import Expected
from tests.frameworks.inputs import Floats, Placing
from tests.frameworks.onnx_file import finish
from tests.frameworks.runtime import Session, Thresholds, pictures
from tests.frameworks.table import BOX, Gathered, facts_of
from tests.frameworks.weights import Spread, batch, settle

_STAGES = ["stage2", "stage3", "stage4"]
_QUERIES = {"num_queries": 50, "num_labels": 5}
_LAYERS = {"layers": 1, "ffn_dim": 32, "attention_heads": 2}
_NARROW = {
    "encoder_hidden_dim": 16,
    "encoder_in_channels": [8, 8, 16],
    "encoder_ffn_dim": 16,
    "encoder_attention_heads": 2,
    "hidden_expansion": 0.25,
    "d_model": 16,
    "decoder_in_channels": [16, 16, 16],
    "decoder_ffn_dim": 16,
    "decoder_layers": 2,
    "decoder_attention_heads": 2,
    "freeze_backbone_batch_norms": False,
}


def _rtdetr() -> Any:
    config = transformers.RTDetrConfig(backbone_config=_resnet(), **_NARROW, **_QUERIES)
    return transformers.RTDetrForObjectDetection(config)


def _rtdetrv2() -> Any:
    config = transformers.RTDetrV2Config(backbone_config=_resnet(), **_NARROW, **_QUERIES)
    return transformers.RTDetrV2ForObjectDetection(config)


def _resnet() -> Any:
    sizes = {"embedding_size": 8, "hidden_sizes": [8, 8, 8, 16], "depths": [1, 1, 1, 1]}
    return transformers.RTDetrResNetConfig(**sizes, layer_type="basic", out_features=_STAGES)


def _dfine() -> Any:
    backbone = transformers.HGNetV2Config(
        stem_channels=[3, 8, 8],
        hidden_sizes=[8, 8, 8, 16],
        depths=[1, 1, 1, 1],
        out_features=_STAGES,
        stage_in_channels=[8, 8, 8, 8],
        stage_mid_channels=[8, 8, 8, 8],
        stage_out_channels=[8, 8, 8, 16],
        stage_num_blocks=[1, 1, 1, 1],
        stage_numb_of_layers=[1, 1, 1, 1],
    )
    bins = {"max_num_bins": 8, "top_prob_values": 2, "lqe_hidden_dim": 8, "decoder_n_points": [2, 2, 2]}
    config = transformers.DFineConfig(backbone_config=backbone, **_NARROW, **_QUERIES, **bins)
    return transformers.DFineForObjectDetection(config)


def _rfdetr() -> Any:
    sizes = {"hidden_size": 16, "num_hidden_layers": 4, "num_attention_heads": 2, "mlp_ratio": 2}
    patches = {"image_size": 128, "patch_size": 8, "num_windows": 2, "out_features": ["stage2", "stage4"]}
    config = transformers.RfDetrConfig(
        backbone_config=transformers.RfDetrDinov2Config(**sizes, **patches),
        d_model=16,
        decoder_ffn_dim=16,
        decoder_layers=2,
        decoder_self_attention_heads=2,
        decoder_cross_attention_heads=2,
        decoder_n_points=2,
        group_detr=2,
        c2f_num_blocks=1,
        num_queries=40,
        num_labels=6,
    )
    return transformers.RfDetrForObjectDetection(config)


def _detr() -> Any:
    return transformers.DetrForObjectDetection(transformers.DetrConfig(**_plain(30)))


def _conditional() -> Any:
    return transformers.ConditionalDetrForObjectDetection(transformers.ConditionalDetrConfig(**_plain(100)))


def _plain(queries: int) -> dict[str, Any]:
    """The parts of a DETR without samples from maps of features.

    Args:
        queries: their number; Conditional DETR's processor keeps the 100 strongest boxes.
    """
    sizes = {"embedding_size": 8, "hidden_sizes": [8, 8, 8, 16], "depths": [1, 1, 1, 1]}
    backbone = transformers.ResNetConfig(**sizes, layer_type="basic", out_features=["stage4"])
    sides = ("encoder", "decoder")
    narrow = {f"{side}_{name}": value for side in sides for name, value in _LAYERS.items()}
    return {"backbone_config": backbone, "d_model": 32, "num_queries": queries, "num_labels": 5, **narrow}


class _Pair(nn.Module):  # type: ignore[misc]
    """Logits and boxes."""

    def __init__(self, network: Any, boxes_first: bool) -> None:
        super().__init__()
        self._network, self._boxes_first = network, boxes_first

    def forward(self, pixels: Any) -> Any:
        found = self._network(pixel_values=pixels)
        pair = found.logits, found.pred_boxes
        return pair[::-1] if self._boxes_first else pair


class _Triple(nn.Module):  # type: ignore[misc]
    """Labels, boxes and scores, the strongest first: what the repositories of RT-DETR and D-FINE export."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        self._network = network

    def forward(self, pixels: Any, sizes: Any) -> Any:
        found = self._network(pixel_values=pixels)
        classes, queries = found.logits.shape[2], found.logits.shape[1]
        scores, index = torch.topk(found.logits.sigmoid().flatten(1), queries, dim=-1)
        query = index // classes
        centres, half = found.pred_boxes[..., :2], found.pred_boxes[..., 2:] / 2
        boxes = torch.cat((centres - half, centres + half), dim=-1) * sizes.repeat(1, 2).unsqueeze(1)
        return index - query * classes, boxes.gather(1, query.unsqueeze(-1).repeat(1, 1, 4)), scores


@dataclass(frozen=True)
class Detr:
    """One export.

    Attributes:
        network: makes the network.
        inputs, outputs: their names, with the names of the dimensions that may vary.
        wrapped: the network with these inputs and outputs.
        processor: the framework's own, which knows the colours and reads the outputs.
        head: that a user must name, because the file shows no family; "auto" if it does.
    """

    network: Callable[[], Any]
    inputs: Mapping[str, Mapping[int, str]]
    outputs: Mapping[str, Mapping[int, str]]
    wrapped: Callable[[Any], Any] = lambda network: _Pair(network, boxes_first=False)
    processor: Any = transformers.RTDetrImageProcessor
    head: str = "auto"

    @property
    def placing(self) -> Placing:
        processor = self.processor()
        if not processor.do_normalize:
            return Placing("stretch")
        return Placing("stretch", mean=tuple(processor.image_mean), std=tuple(processor.image_std))

    def export(self, path: Path) -> None:
        """Write the file."""
        torch.manual_seed(7)
        network = self.network().eval()
        pixels = batch(self.placing)
        settle(network, pixels)
        _aim(network, pixels)
        sizes = torch.tensor([[self.placing.width, self.placing.height]] * 2)
        given = (pixels[:2], sizes)[: len(self.inputs)]
        for part in network.modules():
            if hasattr(part, "interpolate_pos_encoding"):  # by a filter that ONNX lacks, and here the sizes are equal
                part.interpolate_pos_encoding = lambda *_sizes, part=part: part.position_embeddings
        torch.onnx.export(
            self.wrapped(network),
            given,
            str(path),
            input_names=list(self.inputs),
            output_names=list(self.outputs),
            dynamic_axes={**self.inputs, **self.outputs},
            opset_version=17,
            dynamo=False,
        )
        onnx.save(onnxslim.slim(onnx.load(str(path))), str(path))
        finish(path)

    def expected(self, path: Path) -> Expected:
        """The results for all pictures."""
        session, thresholds, gathered = Session(path), Thresholds(), Gathered()
        named = list(self.outputs)
        for pixels, planes in pictures(self.placing):
            size = np.array([[pixels.shape[1], pixels.shape[0]]], np.int64)
            outputs = dict(zip(named, session.run(*(planes, size)[: len(self.inputs)])))
            rows, *others = (self._rows(outputs, pixels, near.confidence) for near in (thresholds, *thresholds.near()))
            gathered.add(rows, others)
        facts = facts_of(f"transformers {transformers.__version__}", BOX, self.placing, thresholds, self.head)
        return gathered.expected(facts)

    def _rows(self, outputs: dict[str, npt.NDArray[Any]], pixels: npt.NDArray[np.uint8], confidence: float) -> Floats:
        if "scores" in outputs:
            (labels,), (boxes,), (scores,) = (outputs[name] for name in ("labels", "boxes", "scores"))
        else:
            logits, places = ("labels", "dets") if "dets" in outputs else ("logits", "pred_boxes")
            raw = SimpleNamespace(
                logits=torch.from_numpy(outputs[logits]), pred_boxes=torch.from_numpy(outputs[places])
            )
            (found,) = self.processor().post_process_object_detection(raw, confidence, [pixels.shape[:2]])
            labels, boxes, scores = (found[name].numpy() for name in ("labels", "boxes", "scores"))
        rows = np.concatenate((boxes, scores[:, None], labels[:, None]), axis=1, dtype=np.float32)
        return np.asarray(rows[scores > confidence])


def _aim(network: Any, pixels: Any) -> None:
    """Scale the last layers, those of the encoder first, because the decoder starts from them."""
    inner = network.model
    if hasattr(network, "class_labels_classifier"):
        _sharpen(inner)
        first, places, scores = inner.input_projection, [network.bbox_predictor], network.class_labels_classifier
    elif hasattr(inner, "enc_out_class_embed"):
        first, places = inner.enc_out_class_embed[0], [inner.enc_out_bbox_embed[0], network.bbox_embed]
        scores = network.class_embed
    else:
        first, places = inner.enc_score_head, [inner.enc_bbox_head, *inner.decoder.bbox_embed]
        if hasattr(inner.decoder, "pre_bbox_head"):
            places.insert(1, inner.decoder.pre_bbox_head)
        scores = inner.decoder.class_embed[-1]
    for part in places:
        nn.init.normal_(part.layers[-1].weight, 0.0, 0.1)
    Spread(network, [first], pixels).aim(first, -2.0, 2.0)
    wide = torch.tensor([-0.6, -0.6, 0.0, 0.0]), torch.tensor([0.6, 0.6, 2.0, 2.0])
    for number, part in enumerate(places):
        layer = part.layers[-1]
        Spread(network, [layer], pixels).aim(layer, *(wide if number == 0 else (-0.6, 0.8)))
    Spread(network, [scores], pixels).aim_scores(scores, 0.028)


def _sharpen(inner: Any) -> None:
    """Let each query attend to a place of its own: as they are drawn, all of them find the same."""
    nn.init.normal_(inner.query_position_embeddings.weight, 0.0, 3.0)
    for name, part in inner.decoder.named_modules():
        if isinstance(part, nn.Linear) and "_attn" in name:
            with torch.no_grad():
                part.weight *= 4


_BATCH = {0: "batch_size"}
_OPTIMUM = {"pixel_values": {0: "batch_size", 2: "height", 3: "width"}}
_RAW = {"logits": {0: "batch_size", 1: "num_queries"}, "pred_boxes": {0: "batch_size", 1: "num_queries"}}
_SIZED = {"images": {0: "N"}, "orig_target_sizes": {0: "N"}}
_FOUND: dict[str, dict[int, str]] = {"labels": {}, "boxes": {}, "scores": {}}
_PAIR = {"pixel_values": _BATCH}, {"logits": _BATCH, "pred_boxes": _BATCH}
_RFDETR = transformers.RfDetrImageProcessor
MODELS = {
    "rtdetr": Detr(_rtdetr, _OPTIMUM, _RAW),
    "rtdetrv2": Detr(_rtdetrv2, *_PAIR),
    "dfine": Detr(_dfine, _OPTIMUM, _RAW),
    "rfdetr": Detr(_rfdetr, *_PAIR, processor=_RFDETR, head="rfdetr"),
    "rfdetr-roboflow": Detr(
        _rfdetr,
        {"input": _BATCH},
        {"dets": _BATCH, "labels": _BATCH},
        lambda network: _Pair(network, boxes_first=True),
        _RFDETR,
    ),
    "rtdetr-triple": Detr(_rtdetr, _SIZED, _FOUND, _Triple),
    "detr": Detr(_detr, *_PAIR, processor=transformers.DetrImageProcessor, head="detr"),
    "conditional-detr": Detr(_conditional, *_PAIR, processor=transformers.ConditionalDetrImageProcessor, head="rfdetr"),
}
