"""What benchmarks of the whole daemon run: one recording, or one URL, as many sources."""

from __future__ import annotations

from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from daemon.admission import Mode
from daemon.bench.listener import MESSAGES
from daemon.config import (
    AvConfig,
    BoardConfig,
    Config,
    Decode,
    GpuConfig,
    ModelConfig,
    MonitorConfig,
    PublisherConfig,
    ReconnectConfig,
    check,
)
from daemon.errors import DecodeError, LookoutError
from daemon.messages import Encoding
from daemon.paths import demo_model
from daemon.redact import Url
from daemon.sources.av import AvSource
from detectors.factory import Backend
from detectors.port import Precision

_DEPTH = 8


@dataclass(frozen=True)
class Load:
    """See `lookout bench streams --help`."""

    clip: Path | Url
    sources: int = 28
    paced: bool = False
    seconds: float = 20.0
    warm_up: float = 12.0
    model: Path | None = None
    labels: str | None = None
    backend: Backend = "auto"
    precision: Precision = "auto"
    builder_level: int = 3
    cache: Path | None = None
    lanes: int = 2
    max_batch: int = 32
    batch: int | None = None
    decode: Decode = "auto"
    memory_limit: int | None = None
    processes: int | None = None
    mps: Literal["auto", "off"] = "auto"
    encoding: Encoding = "json"
    admission: Mode = "off"
    device: int = 0

    @property
    def url(self) -> Url:
        """Of a source."""
        return self.clip if isinstance(self.clip, Url) else Url(str(self.clip))

    @property
    def recording(self) -> Path:
        """For what needs one.

        Raises:
            LookoutError: it is a URL.
        """
        if isinstance(self.clip, Url):
            raise LookoutError(f"{self.clip} comes at its own pace: name a recording, or use --paced and no limits")
        return self.clip


def check_playable(load: Load) -> None:
    """Before many sources try it over and over, as they would a camera.

    Raises:
        LookoutError: it has no picture, or cannot be played as is asked.
    """
    url = load.url if load.paced else Url(str(load.recording))
    with closing(AvSource(AvConfig(id="clip", url=url, decode="cpu")).open()) as reader:
        while True:
            with suppress(DecodeError):  # one that is damaged, of many
                if reader.read() is None:
                    raise LookoutError(f"{url} has no picture that can be decoded: name another recording")
                return


def config_of(load: Load, reconnect: ReconnectConfig | None = None) -> Config:
    """The daemon's configuration; a recording is looped for ever."""
    return check(
        Config(
            model=ModelConfig(
                path=load.model or demo_model(),
                labels=load.labels,
                backend=load.backend,
                max_batch=load.max_batch,
                precision=load.precision,
                builder_level=load.builder_level,
                cache=load.cache,
            ),
            gpu=GpuConfig(device=load.device, memory_limit_mib=load.memory_limit, mps=load.mps),
            capture_processes="auto" if load.processes is None else load.processes,
            sources=[
                AvConfig(
                    id=f"clip-{number}",
                    url=load.url,
                    pace="realtime" if load.paced else "fast",
                    loop=isinstance(load.clip, Path),
                    decode=load.decode,
                )
                for number in range(load.sources)
            ],
            lanes=load.lanes,
            admission=load.admission,
            reconnect=reconnect or ReconnectConfig(),
            board=BoardConfig(mode="live" if load.paced else "lossless", depth=_DEPTH, max_batch=load.batch),
            publisher=PublisherConfig(
                endpoint="tcp://127.0.0.1:*",
                encoding=load.encoding,
                high_water_mark=MESSAGES,
                wait_for_subscriber_s=20,
            ),
            monitor=MonitorConfig(interval_s=60),
        )
    )
