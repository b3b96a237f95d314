"""Checks after each test: no leaks, no writes out of bounds, no TensorRT failures."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.models import toy_model
from tests.support.stubs import share_kernels
from tests.trt.parts import BACKEND

HERE = "LOOKOUT_TEST_TENSORRT" in os.environ
collect_ignore_glob = [] if HERE else ["test_*.py"]
collect_ignore = [] if BACKEND == "trt-rtx" else ["test_compiled_kernels.py"]


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    from tests.support import fake_tensorrt as tensorrt
    from tests.support import stubbed_cuda as cuda

    yield
    cuda.calm()
    failures = [*tensorrt.failures]
    tensorrt.failures.clear()
    assert failures == []
    assert cuda.alive() == {}
    assert cuda.trespasses() == 0


@pytest.fixture(scope="session")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A shared folder of engines, because a build takes longer than a test."""
    folder = tmp_path_factory.mktemp("engines")
    share_kernels(folder)
    return folder


@pytest.fixture
def unbuilt(tmp_path: Path) -> Path:
    """A folder without engines."""
    share_kernels(tmp_path / "unbuilt")
    return tmp_path / "unbuilt"


@pytest.fixture(scope="session")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fast 64x64 detector of bright areas."""
    return toy_model(tmp_path_factory.mktemp("model") / "toy.onnx")
