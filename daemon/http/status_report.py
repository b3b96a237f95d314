"""All that an operator wants to know of a running daemon, as `lookout status` shows it."""

from __future__ import annotations

from typing import Literal

import msgspec

from lookout.messages import GpuMetrics


class TroubleReport(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is down, or works less well than it should.

    Attributes:
        what: such as `source door`, `store disk` or `lane-0`.
        since: UTC ns.
        retry_in_s: seconds to the next try; null where none is planned, or nobody knows.
    """

    what: str
    since: int
    reason: str
    retry_in_s: float | None = None


class SourceReport(msgspec.Struct, frozen=True, kw_only=True):
    """
    Attributes:
        since: UTC ns, since when it is up, is not, or has ended; null while it is disabled.
        reason: why it is not up, or up at less than its full rate; null otherwise.
        retry_in_s: seconds to the next try, when down.
        captured_fps, published_fps: over the last interval of the monitor; null before its end.
        captured, published: frames since the start.
        dropped: frames since the start, by cause; causes without a frame are left out.
    """

    id: str
    state: Literal["connecting", "up", "stalled", "down", "ended", "disabled"]
    since: int | None = None
    reason: str | None = None
    retry_in_s: float | None = None
    captured_fps: float | None = None
    published_fps: float | None = None
    captured: int = 0
    published: int = 0
    dropped: dict[str, int] = {}


class ModelReport(msgspec.Struct, frozen=True, kw_only=True):
    """
    Attributes:
        name: null where there is one model.
        gpu: its number; null without.
        fps: frames a second that are published, over the last interval; null before its end.
    """

    name: str | None
    model: str
    backend: str
    precision: str
    gpu: int | None
    fps: float | None


class StoreReport(msgspec.Struct, frozen=True, kw_only=True):
    """A store of recordings.

    Attributes:
        cause: why nothing can be written, with `reason` in words; null if it can.
        bytes: of its recordings.
        free_bytes: of its disk.
    """

    name: str
    cause: str | None
    reason: str | None
    bytes: int
    free_bytes: int | None


class DaemonReport(msgspec.Struct, frozen=True, kw_only=True):
    """
    Attributes:
        at: UTC ns, of the report.
        since: UTC ns, of the state.
        fps: frames a second that are published, of all sources; null before the first interval of the monitor ends.
        gpus: null where there is none to ask.
        bridge: port of the bridge's account on the same address; null without.
        fleet: its name; null without.
        log_level: in use.
        reloads: by result, `applied` and `refused`, since the start.
        troubles: empty if all is well.
    """

    schema: Literal["lookout.daemon/1"] = "lookout.daemon/1"
    at: int
    state: Literal["starting", "running", "stopping"]
    since: int
    version: str
    instance: str
    endpoint: str
    fps: float | None
    cpu_percent: float | None
    rss_bytes: int | None
    sources: list[SourceReport]
    models: list[ModelReport]
    gpus: list[GpuMetrics] | None
    stores: list[StoreReport]
    bridge: int | None
    fleet: str | None
    log_level: str
    reloads: dict[str, int]
    troubles: list[TroubleReport]
