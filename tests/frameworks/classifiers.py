"""Classifiers of torchvision: narrow ones, which give logits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torchvision
from torch import nn
from torchvision.models import ResNet18_Weights, mobilenet_v3_small
from torchvision.models.resnet import BasicBlock, ResNet

from tests.frameworks.expected import Expected
from tests.frameworks.inputs import Placing
from tests.frameworks.onnx_file import finish
from tests.frameworks.runtime import Session, Thresholds, pictures
from tests.frameworks.table import RANKED, TOP, Gathered, best_near, facts_of
from tests.frameworks.weights import Spread, batch, settle

_CLASSES = 10
# The library's own preset, with its sizes, 256 and 224, halved.
_PRESET = ResNet18_Weights.DEFAULT.transforms()
_SIDE, _SHORTER = _PRESET.crop_size[0] // 2, _PRESET.resize_size[0] // 2
_PLACING = Placing("crop", _SIDE, _SIDE, _SHORTER, tuple(_PRESET.mean), tuple(_PRESET.std))


class _Narrow(ResNet):  # type: ignore[misc]
    """ResNet with a sixteenth of the channels after its first layer."""

    def _make_layer(self, block: Any, planes: int, blocks: int, stride: int = 1, dilate: bool = False) -> Any:
        return super()._make_layer(block, planes // 16, blocks, stride, dilate)


def _resnet() -> Any:
    network = _Narrow(BasicBlock, [1, 1, 1, 1])
    network.fc = nn.Linear(512 // 16, _CLASSES)
    return network


def _mobilenet() -> Any:
    return mobilenet_v3_small(width_mult=0.1, num_classes=_CLASSES)


@dataclass(frozen=True)
class Classifier:
    """One export.

    Attributes:
        network: makes the network.
        last: its last layer.
    """

    network: Callable[[], Any]
    last: Callable[[Any], Any]

    def export(self, path: Path) -> None:
        """Write the file."""
        torch.manual_seed(7)
        network = self.network().eval()
        pixels = batch(_PLACING)
        settle(network, pixels)
        last = self.last(network)
        Spread(network, [last], pixels).aim(last, -3.0, 3.0)
        names = {"input_names": ["input"], "output_names": ["output"]}
        axes = {"input": {0: "batch"}, "output": {0: "batch"}}
        torch.onnx.export(network, (pixels[:2],), str(path), **names, dynamic_axes=axes, opset_version=17, dynamo=False)
        finish(path)

    def expected(self, path: Path) -> Expected:
        """The results for all pictures."""
        session, gathered = Session(path), Gathered()
        for _, planes in pictures(_PLACING):
            (logits,) = session.run(planes)
            scores = torch.from_numpy(logits).softmax(1)
            found = scores[0].topk(TOP)
            rows = torch.stack((found.values, found.indices.float()), 1).numpy()
            gathered.add(np.asarray(rows, np.float32), best_near(scores.numpy()))
        version = torchvision.__version__.partition("+")[0]
        facts = facts_of(f"torchvision {version}", RANKED, _PLACING, Thresholds())
        return gathered.expected(facts)


MODELS = {
    "resnet": Classifier(_resnet, lambda network: network.fc),
    "mobilenet": Classifier(_mobilenet, lambda network: network.classifier[-1]),
}
