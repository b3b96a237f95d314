"""The engine store: engines are built once, checked when loaded, and written atomically."""

from __future__ import annotations

import fcntl
import hashlib
import json
import threading
from dataclasses import replace
from pathlib import Path

import pytest
import structlog
from structlog.testing import capture_logs

from detectors.port import DetectorError
from detectors.trt.engine import Built, EngineStore, Progress
from detectors.trt.recipe import VERSION, Recipe
from detectors.trt.runtime_cache import cache_file
from tests.support.daemon import ROOT, wait_until

RECIPE = Recipe("ab" * 32, "TensorRT 8.6.0", "NVIDIA H200", "sm_90", "fp16", 16, (640, 640), 3)
COPIED = replace(RECIPE, builder="TensorRT RTX 1.7.1.116", gpu="", architecture="sm_86+sm_89")
MODEL = Path("model.onnx")


class Maker:
    """A builder and a loader that count calls; plans that begin with `refuses` cannot be loaded."""

    def __init__(self, folder: Path) -> None:
        self.store = EngineStore(folder)
        self.built = 0
        self.refuses = b"never"

    def build(self, onnx: Path, recipe: Recipe, progress: Progress) -> Built:
        self.built += 1
        return Built(f"plan {self.built} for {recipe.key}".encode(), "FP16 by builder flag")

    def load(self, plan: bytes) -> str | None:
        return None if plan.startswith(self.refuses) else plan.decode()

    def get_or_build(self, recipe: Recipe = RECIPE) -> str:
        return self.store.get_or_build(MODEL, recipe, self.build, self.load)[0]


@pytest.fixture
def maker(tmp_path: Path) -> Maker:
    return Maker(tmp_path)


def _only(folder: Path, ending: str) -> Path:
    (path,) = folder.glob(f"*{ending}")
    return path


def test_built_once(maker: Maker, tmp_path: Path) -> None:
    assert maker.get_or_build() == maker.get_or_build()
    assert maker.built == 1
    manifest = json.loads(_only(tmp_path, ".json").read_text())
    assert manifest["recipe"]["gpu"] == "NVIDIA H200"
    assert manifest["plan_bytes"] == _only(tmp_path, ".plan").stat().st_size


@pytest.mark.parametrize(
    "change",
    [
        {"onnx_sha256": "cd" * 32},
        {"builder": "TensorRT 10.16.1.11"},
        {"gpu": "NVIDIA L4"},
        {"architecture": "sm_89"},
        {"precision": "fp32"},
        {"max_batch": 8},
        {"input_size": (320, 320)},
        {"further_sizes": ((1280, 736),)},
        {"level": 1},
        {"dynamic": False},
        {"lookout": 1},
    ],
)
def test_another_recipe_is_another_engine(maker: Maker, change: dict[str, object]) -> None:
    assert maker.get_or_build() != maker.get_or_build(replace(RECIPE, **change))  # type: ignore[arg-type]
    assert maker.built == 2


@pytest.mark.parametrize("damage", ["truncated", "tampered", "no manifest", "broken manifest"])
def test_a_damaged_engine_is_quarantined_and_built_again(maker: Maker, tmp_path: Path, damage: str) -> None:
    good = maker.get_or_build().encode()
    plan, manifest = _only(tmp_path, ".plan"), _only(tmp_path, ".json")
    if damage == "truncated":
        plan.write_bytes(good[:-1])
    elif damage == "tampered":
        plan.write_bytes(good[:-1] + b"?")
    elif damage == "no manifest":
        manifest.unlink()
    else:
        manifest.write_text("{")
    assert [entry.problem is None for entry in maker.store.entries()] == [False]
    again = maker.get_or_build()
    assert again.startswith("plan 2")
    assert _only(tmp_path, ".bad").exists()
    assert maker.get_or_build() == again
    assert maker.built == 2


def test_an_engine_of_another_gpu_is_named_and_quarantined(maker: Maker, tmp_path: Path) -> None:
    """As after copying another machine's folder and renaming its files."""
    other = replace(RECIPE, gpu="NVIDIA L4", builder="TensorRT 8.6.1")
    maker.get_or_build(other)
    for path in list(tmp_path.glob(f"*{other.key}*")):
        path.rename(tmp_path / path.name.replace(other.key, RECIPE.key))
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(20))
    with capture_logs() as logs:
        assert maker.get_or_build().startswith("plan 2")
    (reason,) = (line["reason"] for line in logs if "quarantined" in line["event"])
    assert "'NVIDIA L4' is not 'NVIDIA H200'" in reason
    assert "'TensorRT 8.6.1' is not 'TensorRT 8.6.0'" in reason


def test_an_unloadable_engine_is_quarantined_and_built_again(maker: Maker, tmp_path: Path) -> None:
    maker.get_or_build()
    maker.refuses = b"plan 1"
    assert maker.get_or_build().startswith("plan 2")
    assert _only(tmp_path, ".bad").exists()


def test_an_unloadable_build_is_an_error_and_not_stored(maker: Maker, tmp_path: Path) -> None:
    maker.refuses = b"plan"
    with pytest.raises(DetectorError, match="cannot load the result"):
        maker.get_or_build()
    assert list(tmp_path.glob("*.plan")) == []


def test_concurrent_requests_build_once(maker: Maker) -> None:
    """Eight concurrent requests build once."""
    threads = [threading.Thread(target=maker.get_or_build) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert maker.built == 1


def test_a_build_of_another_process_is_logged(maker: Maker, tmp_path: Path) -> None:
    """G11: logged while waiting; afterwards the other's engine is loaded."""
    maker.get_or_build()
    maker.store = EngineStore(tmp_path, heartbeat_s=0.2)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(20))
    with capture_logs() as logs, _only(tmp_path, ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        waiting = threading.Thread(target=maker.get_or_build)
        waiting.start()
        wait_until(lambda: [row for row in logs if "another process builds this engine" in row["event"]], "a log line")
        fcntl.flock(lock, fcntl.LOCK_UN)
        waiting.join(60)
    assert not waiting.is_alive()
    assert maker.built == 1


def test_a_crash_between_the_two_files_leads_to_a_new_build(maker: Maker, tmp_path: Path) -> None:
    """The manifest is written first: alone it is a leftover. A plan without a manifest cannot occur."""
    maker.get_or_build()
    _only(tmp_path, ".plan").unlink()
    assert [path.suffix for path in maker.store.leftovers()] == [".json"]
    assert maker.get_or_build().startswith("plan 2")
    assert list(tmp_path.glob("*.bad")) == []


def test_an_engine_of_one_size_keeps_its_key(maker: Maker, tmp_path: Path) -> None:
    """Further sizes came later: engines that were built before are still found."""
    assert RECIPE.key == "5645c9e43025bc6f"
    maker.get_or_build()
    assert "further_sizes" not in json.loads(_only(tmp_path, ".json").read_text())["recipe"]


def test_a_copied_engine_serves_each_of_its_cards(maker: Maker) -> None:
    """Its key is that of its own recipe; a card finds it by what the manifest says."""
    copied = maker.get_or_build(COPIED)
    for architecture in ("sm_86", "sm_89"):
        assert maker.get_or_build(replace(COPIED, architecture=architecture)) == copied
    assert maker.built == 1


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"architecture": "sm_120"}, "it is for compute capability 8.6, 8.9 (rtx30, rtx40, l4), and not for 12.0"),
        ({"max_batch": 8}, "max_batch 16 is not 8"),
        ({"builder": "TensorRT RTX 1.8.0.1"}, "builder 'TensorRT RTX 1.7.1.116' is not 'TensorRT RTX 1.8.0.1'"),
    ],
)
def test_why_a_copied_engine_is_not_taken_is_logged(maker: Maker, change: dict[str, object], reason: str) -> None:
    maker.get_or_build(COPIED)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(20))
    with capture_logs() as logs:
        other = replace(COPIED, **{"architecture": "sm_89", **change})  # type: ignore[arg-type]
        assert maker.get_or_build(other).startswith("plan 2")
    assert [row["reason"] for row in logs if row["event"] == "engine not taken"] == [reason]


def test_a_damaged_copy_is_not_taken(maker: Maker, tmp_path: Path) -> None:
    maker.get_or_build(COPIED)
    _only(tmp_path, ".plan").write_bytes(b"half of it")
    assert maker.get_or_build(replace(COPIED, architecture="sm_89")).startswith("plan 2")


def test_compiled_kernels_go_with_their_engine(maker: Maker, tmp_path: Path) -> None:
    maker.get_or_build(COPIED)
    entry = maker.store.find(COPIED.key)
    assert entry.manifest is not None
    own = cache_file(tmp_path, entry.manifest.plan_sha256, "NVIDIA GeForce RTX 4060 Ti")
    others = cache_file(tmp_path, "cd" * 32, "NVIDIA L4")
    for path in (own, others):
        path.write_bytes(b"kernels")
    assert entry.kernels == [own]
    assert maker.store.leftovers() == [others]
    assert maker.store.remove(entry) > len(b"kernels")
    assert not own.exists()


# Files that define how engines are built. A change may give other engines and then needs a new VERSION.
_MADE_BY = ("half.py", "trt/compat.py", "trt/builder.py", "trt/reading.py")
_KNOWN = {3: "3ccff569f1bf29ff"}


def test_a_change_of_the_build_needs_a_new_version() -> None:
    """G7: if this fails and engines now differ, raise VERSION in detectors/trt/recipe.py; then update the digest."""
    digest = hashlib.sha256(b"".join((ROOT / "detectors" / name).read_bytes() for name in _MADE_BY)).hexdigest()
    assert {VERSION: digest[:16]} == _KNOWN


def test_a_failed_build_leaves_nothing(tmp_path: Path) -> None:
    def fails(*_: object) -> Built:
        raise DetectorError("unsupported layer")

    with pytest.raises(DetectorError, match="unsupported layer"):
        EngineStore(tmp_path).get_or_build(MODEL, RECIPE, fails, bytes.decode)
    assert [path.suffix for path in tmp_path.iterdir()] == [".lock"]


def test_leftovers_belong_to_no_engine(maker: Maker, tmp_path: Path) -> None:
    maker.get_or_build()
    for name in ("a.bad", "b.plan.new", "gone-fp16-0123.json"):
        (tmp_path / name).touch()
    (tmp_path / "timing-8.6.0-NVIDIA_H200.cache").touch()
    assert [path.name for path in maker.store.leftovers()] == ["a.bad", "b.plan.new", "gone-fp16-0123.json"]


def test_an_engine_is_found_by_a_prefix_of_its_key(maker: Maker) -> None:
    maker.get_or_build()
    maker.get_or_build(replace(RECIPE, level=1))
    assert maker.store.find(RECIPE.key[:8]).manifest is not None
    with pytest.raises(DetectorError, match="2 engines"):
        maker.store.find("model")
    with pytest.raises(DetectorError, match="no engine"):
        maker.store.find("x")
    maker.store.remove(maker.store.find(RECIPE.key))
    assert len(maker.store.entries()) == 1
