"""Layers of an engine, with the time of each, as `lookout engine profile` shows them."""

from __future__ import annotations

import msgspec


class Layer(msgspec.Struct, frozen=True, kw_only=True):
    """Attributes:
    parts: names of the graph's layers that were fused.
    precision: of the inputs; None if the engine was built without details.
    output: precision of the output.
    unfused: the layer is a Q/DQ node that was not fused.
    milliseconds: median of one batch; None if not measured.
    """

    name: str
    kind: str
    parts: list[str]
    precision: str | None
    output: str | None
    unfused: bool
    milliseconds: float | None = None

    @property
    def label(self) -> str:
        """The first of the fused layers."""
        return self.parts[0] if self.parts else self.name


class LayerTimes(msgspec.Struct, frozen=True, kw_only=True):
    """Times of an engine's layers, measured on zeros.

    Attributes:
        key: of the engine.
        model: name of the ONNX file.
        builder: name and version of the software that built it.
        batch: number of pictures in a run; all are zeros.
        layers: in the engine's order.
    """

    key: str
    model: str
    precision: str
    gpu: str
    builder: str
    batch: int
    runs: int
    layers: list[Layer]

    @property
    def milliseconds(self) -> float:
        """Of all layers, for one batch."""
        return sum(layer.milliseconds or 0.0 for layer in self.layers)

    @property
    def slowest(self) -> list[Layer]:
        """The layers, the slowest first."""
        return sorted(self.layers, key=lambda layer: -(layer.milliseconds or 0.0))

    def share(self, layer: Layer) -> float:
        """The layer's part of the whole time, 0 to 1; 0 if nothing was timed."""
        return (layer.milliseconds or 0.0) / self.milliseconds if self.milliseconds else 0.0
