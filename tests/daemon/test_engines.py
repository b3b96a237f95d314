"""`lookout engine` where there is no GPU: what is kept can be seen and thrown away, what cannot be built says why."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

import pytest

from daemon.cli import invoke
from detectors.factory import availability, engine_store
from detectors.trt.engine import Built, EngineStore
from detectors.trt.recipe import Recipe
from detectors.trt.runtime_cache import cache_file
from tests.support.daemon import DEMO_MODEL
from tests.support.gpu_here import GPU_HERE

OLD = Recipe("ab" * 32, "TensorRT 8.6.0", "NVIDIA H200", "sm_90", "fp16", 16, (640, 640), 3)
NEW = Recipe("cd" * 32, "TensorRT 11.4.0.106", "NVIDIA L4", "sm_89", "fp32", 8, (320, 320), 1)
DAY = 86_400


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """Two engines, one of them last used forty days ago, and one that was set aside."""
    store = EngineStore(tmp_path / "engines")
    for recipe in (OLD, NEW):
        store.get_or_build(
            Path("street.onnx"), recipe, lambda *_: Built(b"plan" * 300_000, "FP16 by builder flag"), bytes
        )
    plan = store.find(OLD.key).plan
    before = plan.stat().st_mtime - 40 * DAY
    os.utime(plan, (before, before))
    (store.folder / "gone.bad").write_bytes(b"x")
    return tmp_path


def _lookout(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str]:
    code = invoke([str(argument) for argument in arguments])
    said = capsys.readouterr()
    return code, said.out + said.err


def test_list_shows_the_last_used_first(
    cache: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    code, said = _lookout(capsys, "engine", "list", "--cache", cache)
    assert code == 0
    assert said.index(NEW.key) < said.index(OLD.key)
    assert "NVIDIA L4" in said
    assert "1-16" in said


def test_show_tells_how_it_was_made(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, said = _lookout(capsys, "engine", "show", OLD.key[:6], "--cache", cache)
    assert code == 0
    for word in ("TensorRT 8.6.0", "NVIDIA H200", "FP16 by builder flag", "640x640", "street.onnx"):
        assert word in said


def test_prune_removes_what_was_not_used_and_what_nobody_needs(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = cache / "engines"
    before = sorted(folder.iterdir())
    _, said = _lookout(capsys, "engine", "prune", "--cache", cache, "--dry-run")
    assert sorted(folder.iterdir()) == before
    assert "would remove" in said
    code, said = _lookout(capsys, "engine", "prune", "--cache", cache)
    assert code == 0
    assert "not used for 40 days" in said
    assert "1.1 MiB" in said
    left = {path.name for path in folder.iterdir() if path.suffix != ".lock"}
    assert left == {f"street-fp32-{NEW.key}.plan", f"street-fp32-{NEW.key}.json"}


def test_a_key_that_is_none(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, said = _lookout(capsys, "engine", "show", "zz", "--cache", cache)
    assert (code, said.count("\n")) == (2, 1)
    assert "lookout engine list" in said


@pytest.mark.skipif(GPU_HERE, reason="there is a GPU")
def test_build_without_a_gpu_says_what_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, said = _lookout(capsys, "engine", "build", DEMO_MODEL, "--cache", tmp_path)
    assert (code, said.count("\n")) == (2, 1)
    for row in availability()[:2]:
        assert f"{row.backend}: {row.reason}" in said


@pytest.mark.skipif(find_spec("tensorrt_rtx") is not None, reason="it is installed")
def test_build_for_cards_elsewhere_says_what_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, said = _lookout(capsys, "engine", "build", DEMO_MODEL, "--for", "rtx30", "--cache", tmp_path)
    assert (code, said) == (2, "lookout: tensorrt-rtx is not installed: pip install 'lookoutd[rtx]'\n")


def test_build_for_cards_elsewhere_is_for_the_backend_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(f"model: {{path: {DEMO_MODEL}, backend: trt}}\nsources: [{{id: a, type: synthetic}}]\n")
    code, said = _lookout(capsys, "engine", "build", "-c", config, "--for", "rtx30")
    assert (code, said.count("\n")) == (2, 1)
    assert "model.backend" in said


def test_compiled_kernels_add_to_an_engine(
    cache: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    entry = engine_store(cache).find(NEW.key)
    assert entry.manifest is not None
    cache_file(entry.plan.parent, entry.manifest.plan_sha256, "NVIDIA L4").write_bytes(bytes(3 << 19))
    assert "1.1 + 1.5" in _lookout(capsys, "engine", "list", "--cache", cache)[1]
    assert "1.5 MiB" in _lookout(capsys, "engine", "show", NEW.key, "--cache", cache)[1]


def test_build_wants_a_model_or_a_configuration(capsys: pytest.CaptureFixture[str]) -> None:
    code, said = _lookout(capsys, "engine", "build")
    assert (code, said.count("\n")) == (2, 1)
    assert "MODEL" in said
