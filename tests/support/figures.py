"""Benchmark reports with given figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from daemon.bench.harness import WarmUp
from daemon.bench.latency import RANKS, Histogram
from daemon.bench.load import Load
from daemon.bench.result import Case, Report, settings_of
from daemon.bench.run import Run, StartUp
from daemon.bench.usage import Usage
from daemon.commands.report.environment import Environment

ON = Environment("", "", "", 1, 1.0, "", {}, None, None, {}, [])
_USAGE = Usage(
    cpu_ms_per_frame=1.0,
    cpu_us_by_thread={"lane": 1000.0},
    bench_cpu_ms_per_frame=0.1,
    rss_mib=100.0,
    threads=10,
    open_files=20,
    context_switches_per_s=100.0,
    io_wait_percent=0.0,
    read_mib_per_s=0.0,
    gpu_percent=None,
    decoder_percent=None,
    memory_controller_percent=None,
    clock_mhz=None,
    power_w=None,
    peak_power_w=None,
    energy_j=None,
    gpu_bytes=None,
    throttled=[],
    gpu_processes=None,
)


def run_of(figures: Mapping[str, float], sources: int = 1, *, paced: bool = True) -> Run:
    """A run with these metrics, by their names in METRICS; all others are made up."""
    latencies = {"mean": 1.0, **dict.fromkeys(RANKS, 1.0)}
    latencies |= {name: figures[name] for name in ("p50", "p99") if name in figures}
    fps, dropped = figures.get("fps", 100.0), figures.get("dropped", 0.0)
    return Run(
        sources=sources,
        loop="open" if paced else "closed",
        model="none 0",
        backend="fake",
        precision="fp32",
        decoders={"cpu": sources},
        refusals={},
        start_up=StartUp(1.0, 1.0, figures.get("start", 2.0), {}),
        warm_up=WarmUp(sources, True, 1.0, 1.0),
        seconds=10.0,
        captured=round(10 * fps / (1 - dropped)),
        published=round(10 * fps),
        asked_fps=None,
        fps=fps,
        received_share=1.0,
        unaccounted=0,
        dropped_share=dropped,
        dropped={"superseded": round(10 * fps * dropped / (1 - dropped))},
        source_fps=(fps / sources, fps / sources, fps / sources),
        latency_ms=latencies,
        stages_ms={},
        worst_second_ms=1.0,
        histogram=Histogram([0.1, 1.0], [1]),
        by_source={},
        timeline=[],
        gpu_mib=None,
        planned_mib=0.0,
        memory_plan_mib={},
        busy_before=None,
        joules_per_frame=figures.get("joules"),
        watts_per_source=None,
        usage=replace(_USAGE, cpu_ms_per_frame=figures.get("cpu", 1.0), rss_mib=figures.get("rss", 100.0)),
    )


def case_of(figures: Mapping[str, Sequence[float]], *, paced: bool = True, **load: Any) -> Case:
    """A case with a repeat for each value of a metric."""
    count = max(len(values) for values in figures.values())
    runs = [{name: values[number] for name, values in figures.items()} for number in range(count)]
    settings = settings_of(Load((Path("clip.mp4"),), sources=1, paced=paced, **load))
    return Case(settings, [[run_of(run, paced=paced)] for run in runs])


def report(figures: Mapping[str, Sequence[float]], *, paced: bool = True) -> Report:
    return Report("run", ON, [case_of(figures, paced=paced)])
