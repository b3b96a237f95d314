"""The figures of sources and models over an interval, from the ledger's counts and rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from daemon.pipeline.ledger import Counts, Ledger, Rows, percentiles, percentiles_of_each, together
from detectors.port import ModelInfo
from lookout.messages import AccountMetrics, ModelMetrics, Percentiles, SourceMetrics, State

CountsByModel = Mapping[str, Mapping[str, Counts]]
"""By source and model."""


@dataclass(frozen=True)
class Interval:
    """Attributes:
    before, now: the counts at its ends.
    rows: of its frames.
    """

    seconds: float
    before: CountsByModel
    now: CountsByModel
    rows: Rows

    @property
    def fps(self) -> float:
        """Published frames a second."""
        return round(sum(sum(self._grown(source)) for source in self.now) / self.seconds, 2)

    def sources(self, ledger: Ledger, states: Mapping[str, State]) -> dict[str, SourceMetrics]:
        latencies = percentiles_of_each(self.rows, self.rows["source"], len(ledger.accounts))
        return {source: self._source(source, latencies, states.get(source, "ended")) for source in self.now}

    def models(self, infos: Mapping[str, ModelInfo]) -> dict[str, ModelMetrics]:
        """The figures of each model that has a name."""
        return {name: self._model(name, info) for name, info in infos.items() if name}

    def _grown(self, source: str) -> list[int]:
        """Frames that were published, by model."""
        before = self.before.get(source, {})
        return [row.published - before.get(model, row).published for model, row in self.now[source].items()]

    def _source(self, source: str, latencies: list[dict[str, Percentiles] | None], state: State) -> SourceMetrics:
        rows = self.now[source]
        count, before = together([*rows.values()]), self.before.get(source, rows)
        captured = sum(row.captured - before.get(model, row).captured for model, row in rows.items())
        (first, *others), is_named = rows.values(), any(rows)
        return SourceMetrics(
            state=state,
            captured_fps=round(captured / self.seconds, 2),
            published_fps=round(sum(self._grown(source)) / self.seconds, 2),
            captured=count.captured,
            published=count.published,
            dropped=count.dropped,
            in_flight=count.in_flight,
            latency=self._latency([*rows.values()]) if others else latencies[first.place],
            passed_over=dict(count.passed_over),
            models=self._accounts(source, latencies) if is_named else {},
        )

    def _accounts(self, source: str, latencies: list[dict[str, Percentiles] | None]) -> dict[str, AccountMetrics]:
        return {
            model: AccountMetrics(
                published_fps=round(grown / self.seconds, 2),
                captured=count.captured,
                published=count.published,
                dropped=count.dropped,
                in_flight=count.in_flight,
                latency=latencies[count.place],
            )
            for (model, count), grown in zip(self.now[source].items(), self._grown(source))
        }

    def _model(self, name: str, info: ModelInfo) -> ModelMetrics:
        seen = [source for source, rows in self.now.items() if name in rows]
        accounts = [self.now[source][name] for source in seen]
        count = together(accounts or [Counts.none()])
        grown = sum(dict(zip(self.now[source], self._grown(source)))[name] for source in seen)
        return ModelMetrics(
            name=info.name,
            digest=info.digest,
            precision=info.precision,
            backend=info.backend,
            sources=len(seen),
            published_fps=round(grown / self.seconds, 2),
            captured=count.captured,
            published=count.published,
            dropped=count.dropped,
            in_flight=count.in_flight,
            latency=self._latency(accounts),
        )

    def _latency(self, accounts: list[Counts]) -> dict[str, Percentiles] | None:
        """Of several accounts together."""
        return percentiles(self.rows[np.isin(self.rows["source"], [row.place for row in accounts])])
