"""The load of a benchmark: clips or URLs, assigned to sources in turn."""

from __future__ import annotations

import random
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import msgspec

from daemon.bench.listener import MESSAGES
from daemon.config.events import EventsConfig, SnapshotsConfig
from daemon.config.model import ClassifierConfig, GpuConfig, ModelConfig
from daemon.config.publisher import PublisherConfig
from daemon.config.root import AdmissionMode, BoardConfig, Config, MonitorConfig, check
from daemon.config.sources import AvConfig, Decode, ReconnectConfig, SourceConfig, SourceTracking, TrackingConfig
from daemon.errors import DecodeError, LookoutError
from daemon.redact import Url
from daemon.rule_config import RuleConfig
from daemon.sources.decode import DecoderPool
from daemon.sources.factory import make_source
from daemon.sources.ffmpeg import AvSource
from daemon.sources.port import DecodeBudget, Reader, Source, next_picture
from daemon.system.paths import demo_model
from detectors.factory import Backend, Provider
from detectors.port import Precision, Transport
from lookout.messages import Encoding, FrameClock

_DEPTH = 8  # waiting frames per source; more where few sources must fill two batches
_USUAL_FPS = 25.0
_LEAST_PX = 16  # of a box that a classifier looks at: recordings may be small
_RULES = (
    {"type": "zone", "name": "road", "points": [[0.1, 0.5], [0.5, 0.4], [0.9, 0.5], [0.9, 0.9], [0.1, 0.9]]},
    {"type": "zone", "name": "door", "points": [[0.4, 0.1], [0.6, 0.1], [0.6, 0.35], [0.4, 0.35]], "dwell_s": [2, 10]},
    {"type": "line", "name": "street", "points": [[0.5, 0.1], [0.5, 0.9]]},
    {"type": "gate", "name": "gate", "lines": [[[0.2, 0.6], [0.8, 0.6]], [[0.2, 0.7], [0.8, 0.7]]]},
)


@dataclass(frozen=True)
class Load:
    """See `lookout bench run --help`. There is a model, or several by name, or neither for the demo model."""

    clips: tuple[Path | Url, ...]
    sources: int = 28
    paced: bool = False
    until_end: bool = False
    seconds: float = 20.0
    warm_up: float = 12.0
    phase: float = 2.0
    seed: int = 0
    model: Path | None = None
    models: Mapping[str, Path] = field(default_factory=dict)
    labels: str | None = None
    backend: Backend = "auto"
    provider: Provider | None = None
    provider_device: str | None = None
    transport: Transport = "auto"
    precision: Precision = "auto"
    builder_level: int = 3
    cache: Path | None = None
    threads: int = 0
    lanes: int = 2
    max_batch: int = 32
    batch: int | None = None
    decode: Decode = "auto"
    memory_limit: int | None = None
    processes: int | None = None
    mps: Literal["auto", "off"] = "auto"
    encoding: Encoding = "json"
    admission: AdmissionMode = "off"
    analytics: bool = False
    snapshots: Path | None = None
    classifier: Path | None = None
    classify: str | None = None
    device: int = 0

    @property
    def model_files(self) -> list[Path]:
        """Files or addresses of all models."""
        return [*self.models.values()] or [self.model or demo_model()]

    @property
    def looks(self) -> int:
        """Models that look at each frame, which counts once for each."""
        return len(self.models) or 1

    @property
    def recordings(self) -> list[Path]:
        """The clips, if all are recordings.

        Raises:
            LookoutError: one of them is a URL.
        """
        for clip in self.clips:
            if isinstance(clip, Url):
                raise LookoutError(f"{clip} is live and has no end: use --paced, without --until-end and --limits")
        return [clip for clip in self.clips if isinstance(clip, Path)]


def check_playable(load: Load) -> None:
    """Check clips once, before many sources would retry them like cameras.

    Raises:
        LookoutError: a clip has no picture, or cannot be played as required.
    """
    clips = load.clips if load.paced and not load.until_end else load.recordings
    for clip in dict.fromkeys(clips):
        check_clip(_url(clip))


def check_clip(url: Url) -> None:
    """Raises:
    LookoutError: it has no picture.
    """
    with closing(AvSource(AvConfig(id="clip", url=url, decode="cpu")).open()) as reader:
        while True:
            with suppress(DecodeError):  # a damaged picture among others
                if next_picture(reader) is None:
                    raise LookoutError(f"{url} has no decodable picture: name another recording")
                break


def four_rules() -> list[RuleConfig]:
    """Two zones, a line and a gate."""
    return [msgspec.convert(rule, RuleConfig) for rule in _RULES]


def config_of(load: Load, reconnect: ReconnectConfig | None = None) -> Config:
    """The daemon's configuration. Its monitor drains rows every second but rarely reports, which costs time."""
    depth = max(_DEPTH, -(-2 * (load.batch or load.max_batch) // load.sources))
    rules = four_rules() if load.analytics else []
    names = [*load.models]
    is_tracked = load.analytics or load.classifier is not None
    return check(
        Config(
            model=_model(load, load.model_files[0]),
            models={name: _model(load, path) for name, path in load.models.items()},
            gpu=GpuConfig(device=load.device, memory_limit_mib=load.memory_limit, mps=load.mps),
            capture_processes="auto" if load.processes is None else load.processes,
            sources=[
                AvConfig(
                    id=f"clip-{number}",
                    url=_url(clip),
                    pace="realtime" if load.paced else "fast",
                    loop=isinstance(clip, Path) and not load.until_end,
                    decode=load.decode,
                    model=names or None,
                    tracking=SourceTracking(model=names[0]) if names and is_tracked else None,
                    rules=rules,
                )
                for number in range(load.sources)
                for clip in [load.clips[number % len(load.clips)]]
            ],
            tracking=TrackingConfig(enabled=is_tracked),
            events=EventsConfig(snapshots=SnapshotsConfig(load.snapshots) if load.snapshots else None),
            classifiers=_classifiers(load),
            lanes=load.lanes,
            admission=load.admission,
            reconnect=reconnect or ReconnectConfig(),
            board=BoardConfig(mode="live" if load.paced else "lossless", depth=depth, max_batch=load.batch),
            publisher=PublisherConfig(
                endpoint="tcp://127.0.0.1:*",
                encoding=load.encoding,
                high_water_mark=MESSAGES,
                wait_for_subscriber_s=20,
            ),
            monitor=MonitorConfig(interval_s=60),
        )
    )


def _model(load: Load, path: Path) -> ModelConfig:
    return ModelConfig(
        path=path,
        labels=load.labels,
        backend=load.backend,
        provider=load.provider,
        provider_device=load.provider_device,
        transport=load.transport,
        max_batch=load.max_batch,
        precision=load.precision,
        builder_level=load.builder_level,
        cache=load.cache,
        threads=load.threads,
    )


def _classifiers(load: Load) -> list[ClassifierConfig]:
    """The second stage, with its defaults. Its cost does not depend on the colours that it reads."""
    if load.classifier is None or load.classify is None:
        return []
    wanted = load.classify.split(",")
    mean, std = (0.0,) * 3, (1.0,) * 3
    first, path = next(iter(load.models), None), load.classifier
    return [
        ClassifierConfig(name="classifier", path=path, mean=mean, std=std, model=first, wanted=wanted, min_px=_LEAST_PX)
    ]


class PhasedSources:
    """Makes a load's sources. Looped clips start at random offsets in their first `phase` seconds, because key frames
    of real cameras do not coincide. Picklable, for capture processes."""

    def __init__(self, config: Config, load: Load) -> None:
        chance = random.Random(load.seed)  # noqa: S311 - reproducible
        offsets = {source.id: chance.uniform(0, load.phase) for source in config.active}
        self.offsets: Mapping[str, float] = {} if load.until_end else offsets

    def __call__(self, config: SourceConfig, hardware: DecoderPool) -> Source:
        source = make_source(config, hardware)
        offset = self.offsets.get(config.id, 0.0)
        return _Phased(source, offset) if offset and getattr(config, "loop", False) else source


class _Phased:
    """A looped recording that starts at an offset."""

    plays_once = False

    def __init__(self, source: Source, offset: float) -> None:
        self._source, self._offset = source, offset
        self.live, self.realtime = source.live, source.realtime
        self.clock: FrameClock = source.clock

    @property
    def has_next(self) -> bool:
        return self._source.has_next

    def open(self, budget: DecodeBudget | None = None) -> Reader:
        reader = self._source.open(budget)
        try:
            for _ in range(round(self._offset * (reader.format.fps or _USUAL_FPS))):
                with suppress(DecodeError):
                    next_picture(reader)
        except BaseException:
            reader.close()
            raise
        return reader


def _url(clip: Path | Url) -> Url:
    return clip if isinstance(clip, Url) else Url(str(clip))
