"""Tables of comparisons and of parts measured alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from daemon.commands.report import Table, number

if TYPE_CHECKING:
    from daemon.bench.compare import Change
    from daemon.bench.compare_frames import Agreement
    from daemon.bench.decode import DecodeRates
    from daemon.bench.engine import EngineRate


def changes(changes: Sequence[Change]) -> Table:
    """Changes between two reports."""
    names = any(change.model for change in changes)
    rows = [
        (
            str(change.case["sources"]),
            str(change.case["lanes"]),
            *((change.model or "all",) if names else ()),
            change.metric,
            f"{change.old:.5g}",
            f"{change.new:.5g}",
            number(change.ratio),
            f"{change.noise:.1%}",
            change.result,
        )
        for change in changes
    ]
    head = ("sources", "lanes", *(("model",) if names else ()), "metric", "old", "new", "new / old", "noise", "")
    return Table("New over old", head, rows)


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
