"""The plan of GPU memory: order of reductions, and refusal."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from detectors.letterbox import InputSpec
from detectors.trt import kernels
from detectors.trt.memory_plan import Needs, batch_sizes, shrink

MIB = 1 << 20
NEEDS = Needs(
    weights=9 * MIB,
    activations=240 * MIB,
    largest=32,
    spec=InputSpec(640, 640),
    half=True,
    outputs=84 * 8400,
    scratch=600 << 10,
    frame=1920 * 1080 * 3,
)


def test_a_plan_that_fits_is_unchanged() -> None:
    assert shrink(4, 32, NEEDS.total(4, 32), NEEDS.total) == (4, 32)


def test_lanes_go_before_batches() -> None:
    assert shrink(4, 32, NEEDS.total(4, 32) - 1, NEEDS.total) == (3, 32)
    assert shrink(4, 32, NEEDS.total(1, 32) - 1, NEEDS.total) == (1, 16)
    assert shrink(1, 24, NEEDS.total(1, 24) - 1, NEEDS.total) == (1, 16)


def test_too_little_memory_is_refused() -> None:
    assert shrink(4, 32, NEEDS.total(1, 1) - 1, NEEDS.total) is None


@given(st.integers(1, 16), st.integers(1, 256), st.integers(0, 1 << 36))
def test_the_shrunk_plan_fits(lanes: int, batch: int, limit: int) -> None:
    found = shrink(lanes, batch, limit, NEEDS.total)
    if found is None:
        assert NEEDS.total(1, 1) > limit
    else:
        assert NEEDS.total(*found) <= limit
        assert found <= (lanes, batch)


def test_a_second_model_shares_the_context_and_has_parts_that_wait() -> None:
    """A part takes two inputs of 640x640 in FP16, and a row of the kernel's table for each."""
    second = replace(NEEDS, parts=3)
    first, more = dict(NEEDS.rows(1, 8)), dict(second.rows(1, 8))
    assert first.keys() - more.keys() == {"CUDA and TensorRT themselves"}
    assert more["parts that wait"] == 6 * (640 * 640 * 3 * 2 + kernels.PICTURE.itemsize)


def test_sizes_share_a_lanes_buffers() -> None:
    """The plan is for the largest size; only graphs are needed for each."""
    one, three = dict(NEEDS.rows(2, 8)), dict(replace(NEEDS, sizes=3).rows(2, 8))
    assert three.pop("CUDA graphs") == 3 * one.pop("CUDA graphs")
    assert three == one


def test_the_rows_are_the_total() -> None:
    assert sum(size for _, size in NEEDS.rows(2, 8)) == NEEDS.total(2, 8)


@given(st.integers(1, 256))
def test_padding_is_less_than_half_of_a_batch(largest: int) -> None:
    sizes = batch_sizes(largest)
    assert sizes[0] == 1
    assert sizes[-1] == largest
    for count in range(1, largest + 1):
        assert min(size for size in sizes if size >= count) < 1.5 * count or count == 1
