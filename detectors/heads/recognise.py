"""Recognises a model's head by names and shapes of its outputs and by its metadata, never by the file's name."""

from __future__ import annotations

import re
from dataclasses import replace

from detectors.heads.layout import TASKS, Ambiguity, Head, ModelFacts, Task, shown
from detectors.heads.shapes import LAYOUTS, is_mistaken
from detectors.letterbox import Fit
from detectors.metadata import stated_semantics
from detectors.port import DetectorError, Options
from detectors.semantics import NOTHING_KNOWN, Semantics

# Facts that a trial run may show.
_SHOWN = frozenset(("box_units", "first_class"))
_SIMILAR = {
    "detection": "detect", "object_detection": "detect", "classification": "classify",
    "image_classification": "classify", "segmentation": "segment", "instance_segmentation": "segment",
    "keypoints": "pose", "keypoint_detection": "pose", "pose_estimation": "pose", "oriented_detection": "obb",
    "rotated_detection": "obb",
}  # fmt: skip


def recognise(
    facts: ModelFacts, override: str = "auto", fit: Fit | None = None, given: Semantics = NOTHING_KNOWN
) -> Head:
    """The head of a model. Facts that only a trial run shows are left open in its `ambiguity`.

    Args:
        override: the name of a layout, or "auto".
        fit, given: see `detectors.port.Options`, `fit` and `semantics`.

    Raises:
        DetectorError: no head matches; the text names the outputs, the likely family and the supported layouts. Or
            the head leaves open what the file does not state; the text names the keys that decide.
    """
    if override != "auto" and override not in LAYOUTS:
        raise DetectorError(f"unknown head {override!r}: supported are auto, {', '.join(LAYOUTS)}")
    task = _task(facts)
    layouts = LAYOUTS if override == "auto" else {override: LAYOUTS[override]}
    is_other = any(0 in shape for _, shape in facts.outputs) or (override == "auto" and is_mistaken(facts))
    for layout in () if is_other else layouts.values():
        if (head := layout.match(facts, task)) is not None:
            return _settled(head, facts, task, override, fit, given)
    from detectors.heads.refusals import refusal_of

    raise DetectorError(refusal_of(facts, task, layouts))


def recognise_at(facts: ModelFacts, options: Options, own: Head | None) -> Head:
    """The head of a model at one of several input sizes.

    Args:
        own: the head at the model's own size; None at that size.

    Raises:
        DetectorError: as `recognise`; or it is another head than at the model's own size.
    """
    head = recognise(facts, options.head, options.fit, options.semantics)
    if own is not None and (head.name, head.classes) != (own.name, own.classes):
        raise DetectorError(
            f"at an input of {facts.size[0]}x{facts.size[1]} the model's outputs are those of {head.name}, and of "
            f"{own.name} at its own size: remove that input_size"
        )
    return head


def _task(facts: ModelFacts) -> Task | None:
    """The task that the file states.

    Raises:
        DetectorError: Lookout has no such task.
    """
    stated = facts.metadata.get("task")
    word = re.sub(r"[\s-]+", "_", stated.strip().lower()) if stated else ""
    task = next((task for task in TASKS if task == _SIMILAR.get(word, word)), None)
    if stated is not None and task is None:
        raise DetectorError(f"the model's task is {stated!r}; Lookout runs models that {', '.join(TASKS)}")
    return task


def _settled(
    head: Head, facts: ModelFacts, task: Task | None, override: str, fit: Fit | None, given: Semantics
) -> Head:
    """A matching head, with the facts that keys or the file state.

    Raises:
        DetectorError: something is left open that no trial run shows.
    """
    _check_batch(facts)
    if head.task == "classify" and task is None and override == "auto":
        raise DetectorError(
            f"{facts.outputs[0][0]} of {head.classes} values is that of a classifier, or an embedding: set "
            "model.head: classify if they are classes"
        )
    if fit is not None and head.task == "classify":
        head = replace(head, spec=replace(head.spec, fit=fit, crop=1.0))  # type: ignore[type-var]
    stated = given | stated_semantics(facts.metadata, given.known)
    head = head.interpreted(stated)
    ambiguity = _left_open(head, stated, override)
    if ambiguity and not ambiguity.unknown <= _SHOWN:
        raise DetectorError(ambiguity.remedy)
    return replace(head, ambiguity=ambiguity)  # type: ignore[type-var]


def _left_open(head: Head, stated: Semantics, override: str) -> Ambiguity | None:
    """The facts that are left open. The name of a head decides all of it, but for a classifier, which has no family."""
    if head.ambiguity is None or (override != "auto" and head.task != "classify"):
        return None
    return head.ambiguity.without(stated.known)


def _check_batch(facts: ModelFacts) -> None:
    """Check that each output has a row for each picture.

    Raises:
        DetectorError: one has not.
    """
    for name, shape in facts.outputs:
        if facts.batch is not None and shape[:1] != (facts.batch,):
            raise DetectorError(
                f"the model's output {name} {shown(shape)} has no row for each of {facts.batch} pictures: export it "
                "with results for each picture of a batch"
            )
