"""Random weights under which a network reacts to the picture, and its outputs spread as those of a trained one.

Weights as they are first drawn give scores that all look alike. So the statistics of batch normalisation are measured
on pictures, and the last layers are scaled to wanted spreads.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import nn

from tests.frameworks.inputs import Placing
from tests.support.pictures import picture

_FIRST = 10_000  # the pictures that set weights are not those of the tests
CONFIDENCE = 0.25


def batch(placing: Placing, count: int = 48) -> Any:
    """Pictures as model input, (count, 3, height, width)."""
    return torch.from_numpy(np.stack([placing.planes(picture(_FIRST + number)) for number in range(count)]))


def settle(model: Any, pictures: Any) -> None:
    """Draw the scales of batch normalisation, and measure its statistics on pictures."""
    norms = [module for module in model.modules() if isinstance(module, nn.BatchNorm2d)]
    for norm in norms:
        nn.init.uniform_(norm.weight, 0.6, 1.6)
        nn.init.normal_(norm.bias, 0.0, 0.3)
        norm.reset_running_stats()
        norm.momentum = None  # a plain mean
    model.eval()
    for norm in norms:
        norm.train()
    with torch.no_grad():
        model(pictures)
    model.eval()
    for norm in norms:
        norm.momentum = 0.03


class Spread:
    """The outputs of some last layers, and how to scale the layers to wanted ones.

    Attributes:
        channels: of each layer, its outputs as (samples, channels).
    """

    def __init__(self, model: Any, layers: Iterable[Any], pictures: Any) -> None:
        self.channels: dict[Any, Any] = {}
        hooks = [layer.register_forward_hook(self._keep) for layer in layers]
        with torch.no_grad():
            model(pictures)
        for hook in hooks:
            hook.remove()

    def _keep(self, layer: Any, _given: Any, output: Any) -> None:
        rows = output.movedim(1, -1) if isinstance(layer, nn.Conv2d) else output
        self.channels[layer] = rows.detach().reshape(-1, rows.shape[-1])

    def aim(self, layer: Any, low: Any, high: Any, rare: float = 0.01) -> None:
        """Scale and shift a layer, so that this share of a channel's values lies below `low`, and above `high`."""
        rows, low, high = self.channels[layer], torch.as_tensor(low), torch.as_tensor(high)
        lowest, highest = torch.quantile(rows, rare, dim=0), torch.quantile(rows, 1 - rare, dim=0)
        scale = (high - low) / (highest - lowest).clamp(min=1e-6)
        self._change(layer, scale, low - lowest * scale)

    def aim_scores(self, layer: Any, share: float) -> None:
        """Scale and shift a layer of logits: in this share of all places a class is above the confidence, and in a
        tenth of the share above 0.75."""
        rows = self.channels[layer]
        reached, exceeded = torch.quantile(rows, 1 - share, dim=0), torch.quantile(rows, 1 - share / 10, dim=0)
        wanted, high = torch.logit(torch.tensor([CONFIDENCE, 0.75]))
        scale = (high - wanted) / (exceeded - reached).clamp(min=1e-6)
        self._change(layer, scale, wanted - reached * scale)

    def _change(self, layer: Any, scale: Any, shift: Any) -> None:
        with torch.no_grad():
            layer.weight *= scale.reshape(-1, *[1] * (layer.weight.dim() - 1))
            layer.bias.copy_(layer.bias * scale + shift)
        self.channels[layer] = self.channels[layer] * scale + shift
