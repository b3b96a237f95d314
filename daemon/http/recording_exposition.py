"""Metrics of recording, by store and source."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from daemon.config.recording import StoreConfig
from daemon.recording.causes import CAUSES, RECORDED

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

    from daemon.recording.process.store_process import StoreFigures
    from daemon.recording.source_recorder import Account

_GIB = 1 << 30
_UNWANTED = ("off", "no_event")  # causes of gaps that were asked for


@dataclass
class _Marks:
    """The largest values of counters that were shown.

    Attributes:
        packets: of the account that they are of.
    """

    packets: int = 0
    gap_ns: dict[str, int] = field(default_factory=dict)


class RecordingExposition:
    """
    Args:
        figures: of all stores.
        stores: their configuration.
    """

    def __init__(self, figures: Callable[[], Sequence[StoreFigures]], stores: Mapping[str, StoreConfig]) -> None:
        self._figures, self._stores = figures, stores
        self._marks: dict[tuple[str, str], _Marks] = {}

    def collect(self) -> Iterator[Metric]:
        figures = self._figures()
        yield from self._of_stores(figures)
        yield from self._times(figures)
        yield from _packets(figures)

    def _of_stores(self, figures: Sequence[StoreFigures]) -> Iterator[Metric]:
        up = GaugeMetricFamily("lookout_recording_store_up", "1 if it can be written to.", labels=["store", "cause"])
        size = GaugeMetricFamily("lookout_recording_store_bytes", "Bytes of its recordings.", labels=["store"])
        free = GaugeMetricFamily("lookout_recording_store_free_bytes", "Free bytes of its disk.", labels=["store"])
        limit = GaugeMetricFamily("lookout_recording_store_limit_bytes", "max_gib of the store.", labels=["store"])
        least = GaugeMetricFamily("lookout_recording_store_min_free_bytes", "min_free_gib of it.", labels=["store"])
        for row in figures:
            up.add_metric([row.name, row.cause or ""], row.cause is None)
            if row.free_bytes >= 0:
                size.add_metric([row.name], row.bytes)
                free.add_metric([row.name], row.free_bytes)
        for name, store in self._stores.items():
            least.add_metric([name], store.min_free_gib * _GIB)
            if store.max_gib is not None:
                limit.add_metric([name], store.max_gib * _GIB)
        yield from (up, size, free, limit, least)

    def _times(self, figures: Sequence[StoreFigures]) -> Iterator[Metric]:
        names = ["store", "source"]
        recorded = CounterMetricFamily(
            "lookout_recording_recorded_seconds", "Seconds of video on disk since the start.", labels=names
        )
        gaps = CounterMetricFamily(
            "lookout_recording_gap_seconds", "Seconds that are not on disk, by cause.", labels=[*names, "cause"]
        )
        text = "Share of the time on disk since the start, but for gaps that were asked for."
        covered = GaugeMetricFamily("lookout_recording_covered_ratio", text, labels=names)
        for store, account in _accounts(figures):
            key = [store, account.source]
            recorded.add_metric(key, account.recorded_ns / 1e9)
            gap_ns = self._grown(store, account)
            for cause in CAUSES:
                if cause not in RECORDED:
                    gaps.add_metric([*key, cause], gap_ns.get(cause, 0) / 1e9)
            missing = sum(ns for cause, ns in account.gap_ns.items() if cause not in _UNWANTED)
            if account.recorded_ns + missing:
                covered.add_metric(key, account.recorded_ns / (account.recorded_ns + missing))
        yield from (recorded, gaps, covered)

    def _grown(self, store: str, account: Account) -> dict[str, int]:
        """The gaps of an account, none of them shorter than when it was last shown: the first video after a gap may
        have come somewhat before it was taken from memory, and a counter must not fall."""
        packets = account.written + account.released + sum(account.lost.values())
        marks = self._marks.get((store, account.source))
        if marks is None or packets < marks.packets // 2:  # it was forgotten, and is recorded again
            marks = _Marks()
        known = {cause: max(ns, marks.gap_ns.get(cause, 0)) for cause, ns in account.gap_ns.items()}
        self._marks[store, account.source] = _Marks(packets, {**marks.gap_ns, **known})
        return {**marks.gap_ns, **known}


def _packets(figures: Sequence[StoreFigures]) -> Iterator[Metric]:
    names = ["store", "source"]
    packets = CounterMetricFamily(
        "lookout_recording_packets", "Packets that were written, or that no event wanted.", labels=[*names, "outcome"]
    )
    lost = CounterMetricFamily(
        "lookout_recording_packets_lost", "Packets that were not written, by cause.", labels=[*names, "cause"]
    )
    waiting = GaugeMetricFamily("lookout_recording_waiting_bytes", "Bytes of video in memory.", labels=names)
    for store, account in _accounts(figures):
        key = [store, account.source]
        packets.add_metric([*key, "written"], account.written)
        packets.add_metric([*key, "released"], account.released)
        for cause, count in account.lost.items():
            lost.add_metric([*key, cause], count)
        waiting.add_metric(key, account.waiting_bytes)
    yield from (packets, lost, waiting)


def _accounts(figures: Sequence[StoreFigures]) -> Iterator[tuple[str, Account]]:
    return ((row.name, account) for row in figures for account in row.accounts)
