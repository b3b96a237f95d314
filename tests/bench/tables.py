"""Tables of `python -m tests.bench`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from daemon.commands.report import Table, number

if TYPE_CHECKING:
    from tests.bench.analytics import AnalyticsCost
    from tests.bench.bridge_cost import BridgeCost
    from tests.bench.capture_cost import CaptureCost
    from tests.bench.efficiency import Efficiency
    from tests.bench.fleet import FleetCost
    from tests.bench.overhead import Overhead
    from tests.bench.page_cost import PageCost
    from tests.bench.past_cost import PastFound
    from tests.bench.peers.compare import PeerRates
    from tests.bench.providers import ProviderCost
    from tests.bench.push_delay import PushDelay
    from tests.bench.recorder_cost import RecorderFound
    from tests.bench.rings import RingsFound
    from tests.bench.search_cost import SearchCost
    from tests.bench.tracing_cost import TracingCost
    from tests.bench.track_cost import TracksFound


def peers(found: PeerRates) -> Table:
    """Result of `python -m tests.bench engine --peer`."""
    head = ("engine", "precision", "images/s", "lowest", "highest", "ms/batch", "differs by")
    rows = []
    for row in found.engines:
        rate = number(row.images_per_s) or "not run"
        figures = (rate, *map(number, (row.lowest, row.highest, row.batch_ms)))
        differs = "" if row.difference is None else f"{row.difference:.2g} ({row.relative:.2%})"
        rows.append((f"{row.engine} {row.version}".strip(), row.precision, *figures, differs))
    return Table(f"{found.model} ({found.precision}), batches of {found.batch}", head, rows)


def providers(model: str, found: Sequence[ProviderCost]) -> Table:
    """Result of `python -m tests.bench providers`."""
    head = ("provider", "batch", "inference, ms", "CPU, ms/picture", "unlike boxes", "px at most", "confidence")
    rows = [
        (
            f"{row.provider}, {row.precision}",
            str(row.batch),
            number(row.infer_ms),
            number(row.cpu_ms),
            f"{row.unmatched} of {row.boxes}",
            f"{row.differs_px:.2g}",
            f"{row.differs_confidence:.2g}",
        )
        for row in found
    ]
    return Table(model, head, rows)


def capture(found: CaptureCost) -> Table:
    """Result of `python -m tests.bench capture`."""
    rows = [
        ("sources", f"{found.sources}"),
        ("CPU of a frame, all threads", f"{number(found.middle)} us"),
        ("lowest and highest round", f"{number(min(found.us))} and {number(max(found.us))} us"),
    ]
    return Table("A frame in a capture process, without the GPU", ("", ""), rows)


def rings(count: int, found: RingsFound) -> Table:
    """Result of `python -m tests.bench rings`."""
    rows = [
        ("CPU of a packet into one ring", f"{number(found.us_one)} us"),
        ("into each of all rings in turns", f"{number(found.us_all)} us"),
        ("into one ring, after other work", f"{number(found.us_cold)} us"),
        ("written", f"{found.packets} packets, {number(found.mb_per_s)} MB/s"),
        ("lost", str(found.lost)),
        ("CPU of the writers together", f"{found.writers_cpu:.1%} of a core"),
        ("CPU of the reader", f"{found.reader_cpu:.1%} of a core"),
        ("memory of all rings, most", f"{found.memory / 1e6:.0f} MB"),
    ]
    return Table(f"{count} rings", ("", ""), rows)


def recorder(found: RecorderFound) -> Table:
    """Result of `python -m tests.bench recorder`."""
    rows = [
        ("CPU of a packet", f"{number(found.us)} us"),
        ("240 cameras of 30/s", f"{found.core_of_240:.0%} of a core"),
        ("packets", str(found.packets)),
    ]
    return Table("the process of a store", ("", ""), rows)


def tracks(found: TracksFound) -> Table:
    """Result of `python -m tests.bench tracks`."""
    rows = [
        ("CPU of a frame in its lane", f"{number(found.hand_us)} us"),
        ("of the recorder, out of the ring", f"{number(found.take_us)} us"),
        ("into a file", f"{number(found.write_us)} us"),
        ("and out of it again", f"{number(found.read_us)} us"),
        ("in the ring", f"{found.ring_bytes:.0f} bytes a frame"),
        ("in a file", f"{number(found.box_bytes)} bytes a box, {number(found.kbit_per_s)} kbit/s a source"),
    ]
    return Table(f"{number(found.boxes)} boxes in a picture", ("", ""), rows)


def searches(objects: int, found: Sequence[SearchCost]) -> Table:
    """Result of `python -m tests.bench search`."""
    rows = [
        (row.rule, str(row.events), f"{number(row.frame_us)} us", f"{number(row.day_s)} s", f"{number(row.speed)}")
        for row in found
    ]
    title = f"{objects} objects, {found[0].frames} frames"
    return Table(title, ("rule", "events", "CPU of a frame", "of a day", "times as fast as it was"), rows)


def past(cameras: int, found: PastFound) -> Table:
    """Result of `python -m tests.bench past`."""
    ways = [
        ("spans", found.spans),
        ("activity, by the index", found.by_index),
        ("by the ends of files, in memory", found.by_files),
        ("by the ends of files, from the disk", found.from_disk),
        ("and again", found.again),
    ]
    rows = [(name, *(f"{number(ms)} ms" for ms in (row.one_ms, row.all_ms, row.cpu_ms))) for name, row in ways]
    title = f"{found.files} files of a camera, {number(found.kib)} KiB each; {number(found.answer_kib)} KiB of activity"
    return Table(title, ("", "one camera", f"{cameras} at once", "CPU of these"), rows)


def overhead(found: Overhead) -> Table:
    """Result of `python -m tests.bench python`."""
    rows = [
        ("rate of one process", f"{number(found.fps)} frames/s"),
        ("CPU per frame, whole process", f"{number(found.cpu_us_per_frame)} us"),
        ("wall time per frame", f"{number(found.wall_us_per_frame)} us"),
    ]
    title = f"{found.sources} sources, {found.published} frames published, {found.received} received"
    return Table(title, ("", ""), rows)


def push_delay(found: PushDelay) -> Table:
    """Result of `python -m tests.bench push`."""
    rows = [
        ("event to push, p50", f"{number(found.p50_ms)} ms"),
        ("p95", f"{number(found.p95_ms)} ms"),
        ("at most", f"{number(found.max_ms)} ms"),
    ]
    return Table(
        f"{found.sources} sources, {found.events} events, {found.with_picture} with their picture", ("", ""), rows
    )


def bridge_cost(found: BridgeCost) -> Table:
    """Result of `python -m tests.bench bridge`."""
    rows = [
        ("the daemon's CPU per frame, with a subscriber", f"{number(found.alone_us)} us"),
        ("with two", f"{number(found.subscriber_us)} us"),
        ("with one and a bridge", f"{number(found.bridge_us)} us"),
        ("the bridge's own CPU", f"{number(found.bridge_cpu_percent)} % of a core"),
    ]
    title = (
        f"{found.sources} sources of {number(found.fps)}/s; {found.events} events and {found.figures} figures passed on"
    )
    return Table(title, ("", ""), rows)


def analytics(found: AnalyticsCost) -> Table:
    """Result of `python -m tests.bench analytics`."""
    head = ("objects", "tracking, compiled", "in numpy", "four rules, compiled", "in Python", "the peer's tracking")
    rows = [
        (str(row.objects), *map(number, (row.compiled, row.numpy, row.compiled_rules, row.rules, row.peer)))
        for row in found.tracking
    ]
    title = f"CPU, us a frame. A batch has a frame of each of {found.sources} sources. Peer: {found.peer}"
    return Table(title, head, rows)


def fleet(found: FleetCost) -> Table:
    """Result of `python -m tests.bench fleet`."""
    rows = [
        (row.name, number(row.median_ms), number(row.max_ms), str(row.moved), str(row.waiting)) for row in found.times
    ]
    title = f"Placement of {found.sources} sources on {found.members} members, ms"
    return Table(title, ("", "median", "slowest", "placed", "without room"), rows)


def efficiency(found: Efficiency) -> Table:
    """Result of `python -m tests.bench python CLIP`."""
    rows = [
        ("Lookout, lossless replay", number(found.lookout_fps), ""),
        ("bare: letterbox and onnxruntime, decoded frames", number(found.bare_fps), f"{found.ratio:.3f}"),
        ("onnxruntime alone", number(found.infer_only_fps), f"{found.ratio_to_infer_only:.3f}"),
    ]
    return Table(f"Medians of {found.rounds} rounds", ("", "frames/s", "Lookout's share"), rows)


def dashboard(found: Sequence[PageCost]) -> Table:
    """Result of `python -m tests.bench dashboard`."""
    head = ("watched", "viewers of each", "boxes", "daemon", "more than idle", "page", "page MiB", "MiB/s")
    rows = []
    for row in found:
        figures = (f"{row.daemon:.1f} %", f"{row.more:+.1f} %", f"{row.page:.1f} %", f"{row.page_rss / (1 << 20):.0f}")
        where = (str(row.watched), str(row.viewers), "yes" if row.boxes else "no")
        rows.append((*where, *figures, f"{row.received_mib_s:.2f}"))
    return Table("Percent of a core, medians over the rounds", head, rows)


def tracing(found: TracingCost) -> Table:
    """Result of `python -m tests.bench tracing`."""
    rows = [
        ("a frame that is not chosen", f"{found.not_chosen_ns:.0f} ns"),
        ("a frame that is chosen, in the publisher's thread", f"{found.chosen_us:.1f} us"),
        ("its spans as JSON, compressed, in a thread of their own", f"{found.sent_us:.1f} us"),
        ("bytes of a trace as it is sent", f"{found.bytes:.0f}"),
    ]
    return Table("CPU, the least of all rounds", ("", ""), rows)
