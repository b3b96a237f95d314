"""Cards that engines are built for without a GPU, and what they cannot compute in."""

from __future__ import annotations

import pytest

from detectors.port import DetectorError
from detectors.trt.cards import architectures_of, check_precision, in_words, joined


def test_cards_have_architectures() -> None:
    """Ascending by number, each once."""
    found = architectures_of(["rtx50", "l4", "rtx30", "rtx40"])
    assert found == ("sm_86", "sm_89", "sm_120")
    assert in_words(joined(found)) == "compute capability 8.6, 8.9, 12.0 (rtx30, rtx40, rtx50, l4)"


@pytest.mark.parametrize(
    ("cards", "words"),
    [
        (["h100", "rtx30"], "no card is named h100: give some of rtx20, rtx30, "),
        ([], "no card is named"),
        (["rtx20", "rtx40"], "an engine for the RTX 20 series is slower on all other cards: build two"),
    ],
)
def test_cards_that_have_no_engine_in_common(cards: list[str], words: str) -> None:
    with pytest.raises(DetectorError, match=words) as caught:
        architectures_of(cards)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("precision", "architecture", "words"),
    [
        ("int8", "sm_89", "TensorRT RTX has no convolutions in INT8: give the float file"),
        ("fp8", "sm_86+sm_89", r"compute capability 8\.6 \(rtx30\) has no FP8, cards have it from 8\.9 on"),
    ],
)
def test_a_precision_that_a_card_lacks(precision: str, architecture: str, words: str) -> None:
    with pytest.raises(DetectorError, match=words):
        check_precision(precision, architecture)


def test_fp8_where_cards_have_it() -> None:
    check_precision("fp8", "sm_89+sm_120")
