"""Measurements of parts and of other programs, for who works on Lookout; `lookout bench` is for its users.

    python -m tests.bench python --sources 150
    python -m tests.bench engine MODEL.onnx --labels coco --peer all
    python -m tests.bench --help

Each command prints its figures, and writes them to --json before that.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, get_args

import click

from daemon.bench import options
from daemon.cli import invoke
from daemon.commands.groups.options import CACHE, DEVICE, LABELS, PRECISION, THREADS, takes_builder_level
from daemon.commands.paths import JSON_FILE, InputPath
from daemon.commands.report.tables import print_line, show, write_json
from daemon.redact import Url
from daemon.system.signals import leave
from daemon.system.streams import prepare_streams
from detectors.factory import Provider
from tests.bench import tables
from tests.bench.options import peer_options, takes_peers


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
def bench() -> None:
    """Measure parts of Lookout, and other programs beside it."""


@bench.command()
@click.argument("clip", required=False, type=InputPath())
@click.option("--max-batch", type=options.BATCHES, help="[default: 32, and 8 with CLIP]")
@click.option("--frames", type=click.IntRange(1), help="[default: 150000 of all sources, and 300 of CLIP]")
@click.option("--sources", default=150, show_default=True, type=click.IntRange(1), help="Without CLIP.")
@click.option("--lanes", default=2, show_default=True, type=options.LANES, help="Without CLIP.")
@click.option("--boxes", default=10, show_default=True, type=click.IntRange(0), help="Per frame, without CLIP.")
@click.option("--analytics", is_flag=True, help="The boxes move, with tracks and four rules a source, without CLIP.")
@options.ENCODING
@options.MODEL
@LABELS
@THREADS
@click.option("--rounds", default=5, show_default=True, type=click.IntRange(1), help="With CLIP.")
@JSON_FILE
def python(clip: Path | None, max_batch: int | None, frames: int | None, json_file: Path | None, **values: Any) -> int:
    """The cost of a frame without decoding and inference. With CLIP: a lossless replay on the CPU, interleaved with a
    bare onnxruntime loop over decoded frames."""
    from tests.bench.efficiency import EfficiencyOptions, efficiency
    from tests.bench.overhead import OverheadOptions, overhead

    def some(*names: str) -> dict[str, Any]:
        return {name: values[name] for name in names}

    if clip is None:
        chosen = some("sources", "lanes", "boxes", "encoding", "analytics")
        found = overhead(OverheadOptions(frames=frames or 150_000, max_batch=max_batch or 32, **chosen))
        write_json(json_file, found)
        show(tables.overhead(found))
        return 0
    chosen = some("model", "labels", "threads", "rounds")
    result = efficiency(EfficiencyOptions(clip, frames=frames or 300, max_batch=max_batch or 8, **chosen))
    write_json(json_file, result)
    show(tables.efficiency(result))
    return 0


@bench.command()
@click.option("--sources", default=240, show_default=True, type=click.IntRange(1))
@click.option("--fps", default=5.0, show_default=True, type=click.FloatRange(0.1), help="Of each source.")
@click.option("--seconds", default=20, show_default=True, type=click.IntRange(1), help="Of each turn.")
@click.option("--turns", default=3, show_default=True, type=click.IntRange(1))
@JSON_FILE
def bridge(sources: int, fps: float, seconds: int, turns: int, json_file: Path | None) -> int:
    """What a daemon pays for a bridge beside it: nothing but one more subscriber."""
    from tests.bench.bridge_cost import BridgeLoad, bridge_cost

    found = bridge_cost(BridgeLoad(sources, fps, seconds), turns)
    write_json(json_file, found)
    show(tables.bridge_cost(found))
    return 0


@bench.command()
@click.option("--sources", default=4, show_default=True, type=click.IntRange(1))
@click.option("--fps", default=5.0, show_default=True, type=click.FloatRange(0.1), help="Of each source.")
@click.option("--events", default=200, show_default=True, type=click.IntRange(1))
@JSON_FILE
def push(sources: int, fps: float, events: int, json_file: Path | None) -> int:
    """How long after an event's message a push with its picture arrives, at a server on loopback."""
    from tests.bench.push_delay import PushLoad, push_delay

    found = push_delay(PushLoad(sources, fps, events))
    write_json(json_file, found)
    show(tables.push_delay(found))
    return 0


@bench.command()
@click.option(
    "--objects",
    default=[1, 5, 20, 50, 100, 200, 300],
    show_default=True,
    multiple=True,
    type=click.IntRange(1, 1000),
    help="In a picture. Repeat it.",
)
@click.option("--sources", default=32, show_default=True, type=click.IntRange(1, 1000), help="In a batch.")
@click.option("--frames", default=60, show_default=True, type=click.IntRange(1), help="Of each source.")
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0), help="Of the objects' paths.")
@JSON_FILE
def analytics(json_file: Path | None, **values: Any) -> int:
    """The cost of tracking a frame, by the number of objects in it."""
    from tests.bench.analytics import AnalyticsOptions
    from tests.bench.analytics import analytics as run_analytics

    result = run_analytics(AnalyticsOptions(**values))
    write_json(json_file, result)
    show(tables.analytics(result))
    return 0


@bench.command()
@click.option("--sources", default=10_000, show_default=True, type=click.IntRange(1, 100_000))
@click.option("--members", default=100, show_default=True, type=click.IntRange(1, 1000))
@click.option("--lost", default=10, show_default=True, type=click.IntRange(1), help="Members, at once; and new ones.")
@click.option("--rounds", default=5, show_default=True, type=click.IntRange(1))
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0), help="Of the priorities.")
@JSON_FILE
def fleet(json_file: Path | None, **values: Any) -> int:
    """The time to compute where the sources of a fleet are to be."""
    from tests.bench.fleet import FleetOptions
    from tests.bench.fleet import fleet as run_fleet

    result = run_fleet(FleetOptions(**values))
    write_json(json_file, result)
    show(tables.fleet(result))
    return 0


@bench.command()
@click.argument("clip", type=InputPath())
@click.option("--sources", default=8, show_default=True, type=click.IntRange(1))
@click.option("--frames", default=3000, show_default=True, type=click.IntRange(1), help="Of each round.")
@click.option("--rounds", default=5, show_default=True, type=click.IntRange(1))
@click.option("--profile", type=click.Path(path_type=Path), help="File for cProfile's figures; slows the run.")
@JSON_FILE
def capture(json_file: Path | None, **values: Any) -> int:
    """The CPU of a frame in a capture process, over a stand-in of the GPU's driver."""
    from tests.bench.capture_cost import CaptureOptions, capture_cost

    found = capture_cost(CaptureOptions(**values))
    write_json(json_file, found)
    show(tables.capture(found))
    return 0


@bench.command()
@click.option("--rings", default=240, show_default=True, type=click.IntRange(1, 2000), help="One for each source.")
@click.option("--packet-bytes", default=17_000, show_default=True, type=click.IntRange(1, 1_000_000))
@click.option("--fps", default=30.0, show_default=True, type=click.FloatRange(0.1, 1000), help="Packets of a source.")
@click.option("--seconds", default=10.0, show_default=True, type=click.FloatRange(0.1, 3600))
@click.option("--writers", default=2, show_default=True, type=click.IntRange(1, 64), help="Processes.")
@click.option("--ring-mib", default=16, show_default=True, type=click.IntRange(1, 1024), help="Of each ring.")
@JSON_FILE
def rings(json_file: Path | None, **values: Any) -> int:
    """The cost of recording a packet into shared memory, and many cameras with one reader: nothing may be lost."""
    from tests.bench.rings import RingsOptions
    from tests.bench.rings import rings as run_rings

    found = run_rings(RingsOptions(**values))
    write_json(json_file, found)
    show(tables.rings(values["rings"], found))
    return 1 if found.lost else 0


@bench.command()
@click.option("--sources", default=40, show_default=True, type=click.IntRange(1, 240))
@click.option("--packet-bytes", default=17_000, show_default=True, type=click.IntRange(100, 400_000))
@click.option("--seconds", default=10.0, show_default=True, type=click.FloatRange(0.5, 3600), help="Of video.")
@click.option("--boxes", default=0, show_default=True, type=click.IntRange(0, 500), help="In a picture, with tracks.")
@click.option("--batch", default=16, show_default=True, type=click.IntRange(1, 256), help="Pictures with their boxes.")
@click.option("--folder", type=click.Path(path_type=Path), help="For the store, which is deleted.  [default: /tmp]")
@JSON_FILE
def recorder(json_file: Path | None, **values: Any) -> int:
    """The cost of a packet in the process of a store, with the boxes of its picture."""
    from tests.bench.recorder_cost import RecorderOptions
    from tests.bench.recorder_cost import recorder as run_recorder

    found = run_recorder(RecorderOptions(**values))
    write_json(json_file, found)
    show(tables.recorder(found))
    return 0


@bench.command()
@click.option("--objects", default=10, show_default=True, type=click.IntRange(1, 500), help="In a picture.")
@click.option("--batch", default=16, show_default=True, type=click.IntRange(1, 256), help="Sources, in one batch.")
@click.option("--seconds", default=10.0, show_default=True, type=click.FloatRange(0.1, 3600))
@click.option("--fps", default=30.0, show_default=True, type=click.FloatRange(0.1, 1000))
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0))
@JSON_FILE
def tracks(json_file: Path | None, **values: Any) -> int:
    """The cost of recording the boxes of a frame beside its video, and their size."""
    from tests.bench.track_cost import TracksOptions
    from tests.bench.track_cost import tracks as run_tracks

    found = run_tracks(TracksOptions(**values))
    write_json(json_file, found)
    show(tables.tracks(found))
    return 0


@bench.command()
@click.option("--objects", default=1, show_default=True, type=click.IntRange(0, 500), help="Always in the picture.")
@click.option("--minutes", default=20, show_default=True, type=click.IntRange(1, 1440))
@click.option("--fps", default=30.0, show_default=True, type=click.FloatRange(0.1, 1000))
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0))
@JSON_FILE
def search(json_file: Path | None, **values: Any) -> int:
    """The cost of rules that are asked of the past: of a frame, and of a camera's day."""
    from tests.bench.search_cost import SearchOptions, searches

    found = searches(SearchOptions(**values))
    write_json(json_file, found)
    show(tables.searches(values["objects"], found))
    return 0


@bench.command()
@click.option("--cameras", default=8, show_default=True, type=click.IntRange(1, 100))
@click.option("--hours", default=24.0, show_default=True, type=click.FloatRange(0.1, 96), help="Of each camera.")
@click.option("--fps", default=5.0, show_default=True, type=click.FloatRange(0.5, 100), help="Analysed pictures.")
@click.option("--objects", default=4, show_default=True, type=click.IntRange(0, 100), help="In a picture.")
@click.option("--step", default=60, show_default=True, type=click.IntRange(1, 86400), help="Of activity, seconds.")
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(1))
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0))
@JSON_FILE
def past(json_file: Path | None, **values: Any) -> int:
    """How long the timeline of a day takes: what is recorded, and how much was seen, of many cameras."""
    from tests.bench.past_cost import PastOptions
    from tests.bench.past_cost import past as run_past

    found = run_past(PastOptions(**values))
    write_json(json_file, found)
    show(tables.past(values["cameras"], found))
    return 0


@bench.command()
@click.option("--frames", default=200_000, show_default=True, type=click.IntRange(1_000), help="That are not chosen.")
@click.option("--traces", default=10_000, show_default=True, type=click.IntRange(100), help="Made and encoded.")
@click.option("--rounds", default=5, show_default=True, type=click.IntRange(1))
@JSON_FILE
def tracing(json_file: Path | None, **values: Any) -> int:
    """The cost of a frame's trace, and of a frame that is not chosen for one."""
    from tests.bench.tracing_cost import TracingOptions
    from tests.bench.tracing_cost import tracing as run_tracing

    found = run_tracing(TracingOptions(**values))
    write_json(json_file, found)
    show(tables.tracing(found))
    return 0


@bench.command()
@click.argument("model", type=InputPath())
@click.option("--clip", type=InputPath(), help="[default: a drawn street]")
@click.option(
    "--provider",
    "providers",
    multiple=True,
    default=["cpu", "openvino"],
    show_default=True,
    type=click.Choice(get_args(Provider)),
    help="Of onnxruntime. Repeat it.",
)
@click.option(
    "--batch", "batches", multiple=True, default=[1, 4], show_default=True, type=options.BATCHES, help="Repeat it."
)
@LABELS
@THREADS
@click.option("--rounds", default=5, show_default=True, type=click.IntRange(1), help="Of all providers in turns.")
@click.option("--seconds", default=2.0, show_default=True, type=options.SECONDS, help="Of each turn.")
@JSON_FILE
def providers(json_file: Path | None, clip: Path | None, **values: Any) -> int:
    """Time and CPU of onnxruntime's providers in turns, and how their boxes differ from the first one's."""
    from daemon.sources.synthetic_clip import synthetic_clip
    from tests.bench.providers import ProvidersOptions
    from tests.bench.providers import providers as compare

    rows = compare(ProvidersOptions(clip=clip or synthetic_clip(), **values))
    write_json(json_file, rows)
    show(tables.providers(values["model"].name, rows))
    return 0


@bench.command()
@click.argument("clip", required=False, type=InputPath())
@click.option("--sources", default=16, show_default=True, type=click.IntRange(1, 64), help="Cameras, all watched live.")
@click.option("--seconds", default=6.0, show_default=True, type=click.FloatRange(1, 20), help="Of each measurement.")
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(1), help="Of all ways to watch in turns.")
@click.option("--viewers", default=50, show_default=True, type=click.IntRange(1, 500), help="Of one camera.")
@JSON_FILE
def dashboard(
    clip: Path | None, sources: int, seconds: float, rounds: int, viewers: int, json_file: Path | None
) -> int:
    """What viewers of the page cost the daemon and the page's own process. CLIP plays as every camera."""
    from daemon.bench.load import check_clip
    from daemon.commands.run import check_page_libraries
    from daemon.sources.synthetic_clip import synthetic_clip
    from tests.bench.page_cost import PageCostOptions, page_costs

    check_page_libraries()
    clip = clip or synthetic_clip()
    check_clip(Url(str(clip)))
    rows = page_costs(PageCostOptions(clip, sources, seconds, rounds, viewers))
    write_json(json_file, rows)
    show(tables.dashboard(rows))
    return 0


@bench.command()
@click.argument("model", type=InputPath())
@LABELS
@PRECISION
@takes_builder_level()
@CACHE
@click.option("--max-batch", default=32, show_default=True, type=options.BATCHES)
@click.option("--seconds", default=3.0, show_default=True, type=options.SECONDS, help="In steady state.")
@DEVICE
@takes_peers
@JSON_FILE
def engine(
    peers: tuple[str, ...],
    pythons: tuple[tuple[str, Path], ...],
    timeout_s: float,
    server: str | None,
    threads: int,
    json_file: Path | None,
    **values: Any,
) -> int:
    """Images per second of Lookout's engine, and of other engines (--peer) beside it, with how their outputs differ."""
    from daemon.bench.engine import EngineOptions
    from daemon.progress import progress
    from tests.bench.peers.compare import PeerRate, peer_rates

    beside = peer_options(EngineOptions(**values), peers, pythons, server, threads=threads, timeout_s=timeout_s)
    with progress("bench engine", "engines") as shown:
        shown.tell(0, len(beside.peers) + 1)

        def measured(row: PeerRate) -> None:
            shown.note(f"{row.engine}: {row.images_per_s or 'not run'}")
            shown.advance()

        found = peer_rates(beside, measured)
    write_json(json_file, found)
    show(tables.peers(found))
    for row in found.engines:
        if row.note:
            print_line(f"{row.engine}: {row.note}")
    return 0


if __name__ == "__main__":
    prepare_streams()
    leave(invoke(sys.argv[1:], bench, "python -m tests.bench"))
