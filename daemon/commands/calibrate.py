"""`lookout calibrate`: samples frames, runs `calibration`, and writes its report."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from time import monotonic

import msgspec
import numpy as np
from rich.console import Console
from rich.table import Table

from calibration.calibrate import Calibration, CalibrationConfig
from calibration.coco import require_pycocotools
from calibration.frames import FrameSet, Sampler, SourceFrame, photos
from calibration.outcome import Outcome, Trial, exit_code
from daemon.clock import SystemClock, utc_text
from daemon.commands.report import check_pages, number, write_pages
from daemon.commands.report.calibration import page_of
from daemon.commands.report.environment import Environment, collect_environment
from daemon.config.load import load
from daemon.config.sources import AvConfig, SourceConfig, SyntheticConfig
from daemon.errors import DecodeError, LookoutError, SourceError
from daemon.monitoring.probes import open_gpu_probe
from daemon.progress import progress
from daemon.redact import Url
from daemon.sources.factory import make_source
from daemon.sources.port import next_picture
from detectors.factory import Backend, best_backend, open_detector
from detectors.port import on_host

_CONFIGS = (".yaml", ".yml")
_CLIPS = (".mp4", ".mkv", ".mov", ".avi", ".ts")
_SCHEMA = "lookout.calibration/2"
_MAX_DECODE_ERRORS = 100
_COLOURS = {"accepted": "green", "undecided": "yellow", "refused": "red"}


@dataclass(frozen=True)
class FrameSelection:
    """The frames to sample; see `lookout calibrate --help`."""

    origins: tuple[Path, ...]
    count: int = 128
    held_out: int = 48
    minimum: int = 32
    seconds: float = 60.0
    seed: int = 0


@dataclass(frozen=True)
class CalibrationReport:
    """The content of calibration.json."""

    environment: Environment
    outcome: Outcome
    seconds: float
    schema: str = _SCHEMA


def calibrate(config: CalibrationConfig, selection: FrameSelection, backend: Backend) -> int:
    """Calibrate a model. 0: the requested precision may be deployed; 1: it was refused; 3: it is undecided.

    Raises:
        LookoutError: frames cannot be read, or files cannot be written.
        DetectorError: the model cannot be used or evaluated.
    """
    check_pages()
    if config.labelled:
        require_pycocotools()
    began = monotonic()
    if backend == "auto":
        backend = best_backend()
    config = replace(config, backend=backend)
    if config.has_labels:
        selection = replace(selection, held_out=0)
    environment = collect_environment([config.options.path])
    probe = open_gpu_probe()
    with closing(probe):
        frames = _sample_frames(selection, config.folder / "frames")

        def energy() -> float | None:
            rows = probe.read() or []
            return rows[config.options.device].energy_j if config.options.device < len(rows) else None

        run = Calibration(
            config,
            lambda options: open_detector(backend, options),
            lambda options: open_detector("cpu", replace(options, max_batch=1)),
            frames,
            energy,
            _task,
            utc_text(SystemClock().utc_ns()),
        )
        outcome = run.run()
    report = CalibrationReport(environment, outcome, round(monotonic() - began, 1))
    paths = _write(config.folder, report)
    _print(outcome, config.folder, paths)
    return exit_code(outcome.trials, config.precision)


def _sample_frames(selection: FrameSelection, folder: Path) -> FrameSet:
    """Read every frame of every origin and keep a sample."""
    sources = [row for origin in selection.origins for row in _sources(origin, selection.seconds)]
    sampler = Sampler(selection.count, selection.held_out, selection.seed)
    with _task("frames of each source", len(sources)) as advance:
        for read in sources:
            sampler.add(read(), len(sources))
            advance()
    return sampler.choose(folder, selection.minimum)


def _sources(origin: Path, seconds: float) -> list[Callable[[], Iterator[SourceFrame]]]:
    """A reader for each source of an origin: a folder of photos or clips, a clip, or a configuration."""
    if not origin.exists():
        raise LookoutError(f"--from {origin} does not exist: name a clip, a folder, or a configuration")
    if origin.is_dir():
        clips = sorted(path for path in origin.iterdir() if path.suffix.lower() in _CLIPS)
        return [_clip(clip, seconds) for clip in clips] or [lambda: photos(origin)]
    if origin.suffix.lower() in _CONFIGS:
        return [_frames_of(source, seconds) for source in load(origin).active]
    return [_clip(origin, seconds)]


def _clip(path: Path, seconds: float) -> Callable[[], Iterator[SourceFrame]]:
    return _frames_of(AvConfig(id=path.stem, url=Url(str(path)), pace="fast", decode="cpu"), seconds)


def _frames_of(config: SourceConfig, seconds: float) -> Callable[[], Iterator[SourceFrame]]:
    """A reader of a source's frames: all frames of a recording, `seconds` of a camera."""
    if isinstance(config, AvConfig):
        config = msgspec.structs.replace(config, decode="cpu", pace="fast", loop=False)
    elif isinstance(config, SyntheticConfig):
        config = msgspec.structs.replace(config, frames=config.frames or round(seconds * config.fps))

    def read() -> Iterator[SourceFrame]:
        source = make_source(config)
        began = monotonic()
        until = began + seconds
        index = errors = 0
        try:
            with closing(source.open()) as reader:
                while not source.live or monotonic() < until:
                    try:
                        picture = next_picture(reader)
                        if picture is None:
                            return
                        bgr = on_host(picture.load()).bgr
                        at = monotonic() - began if picture.pts is None else picture.pts / 1e9
                    except DecodeError as error:
                        errors += 1
                        if errors > _MAX_DECODE_ERRORS:
                            raise SourceError(f"too many pictures cannot be decoded: {error}") from error
                        continue
                    yield SourceFrame(config.id, index, np.asarray(bgr), at)
                    index += 1
        except SourceError as error:
            raise LookoutError(f"--from: {config.id}: {error}") from error

    return read


def _write(folder: Path, report: CalibrationReport) -> list[Path]:
    figures = folder / "calibration.json"
    try:
        figures.write_bytes(msgspec.json.format(msgspec.json.encode(asdict(report)), indent=1) + b"\n")
    except OSError as error:
        raise LookoutError(f"{figures} cannot be written: {error.strerror}") from error
    return [figures, *write_pages(folder / "calibration", page_of(report.outcome, report.seconds), report.environment)]


def _print(outcome: Outcome, folder: Path, paths: Sequence[Path]) -> None:
    console = Console()
    table = Table()
    for name in ("precision", "", outcome.measure, "drop (95 %)", "frames/s"):
        table.add_column(name, no_wrap=True)
    table.add_column("file")
    for trial in outcome.trials:
        table.add_row(*_row(trial))
    console.print(table)
    for trial in outcome.trials[1:]:
        console.print(f"{trial.precision}: {trial.reason}", highlight=False, soft_wrap=True, markup=False)
    chosen = next(trial for trial in outcome.trials if trial.precision == outcome.chosen)
    console.print(f"run {outcome.chosen} ({chosen.file}): {outcome.why}", highlight=False, soft_wrap=True, markup=False)
    console.print(f"in {folder}: {', '.join(path.name for path in paths)}", highlight=False, soft_wrap=True)


def _row(trial: Trial) -> tuple[str, ...]:
    ruling = f"[{_COLOURS[trial.ruling]}]{trial.ruling}[/]"
    found, speed = trial.interval, trial.speed
    loss = f"{found.drop:+.4f} ({found.low:+.4f} to {found.high:+.4f})" if found else ""
    return (trial.precision, ruling, number(trial.value), loss, number(speed.fps) if speed else "", trial.file or "")


@contextmanager
def _task(name: str, steps: int) -> Iterator[Callable[[], None]]:
    """A task of the calibration; see `calibration.restoration.ProgressTask`."""
    with progress(f"calibrate: {name}", "steps") as shown:
        shown.tell(0, steps)
        yield shown.advance
