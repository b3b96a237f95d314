"""Metrics in Prometheus's text format, by its own client library."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, InfoMetricFamily
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar

from daemon import __version__
from daemon.analytics.event_publisher import EventPublisher
from daemon.control.sources import SourceManager
from daemon.fleet.figures import FleetParts
from daemon.http.fleet_exposition import FleetExposition
from daemon.pipeline.drop_causes import CAUSES
from daemon.pipeline.ledger import STAGES, Counts, Ledger, Rows
from detectors.port import ModelInfo
from lookout.messages import ClassifierMetrics, CropsDropped, Metrics, PublisherMetrics

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

    from daemon.http.recording_exposition import RecordingExposition
    from daemon.tracing.exporter import ExporterFigures
    from daemon.tracing.record import SentFrame

_BUCKETS_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
_EDGES_NS = np.array([round(edge * 1e9) for edge in _BUCKETS_S])
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OPEN_METRICS = "application/openmetrics-text"
OPEN_METRICS_TYPE = f"{OPEN_METRICS}; version=1.0.0; charset=utf-8"


class Histograms:
    """Histograms of each stage's time since the start. The monitor gives it all rows, and tracing what it has sent."""

    def __init__(self) -> None:
        self._traced: dict[tuple[str, int], tuple[float, Exemplar]] = {}  # the last one of each bucket, and when
        self._counts = {stage: np.zeros(len(_BUCKETS_S) + 1, np.int64) for stage in STAGES}
        self._sums = dict.fromkeys(STAGES, 0)
        self._lock = threading.Lock()

    def observe(self, rows: Rows) -> None:
        published = rows[rows["dropped"] == 0]
        with self._lock:
            for stage in STAGES:
                values = published[stage]
                buckets = np.searchsorted(_EDGES_NS, values)
                self._counts[stage] += np.bincount(buckets, minlength=len(_BUCKETS_S) + 1)
                self._sums[stage] += int(values.sum())

    def note_traces(self, frames: Sequence[SentFrame]) -> None:
        """Note frames whose traces a collector has: the last one of each bucket is shown."""
        with self._lock:
            for frame in frames:
                at_s = (frame.captured_ns + frame.latency.total + frame.offset_ns) / 1e9
                for stage in STAGES:
                    value = getattr(frame.latency, stage)
                    place = stage, int(np.searchsorted(_EDGES_NS, value))
                    if place not in self._traced or self._traced[place][0] < at_s:
                        self._traced[place] = at_s, Exemplar({"trace_id": frame.ids.trace}, value / 1e9, at_s)

    def family(self) -> HistogramMetricFamily:
        family = HistogramMetricFamily("lookout_stage_seconds", "Time of a published frame by stage.", labels=["stage"])
        with self._lock:
            for stage in STAGES:
                rows: list[Any] = [*zip([*map(repr, _BUCKETS_S), "+Inf"], np.cumsum(self._counts[stage]).tolist())]
                for place, row in enumerate(rows):
                    if traced := self._traced.get((stage, place)):
                        rows[place] = *row, traced[1]
                family.add_metric([stage], rows, self._sums[stage] / 1e9)
        return family


@dataclass(frozen=True)
class Figures:
    """Sources of metrics other than frames and sources, read at each scrape.

    Attributes:
        models: by name, which is empty where there is one without.
        report: the monitor's last, None before the first.
        refused: HTTP requests without a valid token since the start.
        reloads: those that were applied (True), and those refused (False).
        is_overloaded: it loses frames because they are too many.
        classifiers: the accounts of classifiers, by name.
        fleet: None for a daemon without one.
        recording: None for a daemon without a store.
        traces: their account; None where no collector is named.
    """

    models: Callable[[], Mapping[str, ModelInfo]]
    publisher: Callable[[], PublisherMetrics]
    report: Callable[[], Metrics | None]
    refused: Callable[[], int]
    reloads: Callable[[], dict[bool, int]]
    is_overloaded: Callable[[], bool]
    events: EventPublisher
    classifiers: Callable[[], dict[str, ClassifierMetrics]]
    fleet: FleetParts | None = None
    recording: RecordingExposition | None = None
    traces: Callable[[], ExporterFigures] | None = None


class Exposition(Collector):
    """Collects a scrape: counters as of now, gauges of the monitor's last report."""

    def __init__(self, ledger: Ledger, sources: SourceManager, figures: Figures, histograms: Histograms) -> None:
        self._ledger, self._sources_now, self._figures = ledger, sources, figures
        self._fleet = FleetExposition(figures.fleet) if figures.fleet else None
        self._histograms = histograms
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def text(self) -> bytes:
        return generate_latest(self._registry)

    def open_metrics(self) -> bytes:
        """The same as OpenMetrics, with a traced frame for each bucket where there is one."""
        text: bytes = openmetrics.generate_latest(self._registry)  # type: ignore[no-untyped-call]
        return text

    def describe(self) -> list[Metric]:
        """Nothing is collected before the first scrape."""
        return []

    def collect(self) -> Iterator[Metric]:
        yield from self._frames()
        yield from self._sources()
        yield self._histograms.family()
        yield CounterMetricFamily(
            "lookout_bad_boxes", "Boxes with impossible values, dropped.", value=self._ledger.bad_boxes
        )
        yield CounterMetricFamily(
            "lookout_candidates_left_out", "Boxes before NMS that exceeded its capacity.", value=self._ledger.left_out
        )
        yield CounterMetricFamily(
            "lookout_boxes_untracked",
            "Boxes that began no track, because their source had too many.",
            value=self._ledger.untracked,
        )
        yield CounterMetricFamily(
            "lookout_masks_left_out",
            "Masks that exceeded publisher.max_masks, not published.",
            value=self._ledger.masks_left_out,
        )
        yield CounterMetricFamily(
            "lookout_http_refused", "Requests without a valid token.", value=self._figures.refused()
        )
        text = "1 if more than a twentieth of all frames was lost for half a minute, because they were too many."
        yield GaugeMetricFamily("lookout_overloaded", text, self._figures.is_overloaded())
        reloads = CounterMetricFamily("lookout_reloads", "Reloads of the configuration.", labels=["result"])
        for is_applied, count in self._figures.reloads().items():
            reloads.add_metric(["applied" if is_applied else "refused"], count)
        yield reloads
        yield from self._events()
        yield from _crops(self._figures.classifiers())
        yield from self._build()
        if self._fleet:
            yield from self._fleet.collect()
        if self._figures.recording:
            yield from self._figures.recording.collect()
        if self._figures.traces:
            yield from _traces(self._figures.traces())
        if (metrics := self._figures.report()) is not None:
            yield from _process(metrics)
            yield from _gpus(metrics)

    def _frames(self) -> Iterator[Metric]:
        captured = CounterMetricFamily("lookout_frames_captured", "Frames captured.", labels=["source"])
        published = CounterMetricFamily("lookout_frames_published", "Frames whose message was sent.", labels=["source"])
        dropped = CounterMetricFamily(
            "lookout_frames_dropped", "Frames captured and not published.", labels=["source", "cause"]
        )
        flying = GaugeMetricFamily(
            "lookout_frames_in_flight", "Frames not yet published or dropped.", labels=["source"]
        )
        passed_over = CounterMetricFamily(
            "lookout_packets_passed_over", "Packets of video that are no frames.", labels=["source", "kind"]
        )
        for source, counts in self._ledger.counts().items():
            captured.add_metric([source], counts.captured)
            published.add_metric([source], counts.published)
            flying.add_metric([source], counts.in_flight)
            for cause in CAUSES:
                dropped.add_metric([source, cause], getattr(counts.dropped, cause))
            for kind, count in counts.passed_over.items():
                passed_over.add_metric([source, kind], count)
        yield from (captured, published, dropped, flying, passed_over)
        if any(self._figures.models()):
            yield from _frames_of_models(self._ledger.counts_by_model())

    def _sources(self) -> Iterator[Metric]:
        up = GaugeMetricFamily("lookout_source_up", "1 if the source is up.", labels=["source"])
        fps = GaugeMetricFamily("lookout_source_nominal_fps", "Frames a second, by the stream.", labels=["source"])
        for capture in self._sources_now.captures:
            up.add_metric([capture.id], capture.state == "up")
            if capture.format and capture.format.fps:
                fps.add_metric([capture.id], capture.format.fps)
        yield from (up, fps)
        publisher = self._figures.publisher()
        yield GaugeMetricFamily("lookout_outbox_messages", "Messages waiting to be sent.", publisher.outbox)
        yield GaugeMetricFamily("lookout_outbox_limit_messages", "Limit of waiting messages.", publisher.outbox_limit)
        yield GaugeMetricFamily("lookout_subscriptions", "Current subscriptions.", publisher.subscriptions)
        text = "Messages beside detections that were not sent: another daemon had the source."
        yield CounterMetricFamily("lookout_messages_fenced", text, value=publisher.fenced)

    def _events(self) -> Iterator[Metric]:
        events = self._figures.events
        names = ["source", "rule", "kind", "phase", "direction", "label"]
        found = CounterMetricFamily("lookout_events", "Events since counting began.", labels=names)
        for key, count in events.totals():
            found.add_metric([value or "" for value in key], count)
        inside = GaugeMetricFamily("lookout_zone_tracks", "Tracks in a zone now.", labels=["source", "rule"])
        for source, rule, count in events.occupancies():
            inside.add_metric([source, rule or ""], count)
        yield from (found, inside)
        yield CounterMetricFamily("lookout_events_uncounted", "Events in no total.", value=events.uncounted)
        if events.journal:
            text = "Events that the journal could not take."
            yield CounterMetricFamily("lookout_journal_lost_events", text, value=events.journal.lost)
        if events.snapshots:
            text = "Pictures of events that could not be written."
            yield CounterMetricFamily("lookout_snapshots_lost", text, value=events.snapshots.lost)

    def _build(self) -> Iterator[Metric]:
        build = InfoMetricFamily("lookout_build", "What runs.")
        build.add_metric([], {"version": __version__})
        serving = InfoMetricFamily("lookout_model", "The models in use.")
        for name, model in self._figures.models().items():
            info = {"name": model.name, "digest": model.digest, "precision": model.precision, "backend": model.backend}
            serving.add_metric([], {**info, **({"model": name} if name else {})})
        yield from (build, serving)


def _frames_of_models(rows: Mapping[str, Mapping[str, Counts]]) -> Iterator[Metric]:
    """Frames at each of several models: what is above is the sum of these."""
    names = ["source", "model"]
    captured = CounterMetricFamily("lookout_model_frames_captured", "Frames captured for a model.", labels=names)
    published = CounterMetricFamily(
        "lookout_model_frames_published", "Frames of a model whose message was sent.", labels=names
    )
    dropped = CounterMetricFamily(
        "lookout_model_frames_dropped", "Frames captured for a model and not published.", labels=[*names, "cause"]
    )
    flying = GaugeMetricFamily(
        "lookout_model_frames_in_flight", "Frames of a model not yet published or dropped.", labels=names
    )
    for source, models in rows.items():
        for model, counts in models.items():
            captured.add_metric([source, model], counts.captured)
            published.add_metric([source, model], counts.published)
            flying.add_metric([source, model], counts.in_flight)
            for cause in CAUSES:
                dropped.add_metric([source, model, cause], getattr(counts.dropped, cause))
    yield from (captured, published, dropped, flying)


def _crops(classifiers: dict[str, ClassifierMetrics]) -> Iterator[Metric]:
    asked = CounterMetricFamily(
        "lookout_crops_requested", "Looks that classifiers were asked for.", labels=["classifier"]
    )
    done = CounterMetricFamily("lookout_crops_classified", "Looks with a result.", labels=["classifier"])
    dropped = CounterMetricFamily("lookout_crops_dropped", "Looks without a result.", labels=["classifier", "cause"])
    pending = GaugeMetricFamily("lookout_crops_pending", "Looks that wait or are under way.", labels=["classifier"])
    up = GaugeMetricFamily("lookout_classifier_up", "0 if the classifier has failed.", labels=["classifier"])
    for name, row in classifiers.items():
        asked.add_metric([name], row.requested)
        done.add_metric([name], row.classified)
        pending.add_metric([name], row.pending)
        up.add_metric([name], row.failure is None)
        for cause in CropsDropped.__struct_fields__:
            dropped.add_metric([name, cause], getattr(row.dropped, cause))
    if classifiers:
        yield from (asked, done, dropped, pending, up)


def _traces(figures: ExporterFigures) -> Iterator[Metric]:
    yield CounterMetricFamily("lookout_traces_sent", "Traces that the collector has taken.", value=figures.sent)
    text = "Traces that were dropped, by cause; limit: of frames for which none was made."
    dropped = CounterMetricFamily("lookout_traces_dropped", text, labels=["cause"])
    for cause, count in figures.dropped.items():
        dropped.add_metric([cause], count)
    yield dropped
    yield GaugeMetricFamily("lookout_traces_waiting", "Traces that are not sent yet.", figures.waiting)
    text = "Spans that the collector has refused, of traces that it has taken."
    yield CounterMetricFamily("lookout_trace_spans_rejected", text, value=figures.rejected_spans)


def _process(metrics: Metrics) -> Iterator[Metric]:
    process = metrics.process
    yield GaugeMetricFamily("lookout_uptime_seconds", "Seconds since the start.", metrics.uptime_s)
    yield GaugeMetricFamily("lookout_cpu_cores", "CPU cores used by all processes.", process.cpu_percent / 100)
    yield GaugeMetricFamily("lookout_resident_memory_bytes", "Resident memory of all processes.", process.rss_bytes)
    yield GaugeMetricFamily("lookout_threads", "Threads of all processes.", process.threads)
    yield GaugeMetricFamily("lookout_open_files", "Open files of all processes.", process.open_files)


def _gpus(metrics: Metrics) -> Iterator[Metric]:
    rows = (
        ("lookout_gpu_utilization_ratio", "Share of time with kernels running.", "utilisation", 0.01),
        ("lookout_gpu_decoder_utilization_ratio", "Utilisation of its decoders.", "decoder_utilisation", 0.01),
        ("lookout_gpu_memory_used_bytes", "Memory used by all programs.", "memory_used_bytes", 1.0),
        ("lookout_gpu_memory_total_bytes", "Total memory.", "memory_total_bytes", 1.0),
        ("lookout_gpu_power_watts", "Drawn now.", "power_w", 1.0),
        ("lookout_gpu_clock_hertz", "SM clock.", "clock_mhz", 1e6),
    )
    gpus = metrics.gpus or []
    for name, words, field, scale in rows:
        family = GaugeMetricFamily(name, words, labels=["gpu", "name"])
        for number, gpu in enumerate(gpus):
            if (value := getattr(gpu, field)) is not None:
                family.add_metric([str(number), gpu.name], value * scale)
        yield family
    energy = CounterMetricFamily("lookout_gpu_energy_joules", "Since the driver was loaded.", labels=["gpu", "name"])
    for number, gpu in enumerate(gpus):
        if gpu.energy_j is not None:
            energy.add_metric([str(number), gpu.name], gpu.energy_j)
    yield energy
