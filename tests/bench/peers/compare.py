"""`python -m tests.bench engine --peer`: Lookout's engine and others on one model file, each alone on the machine.

Every engine runs in a process of its own, with the same pictures in the same batch. Raw outputs are compared with those
of onnxruntime on the CPU, which runs the file as it is.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt

from daemon.bench.engine import EngineOptions, detector_options
from daemon.config.root import LogConfig
from daemon.errors import LookoutError
from daemon.log import logging
from daemon.sources.scene import Scene
from detectors.ort.detector import OrtDetector
from detectors.port import DetectorError, HostImage, Options, is_address
from tests.bench.peers import program
from tests.bench.peers.child import Measured, run
from tests.bench.peers.names import ON_CPU, OWN, PEERS, SERVED
from tests.bench.peers.program import Arrays

_OWN_TITLE = "Lookout, TensorRT"
_OBJECTS = 12  # in a picture


@dataclass(frozen=True)
class PeerOptions:
    """See `python -m tests.bench engine --help`.

    Attributes:
        peers: names of the engines beside Lookout's.
        pythons: interpreters that have their libraries; None for this one.
        server: address of the model on a Triton server.
        timeout_s: of one engine, to build it and to measure it.
    """

    engine: EngineOptions
    peers: Sequence[str]
    pythons: Mapping[str, Path | None] = field(default_factory=dict)
    server: str | None = None
    threads: int = 0
    timeout_s: float = 900.0


@dataclass(frozen=True)
class PeerRate:
    """One engine.

    Attributes:
        engine: title of the row.
        images_per_s: median of some turns, with full batches one after the other; `lowest` and `highest` are of one
            turn. None if it did not run.
        batch_ms: p50 of one batch alone.
        difference: largest difference of a raw output from onnxruntime's on the CPU.
        relative: the same as a share of the largest value of that output.
        note: why it did not run, or a remark on how.
    """

    engine: str
    version: str = ""
    precision: str = ""
    images_per_s: float | None = None
    lowest: float | None = None
    highest: float | None = None
    batch_ms: float | None = None
    difference: float | None = None
    relative: float | None = None
    note: str = ""


@dataclass(frozen=True)
class PeerRates:
    """Attributes:
    model: name and digest.
    precision: of the file.
    """

    model: str
    precision: str
    batch: int
    engines: list[PeerRate]


@dataclass(frozen=True)
class Subject:
    """The input of all engines, and what is expected of them.

    Attributes:
        pictures: (batch, height, width, 3) uint8, of the size of the model's input.
        inputs: the same as the model reads them, by name.
        rows: the pictures that are compared.
        expected: their raw outputs.
    """

    name: str
    precision: str
    pictures: npt.NDArray[np.uint8]
    inputs: Arrays
    rows: list[int]
    expected: Arrays


def peer_rates(options: PeerOptions, on_engine: Callable[[PeerRate], None] = lambda _: None) -> PeerRates:
    """Run Lookout's engine and then the others, one after the other. An engine that does not run has the reason.

    Raises:
        DetectorError: the model cannot be used.
    """
    with logging(LogConfig(level="error", format="console")):
        subject = subject_of(detector_options(options.engine), options.threads)
    found: list[PeerRate] = []

    def add(row: PeerRate) -> None:
        found.append(row)
        on_engine(row)

    comparison = _Comparison(options, subject)
    add(comparison.own())
    wanted = _gpu_precision(options.engine.precision, found[0], subject.precision)
    for name in PEERS:
        if name in options.peers:
            add(comparison.served() if name == SERVED else comparison.peer(name, wanted))
    return PeerRates(subject.name, subject.precision, len(subject.pictures), found)


def subject_of(options: Options, threads: int = 0) -> Subject:
    """Drawn pictures, and what onnxruntime finds in them on the CPU.

    Raises:
        DetectorError: the model cannot be used.
    """
    if is_address(options.path):
        raise DetectorError(f"{options.path} is an address: give the ONNX file, and the address with --server")
    wanted = Options(options.path, labels=options.labels, max_batch=options.max_batch, threads=threads)
    with closing(OrtDetector(wanted)) as detector, closing(detector.lane()) as lane:
        info, constants = detector.info, detector.head.constants
        width, height = info.input_size
        scene = Scene(width, height, objects=_OBJECTS)
        pictures = [scene.draw(number * 10) for number in range(info.max_batch)]
        batch = lane.preprocess([HostImage(picture) for picture in pictures]).copy()
        rows = sorted({0, len(pictures) - 1})
        outputs = detector.run(batch, constants)
        further = {name: np.repeat(row[None], len(batch), axis=0) for name, row in constants.items()}
        return Subject(
            f"{info.name} {info.digest}",
            info.precision,
            np.stack(pictures),
            {detector.input: batch, **further},
            rows,
            {name: values[rows] for name, values in outputs.items()},
        )


class _Comparison:
    """The runs of one comparison."""

    def __init__(self, options: PeerOptions, subject: Subject) -> None:
        self._options, self._subject = options, subject

    def own(self) -> PeerRate:
        return self._row(_OWN_TITLE, lambda folder: self._by_lookout(OWN, self._options.engine.model, folder))

    def served(self) -> PeerRate:
        def measure(folder: Path) -> Measured:
            if self._options.server is None:
                raise LookoutError("no server is named: --server http://HOST:PORT/MODEL")
            return self._by_lookout(SERVED, self._options.server, folder)

        return self._row(PEERS[SERVED], measure)

    def peer(self, name: str, precision: str) -> PeerRate:
        """Another engine.

        Args:
            precision: for those on a GPU. Without one that the file can have, it runs as it is.
        """
        own = self._subject.precision
        halve = name != ON_CPU and (own, precision) == ("fp32", "fp16")

        def measure(folder: Path) -> Measured:
            model = self._options.engine.model.resolve()
            inputs = self._subject.inputs
            if halve:
                model = _half_file(model, folder)
                inputs = {
                    key: array.astype(np.float16) if array.dtype == np.float32 else array
                    for key, array in inputs.items()
                }
            program.save(folder / "inputs.npz", inputs)
            command = [str(self._options.pythons.get(name) or sys.executable), program.__file__]
            more = {
                "model": str(model),
                "precision": "fp16" if halve else own,
                "threads": self._options.threads,
                "device": self._options.engine.device,
                "level": self._options.engine.builder_level,
            }
            return run(command, folder, self._job(name, more), self._options.timeout_s)

        return self._row(PEERS[name], measure)

    def _by_lookout(self, name: str, model: Path | str, folder: Path) -> Measured:
        """Run a backend of Lookout."""
        program.save(folder / "pictures.npz", {"pictures": self._subject.pictures})
        options = self._options.engine
        served = name == SERVED
        values = {
            "path": str(model),
            "labels": options.labels,
            "precision": "auto" if served else options.precision,
            "builder_level": options.builder_level,
            "cache": str(options.cache) if options.cache else None,
            "max_batch": len(self._subject.pictures),
            "device": options.device,
        }
        command = [sys.executable, "-m", "tests.bench.peers.own"]
        return run(command, folder, self._job(name, {"options": values}), self._options.timeout_s)

    def _job(self, name: str, more: Mapping[str, Any]) -> dict[str, Any]:
        subject = self._subject
        common = {"peer": name, "batch": len(subject.pictures), "rows": subject.rows}
        return {**common, "seconds": self._options.engine.seconds, **more}

    def _row(self, title: str, measure: Callable[[Path], Measured]) -> PeerRate:
        with TemporaryDirectory(prefix="lookout-peer-") as folder:
            try:
                found = measure(Path(folder))
            except (LookoutError, DetectorError) as error:
                return PeerRate(title, note=f"not run: {error}")
        difference, relative, fault = differences(self._subject.expected, found.outputs)
        figures = {**found.figures, "note": "; ".join(filter(None, (found.figures["note"], fault)))}
        return PeerRate(title, **figures, difference=difference, relative=relative)


def differences(expected: Arrays, found: Arrays) -> tuple[float | None, float | None, str]:
    """The largest difference of raw outputs, it as a share of the output's largest value, and why there is none."""
    largest, share = 0.0, 0.0
    for name, values in expected.items():
        other = found.get(name)
        if other is None or other.shape != values.shape:
            shape = "missing" if other is None else str(other.shape)
            return None, None, f"output {name} is {shape}, not {values.shape}"
        if not np.isfinite(other).all():
            return None, None, f"output {name} has NaN or infinity"
        worst = float(np.abs(values.astype(np.float64) - other.astype(np.float64)).max(initial=0.0))
        largest = max(largest, worst)
        share = max(share, worst / max(float(np.abs(values).max(initial=0.0)), 1e-12))
    return largest, share, ""


def _gpu_precision(asked: str, own: PeerRate, file: str) -> str:
    """The precision of the engines on a GPU: as asked for, as Lookout's own engine has it, or as it would have it."""
    if asked != "auto":
        return asked
    if own.images_per_s is not None:
        return own.precision
    return "fp16" if file == "fp32" else file


def _half_file(model: Path, folder: Path) -> Path:
    """The file as Lookout converts it to FP16.

    Raises:
        LookoutError: onnx is missing.
        DetectorError: the file cannot be converted.
    """
    try:
        import onnx
    except ImportError as error:
        raise LookoutError("FP16 needs onnx: pip install onnx, or --precision fp32") from error
    from detectors.half import to_half

    path = folder / f"{model.stem}.fp16.onnx"
    onnx.save(to_half(onnx.load(str(model))), str(path))
    return path
