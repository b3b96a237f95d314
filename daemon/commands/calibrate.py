"""`lookout calibrate`: frames from wherever they are, a run of `calibration`, and a page of what came of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from time import monotonic

import msgspec
import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from calibration.calibrate import Calibration, CalibrationConfig
from calibration.frames import FrameSet, Sampler, Seen, photos
from calibration.outcome import Outcome, Trial, exit_code
from calibration.steering import Stage
from daemon.clock import SystemClock, utc_text
from daemon.commands.report import check_pages, number, write_pages
from daemon.commands.report.calibration import page_of
from daemon.commands.report.environment import Environment, collect_environment
from daemon.config import AvConfig, SourceConfig, SyntheticConfig, load
from daemon.errors import DecodeError, LookoutError, SourceError
from daemon.monitoring.probes import open_gpu_probe
from daemon.redact import Url
from daemon.sources.factory import make_source
from daemon.sources.port import next_picture
from detectors.factory import Backend, best_backend, open_detector
from detectors.port import on_host

_CONFIGS = (".yaml", ".yml")
_CLIPS = (".mp4", ".mkv", ".mov", ".avi", ".ts")
_SCHEMA = "lookout.calibration/2"
_MOST_ERRORS = 100
_COLOURS = {"accepted": "green", "undecided": "yellow", "refused": "red"}


@dataclass(frozen=True)
class FrameSelection:
    """Which frames; see `lookout calibrate --help`."""

    origins: tuple[Path, ...]
    count: int = 128
    held_out: int = 48
    least: int = 32
    seconds: float = 60.0
    seed: int = 0


@dataclass(frozen=True)
class CalibrationReport:
    """The file."""

    environment: Environment
    outcome: Outcome
    seconds: float
    schema: str = _SCHEMA


def calibrate(wishes: CalibrationConfig, gathering: FrameSelection, backend: Backend) -> int:
    """Run it; 0 if the precision that was asked for may be deployed, 1 if it was refused, 3 if that is undecided.

    Raises:
        LookoutError: frames cannot be had, or files cannot be written.
        DetectorError: the model cannot be used or judged.
    """
    check_pages()
    began = monotonic()
    if backend == "auto":
        backend = best_backend()
    wishes = replace(wishes, backend=backend)
    if wishes.labelled:
        gathering = replace(gathering, held_out=0)
    environment = collect_environment([wishes.options.path])
    console = Console(stderr=True)
    probe = open_gpu_probe()
    with _progress(console) as stage, closing(probe):
        frames = _gather(gathering, wishes.folder / "frames", stage)

        def energy() -> float | None:
            rows = probe.read() or []
            return rows[wishes.options.device].energy_j if wishes.options.device < len(rows) else None

        run = Calibration(
            wishes,
            lambda options: open_detector(backend, options),
            lambda options: open_detector("cpu", replace(options, max_batch=1)),
            frames,
            energy,
            stage,
            utc_text(SystemClock().utc_ns()),
        )
        outcome = run.run()
    report = CalibrationReport(environment, outcome, round(monotonic() - began, 1))
    paths = _write(wishes.folder, report)
    _say(outcome, wishes.folder, paths)
    return exit_code(outcome.trials, wishes.precision)


def _gather(gathering: FrameSelection, folder: Path, stage: Stage) -> FrameSet:
    """Look at every frame of every origin, keep some."""
    sources = [row for origin in gathering.origins for row in _sources(origin, gathering.seconds)]
    sampler = Sampler(gathering.count, gathering.held_out, gathering.seed)
    with stage("frames of each source", len(sources)) as advance:
        for read in sources:
            sampler.take(read(), len(sources))
            advance()
    return sampler.choose(folder, gathering.least)


def _sources(origin: Path, seconds: float) -> list[Callable[[], Iterator[Seen]]]:
    """What reads each source of an origin: a folder of photos or clips, a clip, or a configuration."""
    if not origin.exists():
        raise LookoutError(f"--from {origin} does not exist: name a clip, a folder, or a configuration")
    if origin.is_dir():
        clips = sorted(
            path for path in origin.iterdir() if path.suffix.lower() in (".mp4", ".mkv", ".mov", ".avi", ".ts")
        )
        return [_clip(clip, seconds) for clip in clips] or [lambda: photos(origin)]
    if origin.suffix.lower() in _CONFIGS:
        return [_reading(source, seconds) for source in load(origin).active]
    return [_clip(origin, seconds)]


def _clip(path: Path, seconds: float) -> Callable[[], Iterator[Seen]]:
    return _reading(AvConfig(id=path.stem, url=Url(str(path)), pace="fast", decode="cpu"), seconds)


def _reading(config: SourceConfig, seconds: float) -> Callable[[], Iterator[Seen]]:
    """Its frames, as the daemon would see them: a recording's all, a camera's of so many seconds."""
    if isinstance(config, AvConfig):
        config = msgspec.structs.replace(config, decode="cpu", pace="fast", loop=False)
    elif isinstance(config, SyntheticConfig):
        config = msgspec.structs.replace(config, frames=config.frames or round(seconds * config.fps))

    def read() -> Iterator[Seen]:
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
                        if errors > _MOST_ERRORS:
                            raise SourceError(f"too many pictures cannot be decoded: {error}") from error
                        continue
                    yield Seen(config.id, index, np.asarray(bgr), at)
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


def _say(outcome: Outcome, folder: Path, paths: Sequence[Path]) -> None:
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
def _progress(console: Console) -> Iterator[Stage]:
    """A bar for what is under way, and a line for what is done."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:

        @contextmanager
        def stage(name: str, steps: int) -> Iterator[Callable[[], None]]:
            task = progress.add_task(name, total=steps or None)
            try:
                yield lambda: progress.advance(task)
            finally:
                done = max(1, int(progress.tasks[task].completed))
                progress.update(task, total=done, completed=done)

        yield stage
