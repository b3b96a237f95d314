"""Engine store: engines are built once per ONNX file, GPU and TensorRT version, and loaded from a folder afterwards.

A manifest beside each engine has its recipe and hash. Files are written atomically under a lock, so that two processes
starting at once build once. A damaged or unloadable engine is quarantined and built again. An engine that was built
elsewhere is taken if its two files are copied here, and it is for this card, too.
"""

from __future__ import annotations

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
from detectors.trt.files import POLL_S, locked, write_whole
from detectors.trt.recipe import Manifest, Recipe
from detectors.trt.runtime_cache import SUFFIX, files_of

log = structlog.get_logger(__name__)
_T = TypeVar("_T")


class Progress:
    """The last progress message of a build; thread-safe."""

    def __init__(self) -> None:
        self.text = ""

    def update(self, text: str) -> None:
        self.text = text


@dataclass(frozen=True)
class Built:
    """A plan, and how its precision was set."""

    plan: bytes
    precision_mode: str


Build = Callable[[Path, Recipe, Progress], Built]
"""Builds a plan; see `detectors.trt.builder`."""


@dataclass(frozen=True)
class Entry:
    """An engine in the store.

    Attributes:
        key: of its recipe; the engine's name on the command line.
        problem: why it cannot be used; None if it can.
        used_ns: time of the last load or build, UTC nanoseconds from the file system.
    """

    key: str
    plan: Path
    manifest: Manifest | None
    problem: str | None
    used_ns: int

    @property
    def kernels(self) -> list[Path]:
        """Files of kernels that were compiled for it, one for each card."""
        return files_of(self.plan.parent, self.manifest.plan_sha256) if self.manifest else []


class EngineStore:
    """A folder of engines. Only `get_or_build` needs a GPU and TensorRT.

    Args:
        heartbeat_s: interval of log messages during a build.
    """

    def __init__(self, folder: Path, heartbeat_s: float = 10.0) -> None:
        self.folder, self._heartbeat_s = folder, heartbeat_s

    def get_or_build(
        self, onnx: Path, recipe: Recipe, build: Build, load: Callable[[bytes], _T | None]
    ) -> tuple[_T, Manifest]:
        """Load a recipe's engine from the store, or build and store it.

        Args:
            load: loads a plan; None if it cannot be loaded.

        Raises:
            DetectorError: it cannot be built or loaded; no plan is left behind.
        """
        plan = self.folder / f"{onnx.stem}-{recipe.precision}-{recipe.key}.plan"
        self._prepare()
        with locked(plan.with_suffix(".lock"), self._log_wait):
            found, wanted = (plan, recipe) if plan.exists() else (self._copied(recipe), None)
            if found:
                try:
                    content, manifest = _check(found, wanted)
                    engine = load(content)
                    if engine is not None:
                        os.utime(found)  # for `prune`
                        return engine, manifest
                    reason = f"{recipe.builder} cannot load it"
                except _DamagedError as error:
                    reason = str(error)
                self._quarantine(found, reason)
            content, manifest = _build_plan(onnx, recipe, build, self._heartbeat_s)
            engine = load(content)
            if engine is None:
                raise DetectorError(f"{recipe.builder} built {onnx} but cannot load the result: see the log above")
            try:
                write_whole(
                    plan.with_suffix(".json"), manifest.file
                )  # first: a plan without a manifest would be rebuilt
                write_whole(plan, content)
            except OSError as error:
                engine = None  # the traceback must not keep it alive after its device
                raise DetectorError(
                    f"engine {plan} cannot be written: {error.strerror}; make room, or set model.cache"
                ) from error
            return engine, manifest

    def _copied(self, recipe: Recipe) -> Path | None:
        """An engine that serves a recipe without being its own: it is for other cards as well, or of a file with
        another name. Logs why other engines of the model do not serve it."""
        if not recipe.portable:
            return None
        for entry in self.entries():
            made = entry.manifest.recipe if entry.manifest else {}
            if made.get("onnx_sha256") == recipe.onnx_sha256 and not made.get("gpu"):
                reason = recipe.unserved_by(made)
                if not reason:
                    return entry.plan
                log.info("engine not taken", engine=entry.key, reason=reason)
        return None

    def entries(self) -> list[Entry]:
        """All engines, the last used first."""
        found = [self._entry(plan) for plan in self.folder.glob("*.plan")]
        return sorted(found, key=lambda entry: entry.used_ns, reverse=True)

    def find(self, prefix: str) -> Entry:
        """The engine whose key or file name starts with a prefix.

        Raises:
            DetectorError: none or several match.
        """
        found = [
            entry for entry in self.entries() if entry.key.startswith(prefix) or entry.plan.name.startswith(prefix)
        ]
        if len(found) == 1:
            return found[0]
        what = "no engine" if not found else f"{len(found)} engines"
        raise DetectorError(f"{what} in {self.folder} for {prefix!r}: `lookout engine list` shows their keys")

    def leftovers(self) -> list[Path]:
        """Files without an engine: quarantined, half written, manifests without a plan, compiled kernels. Lock files
        stay: a build may hold one."""
        entries = self.entries()
        kept = {entry.plan.stem for entry in entries}
        kernels = {path for entry in entries for path in entry.kernels}
        return sorted(
            path
            for path in (self.folder.iterdir() if self.folder.is_dir() else ())
            if path.suffix in (".bad", ".new")
            or (path.suffix == ".json" and path.stem not in kept)
            or (path.suffix == SUFFIX and path not in kernels)
        )

    def remove(self, entry: Entry) -> int:
        """Delete an engine once no process builds it; returns the bytes freed."""
        with locked(entry.plan.with_suffix(".lock")):
            freed = 0
            for path in (entry.plan, entry.plan.with_suffix(".json"), *entry.kernels):
                if path.exists():
                    freed += path.stat().st_size
                    path.unlink()
        return freed

    def add_accuracy_record(self, record: AccuracyRecord) -> None:
        """Add a record to the manifests of all engines of its model and precision."""
        for entry in self.entries():
            about = entry.manifest and (entry.manifest.recipe["onnx_sha256"], entry.manifest.recipe["precision"])
            if entry.manifest and about == (record.onnx_sha256, record.precision):
                manifest = msgspec.structs.replace(entry.manifest, accuracy=record)
                with locked(entry.plan.with_suffix(".lock")):
                    write_whole(entry.plan.with_suffix(".json"), manifest.file)

    def _log_wait(self, seconds: float) -> None:
        if seconds % self._heartbeat_s < POLL_S:
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

    def _quarantine(self, plan: Path, reason: str) -> None:
        """Rename a bad plan, for later inspection."""
        os.replace(plan, plan.with_suffix(".bad"))
        log.warning("engine quarantined, will be built again", plan=plan.name, reason=reason)


class _DamagedError(Exception):
    """A stored plan that must not be loaded."""


def _check(plan: Path, recipe: Recipe | None = None) -> tuple[bytes, Manifest]:
    """A plan that matches its manifest and the recipe."""
    try:
        content = plan.read_bytes()
        manifest = msgspec.json.decode(plan.with_suffix(".json").read_bytes(), type=Manifest)
    except (OSError, msgspec.MsgspecError) as error:
        raise _DamagedError(f"its manifest cannot be read: {error}") from error
    if hashlib.sha256(content).hexdigest() != manifest.plan_sha256:
        raise _DamagedError("its content does not match its manifest")
    difference = recipe.differs(manifest.recipe) if recipe else ""
    if difference:
        raise _DamagedError(f"it has another recipe: {difference}")
    return content, manifest


def _build_plan(onnx: Path, recipe: Recipe, build: Build, heartbeat_s: float) -> tuple[bytes, Manifest]:
    log.info("building an engine", model=onnx.stem, precision=recipe.precision, gpu=recipe.card, level=recipe.level)
    started = monotonic()
    progress = Progress()
    with _heartbeat(progress, started, heartbeat_s):
        built = build(onnx, recipe, progress)
    manifest = Manifest(
        model=onnx.name,
        recipe=recipe.plain,
        precision_mode=built.precision_mode,
        seconds=round(monotonic() - started, 1),
        built_by=f"uid {os.getuid()} on {socket.gethostname()}, lookoutd {_own_version()}",
        accuracy=find_accuracy_record(onnx, recipe.onnx_sha256),
    )
    log.info(
        "engine built",
        model=onnx.stem,
        precision_mode=built.precision_mode,
        seconds=manifest.seconds,
        plan_bytes=len(built.plan),
    )
    return built.plan, manifest.sealed(built.plan)


def _own_version() -> str:
    try:
        return version("lookoutd")
    except PackageNotFoundError:  # run from a checkout without installation
        return "not installed"


@contextmanager
def _heartbeat(progress: Progress, started: float, heartbeat_s: float) -> Iterator[None]:
    """Log progress now and then: a build takes minutes."""
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
