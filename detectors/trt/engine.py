"""Engines: built from an ONNX file once for each GPU and TensorRT, kept in a folder, loaded from there.

An engine lies beside a manifest that says what it was made from and what it must hash to. It is written whole or not
at all, under a lock, so that two processes that start at once build once. One that is damaged is set aside and built
again.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from time import monotonic
from typing import Any

import msgspec
import structlog

from detectors.trt import seam

log = structlog.get_logger(__name__)
_HEARTBEAT_S = 10.0


@dataclass(frozen=True)
class Recipe:
    """What an engine is made from; another recipe is another engine.

    Attributes:
        onnx_sha256: of the whole file.
        input: name of the model's input.
        input_size: width and height, pixels.
        level: TensorRT's builder_optimization_level: 3 finds the fastest tactics, 1 builds five times as fast.
    """

    onnx_sha256: str
    tensorrt: str
    gpu: str
    architecture: str
    precision: seam.Precision
    max_batch: int
    input_size: tuple[int, int]
    level: int

    @property
    def key(self) -> str:
        return hashlib.sha256(msgspec.json.encode(asdict(self), order="deterministic")).hexdigest()[:16]


class Manifest(msgspec.Struct, frozen=True):
    """What is known of a built engine; a JSON file beside it."""

    model: str
    recipe: dict[str, Any]
    road: str
    plan_sha256: str
    plan_bytes: int
    seconds: float


Build = Callable[[Path, Recipe], tuple[bytes, str]]
"""Makes a plan, and says by which road its precision was reached; see `detectors.trt.builder`."""


class EngineStore:
    """A folder of engines, and what builds those it lacks."""

    def __init__(self, folder: Path, build: Build) -> None:
        self._folder, self._build = folder, build

    def obtain(self, onnx: Path, recipe: Recipe) -> bytes:
        """The plan for a recipe: from the folder, or built and put there.

        Raises:
            DetectorError: it cannot be built; nothing is left behind.
        """
        plan = self._folder / f"{onnx.stem}-{recipe.precision}-{recipe.key}.plan"
        self._folder.mkdir(parents=True, exist_ok=True)
        with _locked(plan.with_suffix(".lock")):
            kept = self._load(plan)
            if kept is not None:
                return kept
            log.info("building an engine", model=onnx.stem, precision=recipe.precision, gpu=recipe.gpu)
            started = monotonic()
            with _heartbeat("still building", started):
                built, road = self._build(onnx, recipe)
            manifest = Manifest(
                model=onnx.name,
                recipe=asdict(recipe),
                road=road,
                plan_sha256=hashlib.sha256(built).hexdigest(),
                plan_bytes=len(built),
                seconds=round(monotonic() - started, 1),
            )
            _write(plan, built)
            _write(plan.with_suffix(".json"), msgspec.json.format(msgspec.json.encode(manifest), indent=2))
            log.info("engine built", model=onnx.stem, road=road, seconds=manifest.seconds, plan_bytes=len(built))
            return built

    def _load(self, plan: Path) -> bytes | None:
        """A plan that is what its manifest says; anything else is set aside."""
        if not plan.exists():
            return None
        try:
            content = plan.read_bytes()
            manifest = msgspec.json.decode(plan.with_suffix(".json").read_bytes(), type=Manifest)
            if hashlib.sha256(content).hexdigest() == manifest.plan_sha256:
                return content
            reason = "its content is not what its manifest says"
        except (OSError, msgspec.MsgspecError) as error:
            reason = f"its manifest cannot be read: {error}"
        # Out of the way, for whoever wants to know.
        os.replace(plan, plan.with_suffix(".bad"))
        log.warning("engine set aside, and built again", plan=plan.name, reason=reason)
        return None


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Held by one process at a time; the lock goes with the process that holds it."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def _heartbeat(event: str, started: float) -> Iterator[None]:
    """A line in the log now and then: a build takes minutes and says nothing."""
    done = threading.Event()

    def beat() -> None:
        while not done.wait(_HEARTBEAT_S):
            log.info(event, seconds=round(monotonic() - started))

    thread = threading.Thread(target=beat, name="engine-build", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _write(path: Path, content: bytes) -> None:
    """Whole or not at all."""
    temporary = path.with_suffix(path.suffix + ".new")
    temporary.write_bytes(content)
    os.replace(temporary, path)
