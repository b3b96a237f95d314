"""Attaches the HTTP API. Its libraries are an optional extra, so this file is imported where there is an API."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from daemon import __version__
from daemon.clock import Clock
from daemon.config.http import HttpConfig
from daemon.config.root import Config
from daemon.control.source_store import SourceStore
from daemon.fleet.figures import FleetParts
from daemon.http.access import Access
from daemon.http.events import EventOperations
from daemon.http.exposition import Exposition, Figures, Histograms
from daemon.http.fleet import FleetCommands, FleetOperations
from daemon.http.health import HealthOperations
from daemon.http.overview import OverviewOperations
from daemon.http.routes import application
from daemon.http.server import HttpServer
from daemon.http.snapshots import Snapshots
from daemon.http.source_checks import CheckOperations
from daemon.http.source_pictures import PictureOperations
from daemon.http.source_rows import SourceRows
from daemon.http.sources import SourceOperations
from daemon.http.status import StatusOperations
from daemon.lifecycle import Phase, Steps
from daemon.parts import DaemonParts
from daemon.pipeline.core import Core

if TYPE_CHECKING:
    from daemon.http.recording_exposition import RecordingExposition
    from daemon.http.recording_rows import RecordingRows


@dataclass(frozen=True)
class Api:
    """The API, bound to its port before anything slow is opened, and served once the daemon is built.

    Attributes:
        histograms: take the rows of all frames.
        facts: of other parts of the daemon, for `GET /api/v1/daemon`; each part notes its own before `serve`.
        url: on this machine.
    """

    config: HttpConfig
    server: HttpServer
    access: Access
    histograms: Histograms
    snapshots: Snapshots
    facts: dict[str, object] = field(default_factory=dict)

    @property
    def url(self) -> str:
        config = self.config
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(config.host, config.host)  # noqa: S104 - not bound here
        shown = f"[{host}]" if ":" in host else host
        return f"{'https' if config.tls_certificate else 'http'}://{shown}:{self.server.port}"

    def reload(self, config: Config) -> Callable[[], object]:
        """Read the tokens again; see `Access.reload`."""
        return self.access.reload(config.http)


def open_server(config: HttpConfig, clock: Clock) -> tuple[HttpServer, Access]:
    """The server, bound to its port, and its access control.

    Raises:
        ConfigError: the port cannot be bound, or a token cannot be read.
    """
    access = Access(config, clock)
    return HttpServer(config), access


def open_api(core: Core) -> Api:
    """
    Raises:
        ConfigError: see `open_server`.
    """
    config, life, limit_s = core.config.http, core.life, core.runtime.limits.requests
    server, access = open_server(config, core.runtime.clock)
    snapshots = Snapshots()
    life.add(Steps("requests for pictures", request_stop=snapshots.stop), Phase.INTAKE)
    life.add(Steps("http", start=server.start, join=lambda seconds: server.stop(min(limit_s, seconds))), Phase.API)
    return Api(config, server, access, Histograms(), snapshots)


def serve(api: Api, parts: DaemonParts, fleet: FleetParts | None, read: Callable[[], Config]) -> None:
    """Mount the routes of a daemon.

    Args:
        fleet: None for a daemon without one.
        read: reads the configuration file.
    """
    recording, exposition = _recording(parts)
    figures = Figures(
        models=lambda: parts.detecting.infos,
        publisher=parts.publishing.publisher.metrics,
        report=lambda: parts.monitor.last,
        refused=lambda: api.access.refused,
        reloads=lambda: parts.changes.reloads,
        is_overloaded=lambda: parts.overload.reason is not None,
        events=parts.events,
        classifiers=parts.classifiers.metrics,
        fleet=fleet,
        recording=exposition,
        traces=(lambda: tracing.figures) if (tracing := parts.tracing) else None,
    )
    store = SourceStore(api.config.sources_file) if api.config.sources_file else None
    rows = SourceRows(parts.changes, parts.sources, recording)
    commands = FleetCommands(fleet) if fleet else None

    def facts() -> dict[str, object]:
        return {**_facts(parts, store, fleet, recording), **api.facts}

    features = (
        HealthOperations(parts.health, parts.sources, api.access),
        OverviewOperations(
            Exposition(parts.core.ledger, parts.sources, figures, api.histograms),
            facts,
            parts.changes,
            store,
            read,
        ),
        StatusOperations(parts, facts),
        SourceOperations(rows, parts.changes, api.config, store, commands),
        CheckOperations(parts.changes, api.config),
        PictureOperations(rows, api.snapshots),
        EventOperations(parts.events),
        FleetOperations(commands),
    )
    api.server.mount(application([row for feature in features for row in feature.operations()], api.access))


def _recording(parts: DaemonParts) -> tuple[RecordingRows | None, RecordingExposition | None]:
    """None where there is no store: then nothing of recording is loaded."""
    recording = parts.recording
    if recording is None:
        return None, None
    from daemon.http.recording_exposition import RecordingExposition
    from daemon.http.recording_rows import RecordingRows

    rows = RecordingRows(lambda: recording.figures, lambda: parts.changes.config)
    return rows, RecordingExposition(lambda: recording.figures, parts.core.config.record.stores)


def _facts(
    parts: DaemonParts, store: SourceStore | None, fleet: FleetParts | None, recording: RecordingRows | None
) -> dict[str, object]:
    model, config, infos = parts.model, parts.changes.config, parts.detecting.infos
    return {
        "instance": parts.core.instance,
        "endpoint": parts.endpoint,
        "model": model.name,
        "labels": [*dict.fromkeys(label for info in infos.values() for label in info.labels)],
        "models": {name: {"model": info.name, "labels": [*info.labels]} for name, info in infos.items() if name},
        "tracked": [row.id for row in config.sources if config.tracking_of(row) is not None],
        "version": __version__,
        "persists": store is not None or fleet is not None,
        "fleet": fleet.name if fleet else None,
        "stores": recording.stores() if recording else [],
        "recordings": None,
        "bridge": {"port": config.bridge.port} if config.bridge.port else None,
    }
