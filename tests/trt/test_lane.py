"""Lanes: batches in any order, pictures in any memory, and models refused when opened."""

from __future__ import annotations

import random
from contextlib import ExitStack, closing
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from detectors.detections import Detections
from detectors.ort.detector import OrtDetector
from detectors.port import DetectorError, DeviceImage, HostImage, Options, PostprocessParams, Region
from detectors.trt.library import load
from detectors.trt.loading import available
from tests.support import stubbed_cuda as cuda
from tests.support.kernels import bgr_of, noise_nv12, region_of
from tests.support.models import constant_model, toy_model
from tests.trt.parts import BACKEND, SIZES, host_pictures, on_device, open_trt, opened, options_of


def _same(one: Detections, other: Detections) -> None:
    np.testing.assert_array_equal(one.class_id, other.class_id)
    np.testing.assert_allclose(one.confidence, other.confidence, atol=2e-3)
    np.testing.assert_allclose(one.xyxy, other.xyxy, atol=0.05)


def test_any_batch_after_any_other(toy: Path, engines: Path) -> None:
    """G1: graphs work after any other sizes have run; all have run before the first picture. Decoded pictures alike in
    all but their addresses follow one another at a place, and others."""
    chance = random.Random(1)
    decoded = [
        noise_nv12((64, 48), bt709=True, full_range=full, seed=seed) for seed, full in enumerate((False, False, True))
    ]
    with opened(toy, engines, max_batch=6) as (_, lane), ExitStack() as stack:  # a batch of 5 is padded
        assert cuda.unlaunched() == 0
        pictures: list[HostImage | DeviceImage] = [*host_pictures(4)]
        pictures += [stack.enter_context(on_device(picture)) for picture in decoded]
        expected = [lane.detect([picture])[0][0] for picture in pictures]
        assert len({found.xyxy.tobytes() for found in expected[4:]}) == len(decoded)
        for _ in range(200):
            numbers = chance.choices(range(len(pictures)), k=chance.randint(1, 6))
            found, _ = lane.detect([pictures[number] for number in numbers])
            for one, number in zip(found, numbers):
                _same(one, expected[number])


def test_pictures_of_a_decoder_and_of_the_host_in_one_batch(toy: Path, engines: Path) -> None:
    """Any size and rotation, larger than the reserved memory: results agree with the CPU."""
    options = options_of(toy, engines)
    with ExitStack() as stack:
        detector = stack.enter_context(closing(open_trt(options)))
        lane = stack.enter_context(closing(detector.lane()))
        kinds = [{"bt709": bt709, "full_range": full} for bt709 in (False, True) for full in (False, True)]
        nv12 = [noise_nv12((61, 47), **kind, turns=turns, seed=turns) for turns, kind in enumerate(kinds)]
        images: list[HostImage | DeviceImage] = [stack.enter_context(on_device(picture)) for picture in nv12]
        whole = [HostImage(np.ascontiguousarray(np.round(bgr_of(picture)).astype(np.uint8))) for picture in nv12]
        large = HostImage(host_pictures(1, SIZES[3:])[0].bgr)
        reference = stack.enter_context(closing(OrtDetector(options)))
        looking = stack.enter_context(closing(reference.lane()))
        assert [len(found) > 0 for found in lane.detect([images[1], large, images[2]])[0]] == [True] * 3
        # Regions of pictures in either memory.
        sizes = [picture.size for picture in nv12]
        parts = [Region(turns, 3 - turns, width - 5, height - 6) for turns, (width, height) in enumerate(sizes)]
        cuts = [region_of(picture, part) for picture, part in zip(nv12, parts)]
        images += [image.cropped(part) for image, part in zip(images[:4], parts)] + [
            large.cropped(Region(3, 5, 90, 61))
        ]
        whole += [HostImage(np.ascontiguousarray(np.round(bgr_of(cut)).astype(np.uint8))) for cut in cuts]
        whole += [HostImage(large.bgr[5:66, 3:93].copy())]
        for image, same in zip((*images, large), (*whole, large)):
            expected = reference.run(looking.preprocess([same]))
            for name, given in lane.raw(image).items():
                np.testing.assert_allclose(given, expected[name][0], atol=0.02)


def test_max_detections_limits_the_boxes(toy: Path, engines: Path) -> None:
    """Candidates beyond `max_detections` are not reported as left out."""
    options = options_of(toy, engines, wanted=PostprocessParams(0.0, 0.99, 5, multi_label=True))
    with closing(open_trt(options)) as detector, closing(detector.lane()) as lane:
        for one in lane.detect(host_pictures(3))[0]:
            assert (len(one), one.left_out) == (5, 0)


@pytest.mark.parametrize("size", [(64, 48), (63, 47), (1, 1)])
def test_a_sample_is_a_complete_picture_and_reused(toy: Path, engines: Path, size: tuple[int, int]) -> None:
    """G20: odd widths too; a second request allocates nothing."""
    with closing(open_trt(options_of(toy, engines))) as detector, closing(detector.lane()) as lane:
        sample = detector.sample(*size)
        taken = cuda.device_bytes()
        assert detector.sample(*size) is sample
        assert cuda.device_bytes() == taken
        assert lane.fetch(sample)().bgr.shape == (size[1], size[0], 3)
        lane.detect([sample])


def test_an_uploaded_picture_is_like_a_decoded_one(toy: Path, engines: Path) -> None:
    """For speed comparisons: they exclude copies from host memory."""
    y, x = np.mgrid[0:49, 0:65]
    smooth = np.stack((x * 3, y * 4, 200 - x), axis=2).astype(np.uint8)
    with opened(toy, engines) as (detector, lane):
        placed = detector.place(HostImage(smooth))
        assert (placed.width, placed.height) == (64, 48)
        assert np.abs(lane.fetch(placed)().bgr.astype(int) - smooth[:48, :64]).mean() < 3
        lane.detect([placed])


def test_a_fixed_batch_size_gives_a_note(tmp_path: Path, engines: Path) -> None:
    """G12."""
    fixed = toy_model(tmp_path / "fixed.onnx", batch=2)
    with closing(open_trt(options_of(fixed, engines))) as detector, closing(detector.lane()) as lane:
        assert detector.info.max_batch == 2
        assert any("batch size of 2" in line and "dynamic=True" in line for line in detector.info.notes)
        assert len(lane.detect(host_pictures(1))[0]) == 1


def test_nms_inside_limits_the_batch(toy: Path, tmp_path: Path, engines: Path) -> None:
    """To what the file was exported for: further pictures would have no boxes."""
    model = onnx.load(toy)
    for key, value in {"args": "{'nms': True}", "batch": "2"}.items():
        model.metadata_props.add(key=key, value=value)
    file = tmp_path / "nms.onnx"
    onnx.save(model, file)
    with closing(open_trt(options_of(file, engines))) as detector:
        assert detector.info.max_batch == 2
        assert any("NMS inside for batches up to 2, so 4 is not possible" in line for line in detector.info.notes)


def test_an_fp16_file_is_accepted(toy: Path, tmp_path: Path, engines: Path) -> None:
    """G17: outputs become FP32."""
    half = toy_model(tmp_path / "half.onnx", kind=TensorProto.FLOAT16)
    pictures = host_pictures(3)
    with closing(open_trt(options_of(half, engines))) as detector, closing(detector.lane()) as lane:
        found, _ = lane.detect(pictures)
    with (
        closing(OrtDetector(Options(toy, wanted=PostprocessParams(0.3)))) as reference,
        closing(reference.lane()) as looking,
    ):
        expected, _ = looking.detect(pictures)
    for one, other in zip(found, expected):
        assert len(one) > 0
        np.testing.assert_allclose(one.confidence[:3], other.confidence[:3], atol=0.01)


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_a_model_that_computes_nan_is_refused(tmp_path: Path, engines: Path, precision: str) -> None:
    """G13: with a remedy if there is one."""
    broken = constant_model(tmp_path / "broken.onnx", (1, 1, 9, 9, float("nan"), 0))
    with pytest.raises(DetectorError) as caught:
        open_trt(options_of(broken, engines, precision=precision))
    assert "computes NaN or infinity for a grey picture" in str(caught.value)
    assert ("set model.precision: fp32" in str(caught.value)) == (precision == "fp16")
    assert "\n" not in str(caught.value)


def test_an_input_of_bytes_is_refused(tmp_path: Path, engines: Path) -> None:
    """G17."""
    odd = toy_model(tmp_path / "bytes.onnx", kind=TensorProto.UINT8)
    with pytest.raises(DetectorError, match="export it with floating-point tensors"):
        open_trt(options_of(odd, engines, precision="fp32"))


def test_an_untested_version_is_reported() -> None:
    """In `available`, which `check`, the log and refusals show."""
    library = load(BACKEND)
    is_tested = library.builder.startswith("TensorRT 8.6.")
    assert ("never run on a GPU by us: TensorRT 8.6 was" in available(library)) == (not is_tested)
