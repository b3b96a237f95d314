"""The account of a bridge in Prometheus's text format."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, get_args

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from prometheus_client.registry import Collector

from daemon import __version__
from daemon.bridge.report import BridgeReport, FeedReport, LinkState, SpoolReport, TargetReport

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

_OUTCOMES: Final = ("delivered", "filtered", "thinned")
_CAUSES: Final = ("stale", "refused", "spool_full", "disk")  # shown as 0, so that the first one is an increase
_FIGURES: Final = ("sent", "thinned", "failed")


class BridgeExposition(Collector):
    """Collects a scrape."""

    def __init__(self, report: Callable[[], BridgeReport]) -> None:
        self._report = report
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def text(self) -> bytes:
        return generate_latest(self._registry)

    def describe(self) -> list[Metric]:
        """Nothing is collected before the first scrape."""
        return []

    def collect(self) -> Iterator[Metric]:
        report = self._report()
        build = InfoMetricFamily("lookout_bridge_build", "What runs.")
        build.add_metric([], {"version": __version__, "id": report.id})
        yield build
        yield from _links(report.targets)
        yield from _records(report.targets)
        yield from _feeds(report.feeds)
        yield from _spool(report.spool)


def _links(targets: list[TargetReport]) -> Iterator[Metric]:
    up = GaugeMetricFamily("lookout_bridge_target_up", "1 while it is connected.", labels=["target", "type"])
    states = GaugeMetricFamily(
        "lookout_bridge_target_state", "1 for the state that it is in.", labels=["target", "state"]
    )
    for row in targets:
        up.add_metric([row.name, row.type], row.state == "up")
        for state in get_args(LinkState):
            states.add_metric([row.name, state], row.state == state)
    yield from (up, states)


def _records(targets: list[TargetReport]) -> Iterator[Metric]:
    received = CounterMetricFamily("lookout_bridge_received", "Records that were for it.", labels=["target"])
    records = CounterMetricFamily(
        "lookout_bridge_records", "Records that are settled and not dropped.", labels=["target", "outcome"]
    )
    dropped = CounterMetricFamily("lookout_bridge_dropped", "Records that are dropped.", labels=["target", "cause"])
    repeated = CounterMetricFamily(
        "lookout_bridge_repeated", "Records sent again: they were not confirmed.", labels=["target"]
    )
    spooled = GaugeMetricFamily("lookout_bridge_spooled", "Records that wait.", labels=["target"])
    oldest = GaugeMetricFamily(
        "lookout_bridge_oldest_seconds", "Age of the oldest record that waits, 0 for none.", labels=["target"]
    )
    figures = CounterMetricFamily("lookout_bridge_figures", "Messages of detections.", labels=["target", "outcome"])
    for row in targets:
        received.add_metric([row.name], row.received)
        for outcome in _OUTCOMES:
            records.add_metric([row.name, outcome], getattr(row, outcome))
        for cause, count in {**dict.fromkeys(_CAUSES, 0), **row.dropped}.items():
            dropped.add_metric([row.name, cause], count)
        repeated.add_metric([row.name], row.repeated)
        spooled.add_metric([row.name], row.spooled)
        oldest.add_metric([row.name], row.oldest_s)
        for outcome in _FIGURES if row.figures.received else ():
            figures.add_metric([row.name, outcome], getattr(row.figures, outcome))
    yield from (received, records, dropped, repeated, spooled, oldest, figures)


def _feeds(feeds: list[FeedReport]) -> Iterator[Metric]:
    up = GaugeMetricFamily("lookout_bridge_feed_up", "1 while the messages of a daemon come.", labels=["daemon"])
    events = CounterMetricFamily(
        "lookout_bridge_feed_events", "Events that came, by the way that they took.", labels=["daemon", "way"]
    )
    lost = CounterMetricFamily("lookout_bridge_feed_lost", "Events that nobody has any more.", labels=["daemon"])
    for row in feeds:
        up.add_metric([row.daemon], row.state == "up")
        events.add_metric([row.daemon, "wire"], row.events - row.filled)
        events.add_metric([row.daemon, "journal"], row.filled)
        lost.add_metric([row.daemon], row.lost)
    yield from (up, events, lost)


def _spool(spool: SpoolReport) -> Iterator[Metric]:
    yield GaugeMetricFamily("lookout_bridge_spool_up", "1 while it can be written.", spool.failure is None)
    yield GaugeMetricFamily("lookout_bridge_spool_records", "Records that a target needs still.", spool.records)
    yield GaugeMetricFamily("lookout_bridge_spool_bytes", "Its size.", spool.bytes)
    yield GaugeMetricFamily("lookout_bridge_spool_limit_bytes", "spool_mib of the configuration.", spool.limit_bytes)
