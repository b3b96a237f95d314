"""Tables of comparisons and of parts measured alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from daemon.commands.report import Table, number

if TYPE_CHECKING:
    from daemon.bench.analytics import AnalyticsCost
    from daemon.bench.compare import Change
    from daemon.bench.compare_frames import Agreement
    from daemon.bench.decode import DecodeRates
    from daemon.bench.efficiency import Efficiency
    from daemon.bench.engine import EngineRate
    from daemon.bench.fleet import FleetCost
    from daemon.bench.overhead import Overhead
    from daemon.bench.peers.compare import PeerRates


def changes(changes: Sequence[Change]) -> Table:
    """Changes between two reports."""
    rows = [
        (
            str(change.case["sources"]),
            str(change.case["lanes"]),
            change.metric,
            f"{change.old:.5g}",
            f"{change.new:.5g}",
            number(change.ratio),
            f"{change.noise:.1%}",
            change.result,
        )
        for change in changes
    ]
    return Table("New over old", ("sources", "lanes", "metric", "old", "new", "new / old", "noise", ""), rows)


def agreement(found: Agreement) -> Table:
    """Agreement of two recordings."""
    rows = [
        ("frames of both", f"{found.frames}; only the first has {found.only_a}, only the second {found.only_b}"),
        ("boxes", f"{found.boxes_a} and {found.boxes_b}; {found.matched} match"),
        ("of the matches", f"mean IoU {found.mean_iou:.4f}, confidence {found.confidence_shift:+.4f}"),
        *(("differs", frame) for frame in found.differing),
    ]
    return Table(f"{found.share:.4%} of the boxes agree", ("", ""), rows)


def decode(found: DecodeRates) -> Table:
    """Result of `lookout bench part decode`."""
    head = ("sessions", "processes", "frames/s", "decoder, %", "CPU, ms/frame", "MiB/session", "start, s")
    rows = [
        (
            str(rate.sessions),
            str(rate.processes),
            number(rate.fps),
            number(rate.decoder_percent),
            number(rate.cpu_ms_per_frame),
            number(rate.session_mib),
            number(rate.start_s),
        )
        for rate in found.rates
    ]
    return Table(f"The decoder alone: {found.clip}, {found.rates[0].codec} {found.size[0]}x{found.size[1]}", head, rows)


def engine(found: EngineRate) -> Table:
    """Result of `lookout bench part engine`."""
    row = (f"{found.model}, {found.precision}", str(found.batch))
    figures = (number(found.images_per_s), number(found.least), number(found.most))
    return Table("The engine alone", ("model", "batch", "images/s", "lowest", "highest"), [(*row, *figures)])


def peers(found: PeerRates) -> Table:
    """Result of `lookout bench part engine --peer`."""
    head = ("engine", "precision", "images/s", "lowest", "highest", "ms/batch", "differs by")
    rows = []
    for row in found.engines:
        rate = number(row.images_per_s) or "not run"
        figures = (rate, *map(number, (row.lowest, row.highest, row.batch_ms)))
        differs = "" if row.difference is None else f"{row.difference:.2g} ({row.relative:.2%})"
        rows.append((f"{row.engine} {row.version}".strip(), row.precision, *figures, differs))
    return Table(f"{found.model} ({found.precision}), batches of {found.batch}", head, rows)


def overhead(found: Overhead) -> Table:
    """Result of `lookout bench part python`."""
    rows = [
        ("rate of one process", f"{number(found.fps)} frames/s"),
        ("CPU per frame, whole process", f"{number(found.cpu_us_per_frame)} us"),
        ("wall time per frame", f"{number(found.wall_us_per_frame)} us"),
    ]
    title = f"{found.sources} sources, {found.published} frames published, {found.received} received"
    return Table(title, ("", ""), rows)


def analytics(found: AnalyticsCost) -> Table:
    """Result of `lookout bench part analytics`."""
    head = ("objects", "tracking, compiled", "in numpy", "four rules, compiled", "in Python", "the peer's tracking")
    rows = [
        (str(row.objects), *map(number, (row.compiled, row.numpy, row.compiled_rules, row.rules, row.peer)))
        for row in found.tracking
    ]
    title = f"CPU, us a frame. A batch has a frame of each of {found.sources} sources. Peer: {found.peer}"
    return Table(title, head, rows)


def fleet(found: FleetCost) -> Table:
    """Result of `lookout bench part fleet`."""
    rows = [
        (row.name, number(row.median_ms), number(row.max_ms), str(row.moved), str(row.waiting)) for row in found.times
    ]
    title = f"Placement of {found.sources} sources on {found.members} members, ms"
    return Table(title, ("", "median", "slowest", "placed", "without room"), rows)


def efficiency(found: Efficiency) -> Table:
    """Result of `lookout bench part python CLIP`."""
    rows = [
        ("Lookout, lossless replay", number(found.lookout_fps), ""),
        ("bare: letterbox and onnxruntime, decoded frames", number(found.bare_fps), f"{found.ratio:.3f}"),
        ("onnxruntime alone", number(found.infer_only_fps), f"{found.ratio_to_infer_only:.3f}"),
    ]
    return Table(f"Medians of {found.rounds} rounds", ("", "frames/s", "Lookout's share"), rows)
