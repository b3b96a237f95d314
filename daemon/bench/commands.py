"""`lookout bench`: thin commands over the benchmarks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click


@click.group()
def bench() -> None:
    """Measure Lookout on recordings."""


_MODEL = click.option("--model", type=click.Path(path_type=Path), help="ONNX file.  [default: the demo model]")
_LABELS = click.option("--labels", help="Labels file, or coco, for a model without.")
_BATCH = click.option("--max-batch", default=8, show_default=True)
_THREADS = click.option(
    "--threads", default=0, show_default=True, help="CPU threads of one inference, 0 for all cores."
)
_JSON_FILE = click.option(
    "--json", "json_file", type=click.Path(path_type=Path), help="Write the figures to this file."
)


_LOAD = [
    click.argument("clip", type=click.Path(path_type=Path)),
    click.option("--sources", default=28, show_default=True, type=click.IntRange(1), help="Of the one clip, looped."),
    click.option("--seconds", default=20.0, show_default=True, type=click.FloatRange(min=0.1), help="In steady state."),
    _MODEL,
    _LABELS,
    click.option("--backend", default="auto", show_default=True, type=click.Choice(["auto", "trt", "cpu"])),
    click.option("--precision", default="auto", show_default=True, type=click.Choice(["auto", "fp32", "fp16"])),
    click.option("--builder-level", default=3, show_default=True, type=click.IntRange(0, 5)),
    click.option("--cache", type=click.Path(path_type=Path), help="Folder of built engines."),
    click.option("--lanes", default=2, show_default=True),
    click.option("--max-batch", default=32, show_default=True),
    click.option("--decode", default="auto", show_default=True, type=click.Choice(["auto", "nvdec", "cpu"])),
    click.option("--processes", type=click.IntRange(0, 16), help="That capture.  [default: as many as suits]"),
    click.option("--mps", default="auto", show_default=True, type=click.Choice(["auto", "off"])),
    click.option("--memory-limit", type=click.IntRange(1), help="MiB of the GPU's memory.  [default: what is free]"),
    _JSON_FILE,
]


def _takes_load(command: Callable[..., int]) -> Callable[..., int]:
    for option in reversed(_LOAD):
        command = option(command)
    return command


@bench.command()
@click.argument("clips", nargs=-1, required=True, type=click.Path(path_type=Path))
@_MODEL
@_LABELS
@click.option("--sources", type=click.IntRange(1), help="How many, taking the clips in turn.  [default: one per clip]")
@click.option(
    "--paced/--lossless",
    default=False,
    help="At the clips' own pace and live, or every frame as fast as possible.  [default: lossless]",
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=0, min_open=True),
    help="Loop the clips for so long.  [default: play them once]",
)
@click.option("--lanes", default=1, show_default=True)
@_BATCH
@_THREADS
@click.option("--confidence", default=0.25, show_default=True)
@click.option("--endpoint", default="tcp://127.0.0.1:*", help="Where to publish meanwhile.  [default: a free port]")
@click.option("--wait-for-subscriber", default=0.0, help="Seconds to wait for one before the first frame.")
@_JSON_FILE
def replay(json_file: Path | None, **wishes: Any) -> int:
    """Run the real daemon over recordings: frames, fps, latency by stage, drops, CPU."""
    from daemon.bench.replay import ReplayOptions
    from daemon.bench.replay import replay as run_replay
    from daemon.report import replayed, write_json
    from daemon.signals import stopping_on_signals

    result = run_replay(ReplayOptions(**wishes), stopping_on_signals)
    replayed(result)
    write_json(json_file, result)
    return 0


@bench.command()
@click.argument("clip", type=click.Path(path_type=Path))
@_MODEL
@_LABELS
@_BATCH
@_THREADS
@click.option("--frames", default=300, show_default=True, help="Frames of the clip to use; they are held in memory.")
@click.option("--rounds", default=5, show_default=True, help="Turns of each side, one after the other.")
@_JSON_FILE
def efficiency(json_file: Path | None, **wishes: Any) -> int:
    """Lossless replay against a bare onnxruntime loop over decoded frames, turn by turn in one run."""
    from daemon.bench.efficiency import EfficiencyOptions
    from daemon.bench.efficiency import efficiency as run_efficiency
    from daemon.report import efficient, write_json

    result = run_efficiency(EfficiencyOptions(**wishes))
    efficient(result)
    write_json(json_file, result)
    return 0


@bench.command()
@click.option("--sources", default=150, show_default=True, type=click.IntRange(1))
@click.option("--frames", default=60_000, show_default=True, type=click.IntRange(1), help="Of all sources together.")
@click.option("--lanes", default=2, show_default=True)
@click.option("--max-batch", default=32, show_default=True)
@click.option("--boxes", default=10, show_default=True, help="That are found in each frame.")
@click.option("--encoding", default="json", show_default=True, type=click.Choice(["json", "msgpack"]))
@_JSON_FILE
def overhead(json_file: Path | None, **wishes: Any) -> int:
    """What a frame costs Python besides being decoded and looked at; it bounds one process on any GPU."""
    from daemon.bench.overhead import OverheadOptions
    from daemon.bench.overhead import overhead as run_overhead
    from daemon.report import overheads, write_json

    result = run_overhead(OverheadOptions(**wishes))
    overheads(result)
    write_json(json_file, result)
    return 0


@bench.command()
@click.argument("clip", type=click.Path(path_type=Path))
@click.option(
    "--sessions", default=[7, 28, 56, 150], show_default=True, multiple=True, type=click.IntRange(1), help="Repeat it."
)
@click.option(
    "--seconds", default=3.0, show_default=True, type=click.FloatRange(min=0.1), help="In steady state, each."
)
@click.option("--low-latency", is_flag=True, help="As for live sources: each picture as soon as it can be.")
@click.option("--calls", type=click.IntRange(1), help="Sessions in the driver at once.  [default: all]")
@click.option("--device", default=0, show_default=True, help="Which GPU.")
@_JSON_FILE
def decode(json_file: Path | None, **wishes: Any) -> int:
    """The GPU's decoder alone: pictures a second, its utilisation, CPU and memory, by number of sessions."""
    from daemon.bench.decode import DecodeOptions
    from daemon.bench.decode import decode as run_decode
    from daemon.report import decoded, write_json

    result = run_decode(DecodeOptions(**wishes))
    decoded(result)
    write_json(json_file, result)
    return 0


@bench.command()
@click.argument("model", type=click.Path(path_type=Path))
@_LABELS
@click.option("--precision", default="auto", show_default=True, type=click.Choice(["auto", "fp32", "fp16"]))
@click.option("--builder-level", default=3, show_default=True, type=click.IntRange(0, 5))
@click.option("--cache", type=click.Path(path_type=Path), help="Folder of built engines.")
@click.option("--max-batch", default=32, show_default=True)
@click.option("--seconds", default=3.0, show_default=True, type=click.FloatRange(min=0.1), help="In steady state.")
@_JSON_FILE
def engine(json_file: Path | None, **wishes: Any) -> int:
    """The GPU's engine alone: images a second with nothing around it."""
    from daemon.bench.engine import EngineOptions
    from daemon.bench.engine import engine as run_engine
    from daemon.report import engines, write_json

    result = run_engine(EngineOptions(**wishes))
    engines(result)
    write_json(json_file, result)
    return 0


@bench.command()
@_takes_load
@click.option(
    "--limits/--no-limits", default=False, help="First the decoder alone and the engine alone, in the same run."
)
@click.option(
    "--paced/--lossless",
    default=False,
    help="At the clip's own pace and live, or every frame as fast as possible.  [default: lossless]",
)
def streams(json_file: Path | None, limits: bool, **wishes: Any) -> int:
    """Many sources through the whole daemon to a subscriber: frames/s, latency, drops, fairness, CPU, GPU, memory."""
    from daemon.bench.harness import Load
    from daemon.bench.streams import streams as run_streams
    from daemon.report import streamed, write_json

    result = run_streams(Load(**wishes), limits=limits)
    streamed(result)
    write_json(json_file, result)
    return 0


@bench.command()
@_takes_load
@click.option("--dropped", default=0.1, show_default=True, type=click.FloatRange(min=0), help="Percent, at most.")
@click.option("--p50", default=15.0, show_default=True, type=click.FloatRange(min=0), help="Captured to sent, ms.")
@click.option("--p99", default=40.0, show_default=True, type=click.FloatRange(min=0), help="Likewise.")
@click.option("--step", default=4, show_default=True, type=click.IntRange(1), help="Sources that it may be off.")
def holds(json_file: Path | None, dropped: float, p50: float, p99: float, step: int, **wishes: Any) -> int:
    """The largest number of live sources that are served as they should be; begins with --sources."""
    from daemon.bench.harness import Load
    from daemon.bench.holds import Promise
    from daemon.bench.holds import holds as run_holds
    from daemon.report import held, trial, write_json

    result = run_holds(Load(**wishes), Promise(dropped, p50, p99), step, trial)
    held(result)
    write_json(json_file, result)
    return 0


@bench.command()
@_takes_load
@click.option("--drops", default=1000, show_default=True, type=click.IntRange(1), help="Connections to break.")
@click.option("--victims", default=5, show_default=True, type=click.IntRange(1), help="Sources that break, in turns.")
def churn(json_file: Path | None, drops: int, victims: int, **wishes: Any) -> int:
    """Sources that break and come back among others that must not notice: memory, threads, the others' latency."""
    from daemon.bench.churn import churn as run_churn
    from daemon.bench.harness import Load
    from daemon.report import churned, write_json

    result = run_churn(Load(paced=True, **wishes), drops, victims)
    churned(result)
    write_json(json_file, result)
    return 0
