"""The recipe of an engine, and the manifest of a built one."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass
from typing import Any

import msgspec

from detectors.accuracy_record import AccuracyRecord
from detectors.trt import compat
from detectors.trt.cards import capabilities, capability, in_words, split

VERSION = 3
"""Version of `half.py`, `compat.py`, `builder.py` and `reading.py`; engines of another version are built again."""


@dataclass(frozen=True)
class Target:
    """Builder and cards of an engine; see `Recipe`."""

    builder: str
    gpu: str
    architecture: str


@dataclass(frozen=True)
class Recipe:
    """All inputs of a build; another recipe gives another engine.

    Attributes:
        onnx_sha256: of the model, see `detectors.model`. Preprocessing and decoding are no part of an engine, so the
            semantics of a model do not change its recipe.
        builder: such as "TensorRT 8.6.0", the full version.
        gpu: name; empty if the engine runs on any card of its architecture.
        architecture: such as "sm_90"; several joined by "+".
        input_size: width and height in pixels.
        further_sizes: each has an optimisation profile of its own, too.
        level: TensorRT's builder_optimization_level: 3 finds faster tactics, 1 builds faster.
        dynamic: batches from 1 to max_batch; otherwise max_batch only.
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
    further_sizes: tuple[tuple[int, int], ...] = ()

    @property
    def sizes(self) -> tuple[tuple[int, int], ...]:
        """Input sizes in order of their optimisation profiles."""
        return (self.input_size, *self.further_sizes)

    @property
    def portable(self) -> bool:
        """Whether the engine runs on other cards than the one it was built for."""
        return not self.gpu

    @property
    def card(self) -> str:
        """The card of the engine, or its kind, in words."""
        return self.gpu or in_words(self.architecture)

    @property
    def key(self) -> str:
        return hashlib.sha256(msgspec.json.encode(self._stated, order="deterministic")).hexdigest()[:16]

    @property
    def plain(self) -> dict[str, Any]:
        """The fields as a manifest stores them."""
        fields: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(self._stated))
        return fields

    @property
    def _stated(self) -> dict[str, Any]:
        """The fields, without further sizes if there are none: engines of one size keep their key."""
        fields = asdict(self)
        if not self.further_sizes:
            del fields["further_sizes"]
        return fields

    def unserved_by(self, other: dict[str, Any]) -> str:
        """Why a portable engine with a manifest's recipe does not serve this one; empty if it does."""
        if self.architecture not in split(architecture := str(other.get("architecture"))):
            return f"it is for {in_words(architecture)}, and not for {capability(self.architecture)}"
        return self.differs({**other, "architecture": self.architecture})

    def differs(self, other: dict[str, Any]) -> str:
        """The fields in which a manifest's recipe differs; empty if none."""
        return ", ".join(
            f"{name} {other.get(name)!r} is not {mine!r}"
            for name, mine in self.plain.items()
            if mine != other.get(name)
        )


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about a built engine; a JSON file beside it.

    Attributes:
        model: name of the ONNX file.
        recipe: a `Recipe`'s fields.
        precision_mode: how the precision was set; the key is `road`.
        seconds: build time.
        built_by: user id, machine, and Lookout's version.
        accuracy: the record of its precision, if measured; the key is `verdict`.
        plan_sha256, plan_bytes: of the plan.
    """

    model: str
    recipe: dict[str, Any]
    precision_mode: str = msgspec.field(name="road")
    seconds: float
    built_by: str = ""
    accuracy: AccuracyRecord | None = msgspec.field(default=None, name="verdict")
    plan_sha256: str = ""
    plan_bytes: int = 0

    @property
    def card(self) -> str:
        """The card of the engine, or its kind, in words; see `Recipe.card`."""
        return str(self.recipe["gpu"] or in_words(self.recipe["architecture"]))

    @property
    def short_card(self) -> str:
        """Likewise, for a column."""
        return str(self.recipe["gpu"] or f"capability {capabilities(self.recipe['architecture'])}")

    def sealed(self, plan: bytes) -> Manifest:
        """The manifest with a plan's hash and size."""
        return msgspec.structs.replace(self, plan_sha256=hashlib.sha256(plan).hexdigest(), plan_bytes=len(plan))

    @property
    def file(self) -> bytes:
        """The content of the manifest's file."""
        return msgspec.json.format(msgspec.json.encode(self), indent=2)
