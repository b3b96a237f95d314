"""Why a model is refused: its family, or its likely task, from names, types and shapes of its inputs and outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from detectors.heads.families import family_of
from detectors.heads.layout import Layout, ModelFacts, Shape, Task, shown

_TEXT = ("input_ids", "token", "attention_mask", "past_key", "decoder_", "position_ids", "text")
_SOUND = ("audio", "wave", "mel", "speech", "input_values", "input_features", "samples", "pcm")
_MEL_BINS = (40, 64, 80, 128)
_MIN_SAMPLES = 4000  # of a waveform
_FURTHER = (
    "a detector that is told the size of the picture, or the thresholds of its NMS: make them constants, or export it "
    "without; sizes of RT-DETR and D-FINE are an int64 input (batch, 2)"
)
_ROWS, _COLUMNS = 60, 100  # a detector has more rows than this and fewer columns


@dataclass(frozen=True)
class Input:
    """An input of a model.

    Attributes:
        kind: type of its numbers, such as "tensor(float)" or "float".
        shape: a side without a number is 0.
    """

    name: str
    kind: str
    shape: Shape


def likely_of_inputs(inputs: Sequence[Input]) -> str:
    """The likely kind of a model with such inputs, with a comma before it; empty if unknown."""
    task = _task_of_inputs(inputs)
    return f", which looks like {task}" if task else ""


def refusal_of(facts: ModelFacts, task: Task | None, layouts: Mapping[str, Layout]) -> str:
    """Why no head of some layouts is recognised.

    Args:
        task: as the file states it.
        layouts: that were tried, by name.
    """
    seen = ", ".join(f"{name} {shown(shape)}" for name, shape in facts.outputs)
    stated = f" and the task is {task}" if task else ""
    what = f"head not recognised: outputs are {seen} for an input of {facts.size[0]}x{facts.size[1]}{stated}"
    if known := family_of(facts):
        return f"{what}, which are those of {known}"
    supported = "; ".join(f"{name} {layout.looks}" for name, layout in layouts.items())
    return f"{what}{_likely_of_outputs(facts)}; supported are {supported} (n grid cells, c classes, q queries)"


def _likely_of_outputs(facts: ModelFacts) -> str:
    """The likely kind of a model for pictures with such outputs, with a comma before it; empty if unknown."""
    task = _task_of_outputs([shape for _, shape in facts.outputs], facts)
    return f", which looks like {task}" if task else ""


def _task_of_inputs(inputs: Sequence[Input]) -> str:  # noqa: PLR0911
    names = " ".join(one.name.lower() for one in inputs)
    is_text = any("string" in one.kind for one in inputs) or any(word in names for word in _TEXT)
    pictures = [one for one in inputs if len(one.shape) == 4]
    if not inputs:
        return "a constant"
    if pictures and ("scale_factor" in names or "im_shape" in names):
        return (
            "PP-YOLOE, PicoDet or another detector of PaddleDetection, which scales its boxes itself: export it with "
            "-o export.post_process=False, without scale_factor and im_shape"
        )
    if is_text:
        return "a model of pictures and text" if pictures else "a language model"
    if any(word in names for word in _SOUND) or any(_is_sound(one) for one in inputs):
        return "an audio model"
    if any(len(one.shape) == 5 for one in inputs):
        return "a model of video clips or volumes"
    if len(pictures) > 1:
        return "a model of several pictures, such as optical flow, stereo or a memory of earlier pictures"
    if pictures:
        return _task_of_picture(pictures[0]) or (_FURTHER if len(inputs) > 1 else "")
    if any(len(one.shape) == 3 and 3 in one.shape[1:] for one in inputs):
        return "a model of point clouds, or of pictures without a batch"
    return "a model of tables or of features" if all(len(one.shape) <= 3 for one in inputs) else ""


def _is_sound(one: Input) -> bool:
    """Whether an input has the shape of a waveform or of a spectrogram."""
    shape = one.shape
    if "float" not in one.kind:
        return False
    return (len(shape) == 2 and shape[1] >= _MIN_SAMPLES) or (len(shape) == 3 and shape[1] in _MEL_BINS)


def _task_of_picture(one: Input) -> str:
    channels = one.shape[1]
    if "int" in one.kind and channels == 3:
        return "a model with pictures of integers: export it with a float input"
    if channels == 3 and ("double" in one.kind or "bfloat16" in one.kind):
        return "a model with pictures of another precision: export it with a float input, in float32 or float16"
    if channels != 3 and one.shape[3] in (1, 3):
        return "a model with channels last (NHWC), as TensorFlow has them: export it with channels first"
    if channels == 1:
        return "a model of grey pictures, such as one that reads text, or of spectrograms"
    if channels != 3 and channels:
        return "a model of latent pictures, such as the decoder of a diffusion model, or of other channels than RGB"
    return ""


def _task_of_outputs(shapes: Sequence[Shape], facts: ModelFacts) -> str:  # noqa: PLR0911
    size = facts.size[::-1]
    maps = [shape for shape in shapes if len(shape) == 4]
    if any(size in (shape[2:], shape[1:3]) for shape in maps) or any(shape[1:] == size for shape in shapes):
        return "semantic segmentation or another picture"
    if any(shape[1] in (1, 3) and shape[2] > size[0] and shape[3] > size[1] for shape in maps):
        return "super resolution: feature maps or a picture larger than the input"
    if maps:
        return "feature maps or masks without their boxes"
    if any(len(shape) > 4 for shape in shapes):
        return "raw grids of anchors: export it with its decoding, or a model of video"
    if len(shapes) == 1 and len(shapes[0]) == 3:
        few, many = sorted(shapes[0][1:])
        if few <= _COLUMNS and many >= _ROWS:
            return "a detector of another layout, or of another input size"
        return "a sequence of vectors, such as characters of a text or tokens of a transformer"
    if len(shapes) > 1 and all(len(shape) == 2 for shape in shapes):
        return "several classifiers, embeddings or measures in one"
    return ""
