"""The last steps of opening a model, the same on every backend: a trial run, labels, and the facts about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from detectors.heads.layout import Head
from detectors.labels import Labels, resolve
from detectors.letterbox import InputSpec
from detectors.metadata import stated_semantics
from detectors.port import DetectorError, Options
from detectors.semantics import Fact, Origin, Semantics
from detectors.trial import Run, Trial


@dataclass(frozen=True)
class Opened:
    """A model after its trial.

    Attributes:
        heads: at each input size; the model's own first.
        labels: one per class.
        notes, facts: see `detectors.port.ModelInfo`.
    """

    heads: tuple[Head, ...]
    labels: tuple[str, ...]
    notes: tuple[str, ...]
    facts: tuple[Fact, ...]


def open_heads(
    heads: Sequence[Head], run: Run, options: Options, metadata: Mapping[str, str], precision: str, batch: int
) -> Opened:
    """Try a model out, and settle its heads.

    Args:
        heads: as outputs and metadata show them, at each input size; the model's own first.
        run: runs the model.
        metadata: the ONNX file's own key-value pairs.
        precision: of the arithmetic.
        batch: the largest number of pictures in a batch.

    Raises:
        DetectorError: see `detectors.trial` and `detectors.labels`.
    """
    file = stated_semantics(metadata, options.semantics.known)

    def labels_for(classes: int | None) -> Labels:
        return resolve(options.labels, metadata, classes)

    trial = Trial(run, precision, options.semantics | file, labels_for, batch)
    own, labels = trial.settle(heads[0])
    others = [_settled_like(own, head, trial) for head in heads[1:]]
    return Opened((own, *others), labels.names, labels.notes, _facts(own, heads[0], labels, options.semantics, file))


def _settled_like(own: Head, head: Head, trial: Trial) -> Head:
    """The head at a further input size, settled as the one at the model's own size is."""
    if not own.is_raw:
        known = Semantics(box_units=own.semantics.box_units, first_class=own.semantics.first_class)
        head = replace(head.interpreted(known), ambiguity=None)  # type: ignore[type-var]
    settled, _ = trial.settle(head)
    if settled.name != own.name:
        size = f"{head.spec.width}x{head.spec.height}"
        raise DetectorError(f"at {size} the model's outputs are those of {settled.name}: remove that input_size")
    return settled


def _facts(head: Head, before: Head, labels: Labels, keys: Semantics, file: Semantics) -> tuple[Fact, ...]:
    """The facts about a model.

    Args:
        before: the head before the trial.
    """

    def origin(name: str) -> Origin:
        if getattr(keys, name) is not None:
            return "key"
        if getattr(file, name) is not None:
            return "file"
        if name == "first_class" and labels.are_numbered:
            return labels.origin
        is_open = before.ambiguity is not None and name in before.ambiguity.unknown
        return "trial" if is_open or getattr(before.semantics, name) != getattr(head.semantics, name) else "family"

    spec, semantics = head.spec, head.semantics
    rows = [
        Fact("head", head.name, "family" if head.name == before.name else "trial"),
        Fact("mean", _row(spec.mean), origin("mean")),
        Fact("std", _row(spec.std), origin("std")),
        Fact("channels", "RGB" if spec.rgb else "BGR", origin("rgb")),
        Fact("fit", _fit(spec), "family"),
    ]
    for name in ("activation", "box_units", "first_class"):
        if (value := getattr(semantics, name)) is not None:
            rows.append(Fact(name, str(value), origin(name)))
    return (*rows, Fact("labels", str(len(labels.names)), labels.origin))


def _row(colour: Sequence[float]) -> str:
    return " ".join(f"{part:.4g}" for part in colour)


def _fit(spec: InputSpec) -> str:
    return spec.fit if spec.crop == 1 else f"{spec.fit}, {spec.crop:.3g} of the shorter side"
