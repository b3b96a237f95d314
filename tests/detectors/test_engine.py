"""The store of engines: built once, checked when loaded, and never half there."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from detectors.port import DetectorError
from detectors.trt.engine import EngineStore, Recipe

RECIPE = Recipe("ab" * 32, "8.6.0", "NVIDIA H200", "sm_90", "fp16", 16, (640, 640), 3)
MODEL = Path("model.onnx")


class Builds:
    """A build that counts."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, onnx: Path, recipe: Recipe) -> tuple[bytes, str]:
        self.count += 1
        return f"plan for {recipe.key}".encode(), "FP16 by builder flag"


@pytest.fixture
def builds() -> Builds:
    return Builds()


@pytest.fixture
def store(tmp_path: Path, builds: Builds) -> EngineStore:
    return EngineStore(tmp_path, builds)


def _only(folder: Path, ending: str) -> Path:
    (path,) = folder.glob(f"*{ending}")
    return path


def test_built_once(store: EngineStore, builds: Builds, tmp_path: Path) -> None:
    assert store.obtain(MODEL, RECIPE) == store.obtain(MODEL, RECIPE)
    assert builds.count == 1
    manifest = json.loads(_only(tmp_path, ".json").read_text())
    assert manifest["recipe"]["gpu"] == "NVIDIA H200"
    assert manifest["plan_bytes"] == _only(tmp_path, ".plan").stat().st_size


@pytest.mark.parametrize(
    "change",
    [
        {"onnx_sha256": "cd" * 32},
        {"tensorrt": "10.16.1.11"},
        {"gpu": "NVIDIA L4"},
        {"precision": "fp32"},
        {"max_batch": 8},
        {"level": 1},
    ],
)
def test_another_recipe_is_another_engine(store: EngineStore, builds: Builds, change: dict[str, object]) -> None:
    assert store.obtain(MODEL, RECIPE) != store.obtain(MODEL, replace(RECIPE, **change))  # type: ignore[arg-type]
    assert builds.count == 2


@pytest.mark.parametrize("damage", ["truncated", "tampered", "no manifest", "broken manifest"])
def test_a_damaged_engine_is_set_aside_and_built_again(
    store: EngineStore, builds: Builds, tmp_path: Path, damage: str
) -> None:
    good = store.obtain(MODEL, RECIPE)
    plan, manifest = _only(tmp_path, ".plan"), _only(tmp_path, ".json")
    if damage == "truncated":
        plan.write_bytes(good[:-1])
    elif damage == "tampered":
        plan.write_bytes(good[:-1] + b"?")
    elif damage == "no manifest":
        manifest.unlink()
    else:
        manifest.write_text("{")
    assert store.obtain(MODEL, RECIPE) == good
    assert builds.count == 2
    assert _only(tmp_path, ".bad").exists()
    assert store.obtain(MODEL, RECIPE) == good
    assert builds.count == 2


def test_whoever_comes_second_waits_and_loads(store: EngineStore, builds: Builds) -> None:
    """Eight at once build once."""
    threads = [threading.Thread(target=store.obtain, args=(MODEL, RECIPE)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert builds.count == 1


def test_a_build_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def fails(*_: object) -> tuple[bytes, str]:
        raise DetectorError("unsupported layer")

    with pytest.raises(DetectorError, match="unsupported layer"):
        EngineStore(tmp_path, fails).obtain(MODEL, RECIPE)
    assert [path.suffix for path in tmp_path.iterdir()] == [".lock"]
