"""What an engine is made from, and what is known of one that was made."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass
from typing import Any

import msgspec

from detectors.accuracy_record import AccuracyRecord
from detectors.trt import compat

VERSION = 2
"""Of what Lookout itself makes of a model (`half.py`, `compat.py`, `builder.py`): engines of another are built anew."""


@dataclass(frozen=True)
class Recipe:
    """What an engine is made from; another recipe is another engine.

    Attributes:
        onnx_sha256: of the whole file.
        builder: such as "TensorRT 8.6.0", the full version.
        gpu: name.
        architecture: such as "sm_90".
        input_size: width and height, pixels.
        level: TensorRT's builder_optimization_level: 3 finds faster tactics, 1 builds faster.
        dynamic: batches from 1 to max_batch; otherwise the graph has one size, max_batch.
        lookout: `VERSION`.
    """

    onnx_sha256: str
    builder: str
    gpu: str
    architecture: str
    precision: compat.Precision
    max_batch: int
    input_size: tuple[int, int]
    level: int
    dynamic: bool = True
    lookout: int = VERSION

    @property
    def key(self) -> str:
        return hashlib.sha256(msgspec.json.encode(asdict(self), order="deterministic")).hexdigest()[:16]

    @property
    def plain(self) -> dict[str, Any]:
        """As a manifest holds it."""
        fields: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(asdict(self)))
        return fields

    def differs(self, other: dict[str, Any]) -> str:
        """In what another recipe, as a manifest has it, is not this one; empty if in nothing."""
        return ", ".join(
            f"{name} {other.get(name)!r} is not {mine!r}"
            for name, mine in self.plain.items()
            if mine != other.get(name)
        )


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The facts of a built engine; a JSON file beside it.

    Attributes:
        model: name of the ONNX file.
        recipe: a `Recipe`'s fields.
        road: how its precision was reached.
        seconds: that it took to build.
        built_by: user id, machine, and Lookout's version.
        accuracy: the record of its precision, if measured; the key is `verdict`.
        plan_sha256, plan_bytes: of the plan.
    """

    model: str
    recipe: dict[str, Any]
    road: str
    seconds: float
    built_by: str = ""
    accuracy: AccuracyRecord | None = msgspec.field(default=None, name="verdict")
    plan_sha256: str = ""
    plan_bytes: int = 0

    def sealed(self, plan: bytes) -> Manifest:
        """The same, for a plan."""
        return msgspec.structs.replace(self, plan_sha256=hashlib.sha256(plan).hexdigest(), plan_bytes=len(plan))

    @property
    def file(self) -> bytes:
        """As it is kept beside the plan."""
        return msgspec.json.format(msgspec.json.encode(self), indent=2)
