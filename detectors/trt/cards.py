"""Cards by name, and engines for several of them: TensorRT RTX builds without a GPU, for cards that are elsewhere.

An architecture is written as CUDA's compiler does, such as "sm_86" for compute capability 8.6. An engine for several
has them joined by "+".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from detectors.port import DetectorError

CARDS = {
    "rtx20": "sm_75",
    "rtx30": "sm_86",
    "rtx40": "sm_89",
    "rtx50": "sm_120",
    "a100": "sm_80",
    "l4": "sm_89",
}
"""Architecture of each name that `lookout engine build --for` takes."""
_TURING = "sm_75"  # an engine for it and for others is slower on the others, as NVIDIA's documentation says
_FIRST_FP8 = (8, 9)


def architectures_of(names: Iterable[str]) -> tuple[str, ...]:
    """The architectures of some cards, ascending.

    Raises:
        DetectorError: a name is unknown, or one engine cannot be for all of them.
    """
    names = list(names)
    unknown = [name for name in names if name not in CARDS]
    if unknown or not names:
        raise DetectorError(f"no card is named {', '.join(unknown) or '(nothing)'}: give some of {', '.join(CARDS)}")
    found = sorted({CARDS[name] for name in names}, key=numbers)
    if _TURING in found and len(found) > 1:
        raise DetectorError(
            "an engine for the RTX 20 series is slower on all other cards: build two, one of them --for rtx20"
        )
    return tuple(found)


def check_precision(precision: str, architecture: str) -> None:
    """
    Args:
        architecture: of a recipe for TensorRT RTX.

    Raises:
        DetectorError: TensorRT RTX, or a card, cannot compute in it.
    """
    if precision == "int8":
        raise DetectorError(
            "TensorRT RTX has no convolutions in INT8: give the float file, of which it makes FP16, or take TensorRT "
            "(model.backend: trt)"
        )
    without = [each for each in split(architecture) if not has_fp8(each)]
    if precision == "fp8" and without:
        raise DetectorError(
            f"{in_words(joined(without))} has no FP8, cards have it from 8.9 on: give the float file, of which "
            "TensorRT RTX makes FP16"
        )


def joined(architectures: Sequence[str]) -> str:
    """Several architectures as a recipe has them."""
    return "+".join(architectures)


def split(architectures: str) -> list[str]:
    """The architectures of a recipe."""
    return architectures.split("+")


def in_words(architectures: str) -> str:
    """Such as "compute capability 8.6, 8.9 (rtx30, rtx40, l4)"."""
    found = split(architectures)
    names = [name for name, architecture in CARDS.items() if architecture in found]
    return f"compute capability {capabilities(architectures)}" + (f" ({', '.join(names)})" if names else "")


def capabilities(architectures: str) -> str:
    """Such as "8.6, 8.9"."""
    return ", ".join(map(capability, split(architectures)))


def capability(architecture: str) -> str:
    """Such as "8.6"."""
    return ".".join(map(str, numbers(architecture)))


def has_fp8(architecture: str) -> bool:
    """Whether a card multiplies in FP8."""
    return numbers(architecture) >= _FIRST_FP8


def numbers(architecture: str) -> tuple[int, int]:
    """Major and minor number of the compute capability."""
    digits = architecture.removeprefix("sm_")
    return int(digits[:-1]), int(digits[-1])
