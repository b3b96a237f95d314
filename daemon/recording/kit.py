"""Attaches recording: a process for each store, and one for streams that are recorded alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import structlog

from daemon.lifecycle import Phase, Steps

if TYPE_CHECKING:
    from daemon.config.recording import RecordConfig, StoreConfig
    from daemon.pipeline.core import Core
    from daemon.recording.directory import RingDirectory
    from daemon.recording.process.store_process import StoreProcess
    from daemon.recording.recorder import StorePlace
    from daemon.recording.recording import Recording
    from daemon.recording.ring import Ring
    from daemon.recording.tracks.tap import TrackTap
    from lookout.messages import Owner

log = structlog.get_logger(__name__)
_GIB, _DAY_NS = 1 << 30, 86_400_000_000_000
_LEAST_TRACK_BYTES, _MOST_TRACK_BYTES = 32 << 20, 512 << 20  # of boxes that wait to be written, of a store


def open_recording(core: Core, owner: Callable[[str], Owner | None] | None) -> Recording:
    """
    Args:
        owner: of a source, where several daemons share them.
    """
    from daemon.recording.directory import RingDirectory
    from daemon.recording.recording import Recording
    from daemon.recording.ring import Ring
    from daemon.recording.streams.main import StreamsOrder
    from daemon.recording.streams.process import StreamsProcess, StreamState
    from daemon.recording.streams.stream import StreamRules
    from daemon.recording.tracks.tap import TrackTap

    config, life, runtime = core.config, core.life, core.runtime
    directory = RingDirectory()
    stores: dict[str, StoreProcess] = {}
    size = min(_MOST_TRACK_BYTES, max(_LEAST_TRACK_BYTES, len(config.active) << 20))
    tracks = {name: Ring(f"tracks {name}", size) for name in config.record.stores}
    rules = StreamRules(config.reconnect, config.monitor.stall_after_s)

    def _on_stream(told: StreamState) -> None:
        recording.on_stream(told)

    streams = StreamsProcess(directory, StreamsOrder(rules, config.log), _on_stream, runtime)
    for name, store in config.record.stores.items():
        stores[name] = _store_process(core, name, store, lambda: recording, tracks[name])
        log.info("recordings", store=name, path=str(store.path))
    tap = TrackTap(tracks, runtime.clock)
    recording = Recording(core, directory, stores, streams, owner, tap)
    for part in stores.values():
        life.add(part, Phase.STORES)
    life.add(Steps("rings", join=lambda _: _close(directory, tap, tracks)), Phase.STORES)
    life.add(streams, Phase.SOURCES)
    # After the processes have begun, before the sources do.
    life.add(Steps("recording", start=lambda: recording.start(config)), Phase.SOURCES)
    return recording


def _close(directory: RingDirectory, tap: TrackTap, tracks: Mapping[str, Ring]) -> None:
    """All rings, after the processes that read them have ended."""
    rings = [*tracks.values(), *(ring for store in tracks for ring in directory.of_store(store).values())]
    directory.close()
    tap.close()
    for ring in rings:
        ring.close()


def _store_process(
    core: Core, name: str, store: StoreConfig, recording: Callable[[], Recording], tracks: Ring
) -> StoreProcess:
    from daemon.recording.process.main import RecorderOrder
    from daemon.recording.process.protocol import ClipTold
    from daemon.recording.process.store_process import StoreFigures, StoreProcess

    def tell(told: ClipTold | StoreFigures) -> None:
        if isinstance(told, ClipTold):
            recording().on_clip(name, told)
        else:
            recording().on_store(told)

    order = RecorderOrder(place_of(core.config.record, store), core.instance, core.config.log)
    return StoreProcess(name, order, tell, tracks, core.runtime)


def place_of(record: RecordConfig, store: StoreConfig) -> StorePlace:
    """A store as its process has it."""
    from daemon.recording.recorder import StorePlace
    from daemon.recording.retention import Rules

    rules = Rules(
        max_bytes=None if store.max_gib is None else round(store.max_gib * _GIB),
        min_free_bytes=round(store.min_free_gib * _GIB),
        continuous_ns=round(record.keep.continuous_days * _DAY_NS),
        events_ns=round(record.keep.events_days * _DAY_NS),
    )
    return StorePlace(str(store.path), store.must_be_mount, rules)
