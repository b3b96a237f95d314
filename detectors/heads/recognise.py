"""Recognises a model's head by names and shapes of its outputs and by its metadata, never by the file's name."""

from __future__ import annotations

from dataclasses import replace

from detectors.heads.classify import ClassifyHead, ClassifyLayout
from detectors.heads.layout import TASKS, Head, Layout, ModelFacts, Shape
from detectors.heads.likely import likely_of_outputs
from detectors.heads.queries import QUERY_LAYOUTS
from detectors.heads.rows import ROW_LAYOUTS
from detectors.letterbox import Fit
from detectors.port import DetectorError, Options

LAYOUTS: dict[str, Layout] = {layout.name: layout for layout in (*QUERY_LAYOUTS, *ROW_LAYOUTS, ClassifyLayout())}
_SIMILAR = {"segmentation": "segment", "detection": "detect", "classification": "classify", "keypoints": "pose"}


def recognise(facts: ModelFacts, override: str = "auto", fit: Fit | None = None) -> Head:
    """The head of a model.

    Args:
        override: the name of a layout, or "auto".
        fit: see `detectors.port.Options`.

    Raises:
        DetectorError: no head matches; the text names the outputs, the likely task and the supported layouts.
    """
    if override != "auto" and override not in LAYOUTS:
        raise DetectorError(f"unknown head {override!r}: supported are auto, {', '.join(LAYOUTS)}")
    stated = facts.metadata.get("task")
    stated = _SIMILAR.get(stated, stated) if stated else None
    if stated is not None and stated not in TASKS:
        raise DetectorError(f"the model's task is {stated!r}; Lookout runs models that {', '.join(TASKS)}")
    for name, shape in facts.outputs:
        if 0 in shape:
            raise DetectorError(f"the model's output {name} {_text(shape)} is empty")
    layouts = LAYOUTS if override == "auto" else {override: LAYOUTS[override]}
    for layout in layouts.values():
        head = layout.match(facts, stated)
        if head is None:
            continue
        _check_batch(facts)
        if head.task == "classify" and stated is None and override == "auto":
            raise DetectorError(
                f"{facts.outputs[0][0]} of {head.classes} values is that of a classifier, or an embedding: set "
                "model.head: classify if they are classes"
            )
        if fit is not None and isinstance(head, ClassifyHead):
            return replace(head, spec=replace(head.spec, fit=fit, crop=1.0))
        return head
    supported = "; ".join(f"{name} {layout.looks}" for name, layout in layouts.items())
    seen = ", ".join(f"{name} {_text(shape)}" for name, shape in facts.outputs)
    task = f" and the task is {stated}" if stated else ""
    raise DetectorError(
        f"head not recognised: outputs are {seen} for an input of {facts.size[0]}x{facts.size[1]}{task}"
        f"{likely_of_outputs(facts)}; supported are {supported} (n grid cells, c classes, q queries)"
    )


def recognise_at(facts: ModelFacts, options: Options, own: Head | None) -> Head:
    """The head of a model at one of several input sizes.

    Args:
        own: the head at the model's own size; None at that size.

    Raises:
        DetectorError: as `recognise`; or it is another head than at the model's own size.
    """
    head = recognise(facts, options.head, options.fit)
    if own is not None and (head.name, head.classes) != (own.name, own.classes):
        raise DetectorError(
            f"at an input of {facts.size[0]}x{facts.size[1]} the model's outputs are those of {head.name}, and of "
            f"{own.name} at its own size: remove that input_size"
        )
    return head


def _check_batch(facts: ModelFacts) -> None:
    """Check that each output has a row for each picture.

    Raises:
        DetectorError: one has not.
    """
    for name, shape in facts.outputs:
        if facts.batch is not None and shape[:1] != (facts.batch,):
            raise DetectorError(
                f"the model's output {name} {_text(shape)} has no row for each of {facts.batch} pictures: export it "
                "with results for each picture of a batch"
            )


def _text(shape: Shape) -> str:
    return "x".join(map(str, shape)) or "of a single number"
