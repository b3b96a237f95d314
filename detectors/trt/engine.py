"""Engines: built from an ONNX file once for each GPU and TensorRT, kept in a folder, loaded from there.

An engine lies beside a manifest that says what it was made from and what it must hash to. It is written whole or not
at all, under a lock, so that two processes that start at once build once. One that is damaged, or that TensorRT cannot
load, is set aside and built again.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from time import monotonic
from typing import TypeVar

import msgspec
import structlog

from detectors.accuracy_record import AccuracyRecord
from detectors.accuracy_record import find as find_accuracy_record
from detectors.port import DetectorError
from detectors.trt.recipe import Manifest, Recipe

log = structlog.get_logger(__name__)
_LOOK_S = 0.1  # whether a lock is free
_T = TypeVar("_T")


class Progress:
    """What a build last said it was at; threads may ask while it runs."""

    def __init__(self) -> None:
        self.text = ""

    def say(self, text: str) -> None:
        self.text = text


@dataclass(frozen=True)
class Built:
    """A plan, and by which road its precision was reached."""

    plan: bytes
    road: str


Build = Callable[[Path, Recipe, Progress], Built]
"""Makes a plan; see `detectors.trt.builder`."""


@dataclass(frozen=True)
class Entry:
    """An engine in the folder.

    Attributes:
        key: of its recipe; names it on the command line.
        problem: why it cannot be used, or None.
        used_ns: when it was last loaded or built, as the file system has it, UTC ns.
    """

    key: str
    plan: Path
    manifest: Manifest | None
    problem: str | None
    used_ns: int


class EngineStore:
    """A folder of engines. Everything but `get_or_build` needs neither a GPU nor TensorRT.

    Args:
        heartbeat_s: while a build takes long, the log says so that often.
    """

    def __init__(self, folder: Path, heartbeat_s: float = 10.0) -> None:
        self.folder, self._heartbeat_s = folder, heartbeat_s

    def get_or_build(
        self, onnx: Path, recipe: Recipe, build: Build, load: Callable[[bytes], _T | None]
    ) -> tuple[_T, Manifest]:
        """The engine of a recipe: from the folder, or built and put there.

        Args:
            load: gives what a plan is loaded as, or None where it cannot be.

        Raises:
            DetectorError: it cannot be built, or cannot be loaded when it is; no plan is left behind.
        """
        plan = self.folder / f"{onnx.stem}-{recipe.precision}-{recipe.key}.plan"
        self._prepare()
        with locked(plan.with_suffix(".lock"), self._say_wait):
            if plan.exists():
                try:
                    content, manifest = _check(plan, recipe)
                    engine = load(content)
                    if engine is not None:
                        os.utime(plan)  # `prune` asks when it was last used
                        return engine, manifest
                    reason = f"{recipe.builder} cannot load it"
                except _DamagedError as error:
                    reason = str(error)
                self._set_aside(plan, reason)
            content, manifest = _make(onnx, recipe, build, self._heartbeat_s)
            engine = load(content)
            if engine is None:
                raise DetectorError(f"{recipe.builder} built {onnx} and cannot load what it built: see the log above")
            try:
                write_whole(plan.with_suffix(".json"), manifest.file)  # a plan without one would be built again
                write_whole(plan, content)
            except OSError as error:
                engine = None  # which the error's traceback would keep, beyond the context of its memory
                raise DetectorError(
                    f"engine {plan} cannot be written: {error.strerror}; make room, or set model.cache"
                ) from error
            return engine, manifest

    def entries(self) -> list[Entry]:
        """All engines of the store, the last used first."""
        found = [self._entry(plan) for plan in self.folder.glob("*.plan")]
        return sorted(found, key=lambda entry: entry.used_ns, reverse=True)

    def find(self, wish: str) -> Entry:
        """The one engine whose key, or whose file's name, begins with a wish.

        Raises:
            DetectorError: none does, or several do.
        """
        found = [entry for entry in self.entries() if entry.key.startswith(wish) or entry.plan.name.startswith(wish)]
        if len(found) == 1:
            return found[0]
        what = "no engine" if not found else f"{len(found)} engines"
        raise DetectorError(f"{what} in {self.folder} for {wish!r}: `lookout engine list` shows their keys")

    def leftovers(self) -> list[Path]:
        """Files that no engine needs: set aside, half written, or a manifest whose plan is gone. Locks stay: whoever
        builds holds one."""
        kept = {entry.plan.stem for entry in self.entries()}
        return sorted(
            path
            for path in (self.folder.iterdir() if self.folder.is_dir() else ())
            if path.suffix in (".bad", ".new") or (path.suffix == ".json" and path.stem not in kept)
        )

    def remove(self, entry: Entry) -> int:
        """Delete an engine that no process builds; how many bytes that freed."""
        with locked(entry.plan.with_suffix(".lock")):
            freed = 0
            for path in (entry.plan, entry.plan.with_suffix(".json")):
                if path.exists():
                    freed += path.stat().st_size
                    path.unlink()
        return freed

    def add_accuracy_record(self, record: AccuracyRecord) -> None:
        """Put a verdict into the manifest of each engine of its model and precision."""
        for entry in self.entries():
            about = entry.manifest and (entry.manifest.recipe["onnx_sha256"], entry.manifest.recipe["precision"])
            if entry.manifest and about == (record.onnx_sha256, record.precision):
                manifest = msgspec.structs.replace(entry.manifest, accuracy=record)
                with locked(entry.plan.with_suffix(".lock")):
                    write_whole(entry.plan.with_suffix(".json"), manifest.file)

    def _say_wait(self, seconds: float) -> None:
        if seconds % self._heartbeat_s < _LOOK_S:
            log.info("another process builds this engine: waiting for it", seconds=round(seconds))

    def _entry(self, plan: Path) -> Entry:
        key, used = plan.stem.rpartition("-")[2], plan.stat().st_mtime_ns
        try:
            return Entry(key, plan, _check(plan)[1], None, used)
        except _DamagedError as error:
            return Entry(key, plan, None, str(error), used)

    def _prepare(self) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DetectorError(
                f"engines cannot be kept in {self.folder}: {error.strerror}; set model.cache"
            ) from error

    def _set_aside(self, plan: Path, reason: str) -> None:
        """Out of the way, for whoever wants to know."""
        os.replace(plan, plan.with_suffix(".bad"))
        log.warning("engine set aside, and built again", plan=plan.name, reason=reason)


class _DamagedError(Exception):
    """A kept plan that must not be loaded."""


def _check(plan: Path, recipe: Recipe | None = None) -> tuple[bytes, Manifest]:
    """A plan that is what its manifest says, made by the recipe."""
    try:
        content = plan.read_bytes()
        manifest = msgspec.json.decode(plan.with_suffix(".json").read_bytes(), type=Manifest)
    except (OSError, msgspec.MsgspecError) as error:
        raise _DamagedError(f"its manifest cannot be read: {error}") from error
    if hashlib.sha256(content).hexdigest() != manifest.plan_sha256:
        raise _DamagedError("its content is not what its manifest says")
    difference = recipe.differs(manifest.recipe) if recipe else ""
    if difference:
        raise _DamagedError(f"it is for another: {difference}")
    return content, manifest


def _make(onnx: Path, recipe: Recipe, build: Build, heartbeat_s: float) -> tuple[bytes, Manifest]:
    log.info("building an engine", model=onnx.stem, precision=recipe.precision, gpu=recipe.gpu, level=recipe.level)
    started = monotonic()
    progress = Progress()
    with _heartbeat(progress, started, heartbeat_s):
        built = build(onnx, recipe, progress)
    manifest = Manifest(
        model=onnx.name,
        recipe=recipe.plain,
        road=built.road,
        seconds=round(monotonic() - started, 1),
        built_by=f"uid {os.getuid()} on {socket.gethostname()}, lookoutd {_own_version()}",
        accuracy=find_accuracy_record(onnx, recipe.onnx_sha256),
    )
    log.info("engine built", model=onnx.stem, road=built.road, seconds=manifest.seconds, plan_bytes=len(built.plan))
    return built.plan, manifest.sealed(built.plan)


def _own_version() -> str:
    try:
        return version("lookoutd")
    except PackageNotFoundError:  # run from a checkout that is not installed
        return "not installed"


@contextmanager
def locked(path: Path, on_wait: Callable[[float], None] = lambda _: None) -> Iterator[None]:
    """Held by one process at a time; the lock goes with the process that holds it.

    Args:
        on_wait: told again and again for how many seconds another has held it.
    """
    with path.open("w") as file:
        began, pause = monotonic(), threading.Event()
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                on_wait(monotonic() - began)
                pause.wait(_LOOK_S)
        yield


def write_whole(path: Path, content: bytes) -> None:
    """All of it or nothing."""
    temporary = path.with_suffix(path.suffix + ".new")
    temporary.write_bytes(content)
    os.replace(temporary, path)


@contextmanager
def _heartbeat(progress: Progress, started: float, heartbeat_s: float) -> Iterator[None]:
    """A line in the log now and then: a build takes minutes."""
    done = threading.Event()

    def beat() -> None:
        while not done.wait(heartbeat_s):
            at = {"at": progress.text} if progress.text else {}
            log.info("still building", seconds=round(monotonic() - started), **at)

    thread = threading.Thread(target=beat, name="engine-build", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
