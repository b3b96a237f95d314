"""`lookout bench`: thin commands over the benchmarks."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import click

from daemon.bench.options import BATCH, BATCHES, LABELS, LANES, MODEL, PACED, THREADS, load_of, takes_load
from daemon.bench.report_commands import COMMANDS
from daemon.outputs import JSON_FILE, OutputFile
from detectors.port import Precision


@click.group()
def bench() -> None:
    """Measure Lookout on recordings."""


for command in COMMANDS:
    bench.add_command(command)


@bench.command()
@click.argument("clips", nargs=-1, required=True, type=click.Path(path_type=Path))
@MODEL
@LABELS
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
@click.option("--lanes", default=1, show_default=True, type=LANES)
@BATCH
@THREADS
@click.option("--confidence", default=0.25, show_default=True, type=click.FloatRange(0, 1))
@click.option("--endpoint", default="tcp://127.0.0.1:*", help="Where to publish meanwhile.  [default: a free port]")
@click.option(
    "--wait-for-subscriber",
    default=0.0,
    type=click.FloatRange(min=0),
    help="Seconds to wait for one before the first frame.",
)
@JSON_FILE
def once(json_file: Path | None, **wishes: Any) -> int:
    """Recordings through the daemon from their beginning to their end, and every frame counted."""
    from daemon.bench.once import OnceOptions
    from daemon.bench.once import once as play_once
    from daemon.report import played, write_json
    from daemon.signals import stopping_on_signals

    result = play_once(OnceOptions(**wishes), stopping_on_signals)
    played(result)
    write_json(json_file, result)
    return 0


@bench.command()
@click.argument("clip", type=click.Path(path_type=Path))
@MODEL
@LABELS
@BATCH
@THREADS
@click.option(
    "--frames",
    default=300,
    show_default=True,
    type=click.IntRange(1),
    help="Frames of the clip to use; they are held in memory.",
)
@click.option(
    "--rounds",
    default=5,
    show_default=True,
    type=click.IntRange(1),
    help="Turns of each side, one after the other.",
)
@JSON_FILE
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
@click.option("--lanes", default=2, show_default=True, type=LANES)
@click.option("--max-batch", default=32, show_default=True, type=BATCHES)
@click.option("--boxes", default=10, show_default=True, type=click.IntRange(0), help="That are found in each frame.")
@click.option("--encoding", default="json", show_default=True, type=click.Choice(["json", "msgpack"]))
@JSON_FILE
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
@click.option("--processes", default=4, show_default=True, type=click.IntRange(1), help="That share them.")
@click.option("--low-latency", is_flag=True, help="As for live sources: each picture as soon as it can be.")
@click.option("--device", default=0, show_default=True, type=click.IntRange(0), help="Which GPU.")
@JSON_FILE
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
@LABELS
@click.option("--precision", default="auto", show_default=True, type=click.Choice(get_args(Precision)))
@click.option("--builder-level", default=3, show_default=True, type=click.IntRange(0, 5))
@click.option("--cache", type=click.Path(path_type=Path), help="Folder of built engines.")
@click.option("--max-batch", default=32, show_default=True, type=BATCHES)
@click.option("--seconds", default=3.0, show_default=True, type=click.FloatRange(min=0.1), help="In steady state.")
@JSON_FILE
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
@takes_load
@click.option(
    "--limits/--no-limits", default=False, help="First the decoder alone and the engine alone, in the same run."
)
@PACED
@click.option("--frames-out", type=OutputFile(), help="Record every frame: .jsonl or .parquet.")
@JSON_FILE
def streams(json_file: Path | None, frames_out: Path | None, limits: bool, **wishes: Any) -> int:
    """Many sources through the whole daemon to a subscriber, once: what `replay` and the others repeat."""
    from daemon.bench.recording import check_name
    from daemon.bench.streams import streams as run_streams
    from daemon.report import streamed, write_json

    if frames_out:
        check_name(frames_out)
    result = run_streams(load_of(wishes), limits=limits, frames_out=frames_out)
    streamed(result)
    write_json(json_file, result)
    return 0


@bench.command()
@takes_load
@JSON_FILE
@click.option("--drops", default=1000, show_default=True, type=click.IntRange(1), help="Connections to break.")
@click.option("--victims", default=5, show_default=True, type=click.IntRange(1), help="Sources that break, in turns.")
def churn(json_file: Path | None, drops: int, victims: int, **wishes: Any) -> int:
    """Sources that break and come back among others that must not notice: memory, threads, the others' latency."""
    from daemon.bench.churn import churn as run_churn
    from daemon.report import churned, write_json

    if victims >= wishes["sources"]:
        raise click.UsageError(f"--sources must be more than --victims {victims}: the others are what is watched")
    result = run_churn(load_of({**wishes, "paced": True}), drops, victims)
    churned(result)
    write_json(json_file, result)
    return 0


@bench.command()
@click.argument("clip", type=click.Path(path_type=Path))
@MODEL
@LABELS
@click.option("--sources", default=8, show_default=True, type=click.IntRange(1))
@click.option("--seconds", default=5.0, show_default=True, type=click.FloatRange(min=0.1))
@JSON_FILE
def loop(json_file: Path | None, **wishes: Any) -> int:
    """The script that many begin with, one loop of OpenCV and onnxruntime, to compare with."""
    from daemon.bench.peers.loop import loop as run_loop
    from daemon.report import looped, write_json

    result = run_loop(**wishes)
    looped(result)
    write_json(json_file, result)
    return 0
