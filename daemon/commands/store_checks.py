"""The part of `lookout check` that is about recordings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

from rich.console import Console

from daemon.commands.model_checks import listed, say
from daemon.config.recording import StoreConfig
from daemon.config.root import Config
from daemon.config.sources import AvConfig, SourceConfig
from daemon.errors import SourceError

_GIB = 1 << 30
_ASSUMED = 500_000.0  # bytes a second: 4 Mbit/s
_DAY_S, _HOUR_S = 86_400, 3600


def check_stores(config: Config, codecs: Mapping[str, str], console: Console, *, alone: bool) -> Sequence[str]:
    """Try each store, and print what it holds; returns the problems.

    Args:
        codecs: of sources that could be opened.
        alone: no daemon may record now.
    """
    if not config.record.stores:
        return []
    problems = []
    for name, store in config.record.stores.items():
        problem, lines = _tried(config, name, store, codecs, alone=alone)
        if problem is not None:
            problems.append(problem)
            say(console, problem, "red")
        for text, style in lines:
            say(console, f"store {name}: {text}", style)
    for problem in _broken_streams(config):
        problems.append(problem)
        say(console, problem, "red")
    left_out = _left_out(config, codecs)
    if left_out:
        rows = (f"{listed(sources)} ({reason})" for reason, sources in left_out.items())
        say(console, f"not recorded: {'; '.join(rows)}", "yellow")
    if without := _without_events(config, codecs):
        line = f"nothing is kept of {listed(without)}: events alone are recorded, and without tracking there are none"
        say(console, line, "yellow")
    return problems


def _broken_streams(config: Config) -> Sequence[str]:
    """Streams of `record.url` that cannot be recorded, and why."""
    from daemon.recording.recording import plan_of
    from daemon.recording.streams.process import stream_of

    streams = [
        stream_of(source, url)
        for source in config.active
        if isinstance(source, AvConfig) and (url := source.recording.url) is not None and plan_of(config, source)
    ]
    with ThreadPoolExecutor(max_workers=16, thread_name_prefix="check") as pool:
        found = pool.map(_problem_of, streams)
        return [f"{stream.id}: record.url: {problem}" for stream, problem in zip(streams, found) if problem]


def _problem_of(stream: AvConfig) -> str | None:
    from daemon.recording.init_segment import CODECS
    from daemon.sources.packet_stream import PacketStream

    try:
        with closing(PacketStream(stream)) as opened:
            codec = opened.next()[0].codec
    except SourceError as error:
        return str(error)
    return None if codec in CODECS else f"video in {codec} is not recorded, H.264 and HEVC are"


def _without_events(config: Config, codecs: Mapping[str, str]) -> Sequence[str]:
    """Sources of which events alone are kept, and which have none."""
    from daemon.recording.recording import plan_of

    plans = ((source, plan_of(config, source)) for source in _recorded(config, codecs))
    return [
        source.id
        for source, plan in plans
        if plan and config.tracking_of(source) is None and not any(row.continuous for row in plan.values())
    ]


def _tried(
    config: Config, name: str, store: StoreConfig, codecs: Mapping[str, str], *, alone: bool
) -> tuple[str | None, list[tuple[str, str]]]:
    from daemon.recording.recording import plan_of
    from daemon.recording.trial import TrialOrder, try_store

    where = f"record.stores.{name}"
    plans = {source.id: plan_of(config, source) for source in _recorded(config, codecs)}
    modes = {source: plan[name].continuous for source, plan in plans.items() if name in plan}
    found = try_store(TrialOrder(str(store.path), store.must_be_mount, alone, [*modes]))
    if found.problem is not None:
        return f"{where}.path: {found.problem}", []
    room = found.bytes + found.free_bytes - round(store.min_free_gib * _GIB)
    if room <= 0:
        free = f"{_size(found.free_bytes)} are free, of which min_free_gib keeps {store.min_free_gib:g} GiB"
        return f"{where}: {store.path} has no room for recordings: {free}", []
    most = min(room, round(store.max_gib * _GIB)) if store.max_gib is not None else room
    rates = {source: found.rates.get(source, _ASSUMED) for source in modes}
    speed = "is too full to measure how fast it writes" if found.bytes_per_s is None else _speed(found.bytes_per_s)
    limits = ", ".join(_limits(config, name, store))
    disk = f"{_size(found.free_bytes)} of {_size(found.disk_bytes)} are free"
    lines = [(f"{store.path} {speed}; {_size(most)} for recordings ({limits}; {disk})", "none")]
    if store.max_gib is not None and room < store.max_gib * _GIB:
        lines.append((f"max_gib: {store.max_gib:g} is more than the disk has room for", "yellow"))
    lines.append((_holds(modes, rates, found.rates, most), "none"))
    needed = sum(rate for source, rate in rates.items() if modes[source])
    if found.bytes_per_s is not None and found.bytes_per_s < 2 * needed:
        line = f"its disk is hardly fast enough: {needed / 1e6:.1f} MB/s of video are to come"
        lines.append((line, "yellow" if found.bytes_per_s >= needed else "red"))
    return None, lines


def _holds(modes: Mapping[str, bool], rates: Mapping[str, float], known: Mapping[str, float], most: int) -> str:
    """How long the recordings are that find room.

    Args:
        modes: of sources, whether all of their video is recorded.
        rates: of the same, bytes a second.
        known: of those that have recordings.
        most: bytes.
    """
    if not modes:
        return "no source is recorded into it"
    always = [source for source, is_always in modes.items() if is_always]
    chosen = always or [*modes]
    total = sum(rates[source] for source in chosen)
    if always:
        length = _length(most / total)
        rest = f", less the clips of {_count(len(modes) - len(always), 'other')}" if len(always) < len(modes) else ""
    else:
        length, rest = f"{_length(most / (total / len(chosen)))} of clips", ""
    return f"holds {length} at {_rates(chosen, rates, known)}{rest}"


def _rates(chosen: Sequence[str], rates: Mapping[str, float], known: Mapping[str, float]) -> str:
    measured, assumed = [row for row in chosen if row in known], [row for row in chosen if row not in known]
    words = []
    if measured:
        total = sum(rates[source] for source in measured)
        words.append(f"{total * 8e-6:.1f} Mbit/s, the rate of {_count(len(measured), 'source')} in its recordings")
    if assumed:
        each = "for" if len(assumed) == 1 else "for each of"
        words.append(f"{_ASSUMED * 8e-6:g} Mbit/s, which is assumed, {each} {_count(len(assumed), 'source')}")
    return " and ".join(words)


def _limits(config: Config, name: str, store: StoreConfig) -> Iterator[str]:
    if store.max_gib is not None:
        yield f"max_gib: {store.max_gib:g}"
    yield f"min_free_gib: {store.min_free_gib:g}"
    keep = config.record.keep
    days = f"events_days: {keep.events_days:g}"
    yield days if store.only else f"continuous_days: {keep.continuous_days:g}, {days}"
    for source in config.active:
        own = source.recording
        if own.max_gib is not None and (own.stores is None or name in own.stores):
            yield f"{source.id}: {own.max_gib:g} GiB"


def _recorded(config: Config, codecs: Mapping[str, str]) -> Iterator[SourceConfig]:
    from daemon.recording.recordable import why_not

    yield from (source for source in config.active if why_not(config, source, codecs.get(source.id)) is None)


def _left_out(config: Config, codecs: Mapping[str, str]) -> dict[str, list[str]]:
    """Sources by the reason."""
    from daemon.recording.recordable import why_not

    found: dict[str, list[str]] = {}
    for source in config.active:
        if reason := why_not(config, source, codecs.get(source.id)):
            found.setdefault(reason, []).append(source.id)
    return found


def _length(seconds: float) -> str:
    if seconds < 2 * _DAY_S:
        return f"{seconds / _HOUR_S:.1f} hours"
    return f"{seconds / _DAY_S:.1f} days"


def _speed(bytes_per_s: float) -> str:
    return f"writes {bytes_per_s / 1e6:.0f} MB/s"


def _size(count: int) -> str:
    return f"{count / _GIB:.1f} GiB"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")
