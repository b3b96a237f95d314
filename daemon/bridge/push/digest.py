"""One message for many records that waited: how many, from when to when, of which sources and what."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from daemon.bridge.messages import Loss, Notice
from daemon.bridge.push.texts import MAX_TEXT, Said, Texts, value
from daemon.bridge.records import Delivery, Record
from lookout.messages import Clip, Event

_MOST_SOURCES, _MOST_LABELS, _MOST_NOTICES = 8, 4, 5


def digest_of(batch: Sequence[Delivery], texts: Texts) -> Said:
    """The message for all of a batch, with its newest picture.

    Raises:
        RefusedError: a batch of one that is of no use.
    """
    if len(batch) == 1:
        return texts.of(batch[0])
    by_source: dict[str, Counter[str]] = {}
    times, notices, others, lost = list[int](), dict[tuple[str, str, str], Delivery](), 0, 0
    are_videos_missing = False
    for delivery in batch:
        message = _message(delivery.record)
        if isinstance(message, Event):
            times.append(message.at)
            what = message.label or ("crowd" if message.kind == "crowd" else "object")
            by_source.setdefault(message.source, Counter())[what] += 1
        elif isinstance(message, Notice):
            notices[message.daemon, message.about, message.name] = delivery  # the newest
        elif isinstance(message, Loss):
            if message.is_of_clips:
                are_videos_missing = True
            else:
                lost += message.count or 1
        elif isinstance(message, Clip):
            others += 1
    lines = [*_events(by_source, times, texts)]
    if others:
        lines.append(f"{_number(others, 'video')}")
    if lost:
        lines.append(f"{_number(lost, 'event')} lost")
    if are_videos_missing:
        lines.append("some videos may not be told")
    told = [texts.of(Delivery(delivery.record)).text for delivery in [*notices.values()][-_MOST_NOTICES:]]
    if len(notices) > len(told):
        told.append(f"and {_number(len(notices) - len(told), 'other change')} of state")
    text = "\n".join([*lines, *told]) or f"{_number(len(batch), 'message')} while away"
    newest = next((row.picture.jpeg for row in reversed(batch) if row.picture and row.picture.jpeg), None)
    shown = text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 1]}…"
    return Said("While away", shown, picture=newest, mood="wrong" if lost or are_videos_missing else None)


def _events(by_source: dict[str, Counter[str]], times: Sequence[int], texts: Texts) -> list[str]:
    """Such as: 37 events while away, 10:02:11 to 11:05:40: door 20 person, 5 car; yard 12 person."""
    if not times:
        return []
    rows = sorted(by_source.items(), key=lambda row: -row[1].total())
    parts = [f"{value(source)} {_labels(counts)}" for source, counts in rows[:_MOST_SOURCES]]
    rest = rows[_MOST_SOURCES:]
    if rest:
        parts.append(f"{_number(len(rest), 'other source')} {sum(counts.total() for _, counts in rest)}")
    begin, end = texts.time_of(min(times)), texts.time_of(max(times))
    return [f"{_number(len(times), 'event')} while away, {begin} to {end}: {'; '.join(parts)}"]


def _labels(counts: Counter[str]) -> str:
    rows = counts.most_common()
    parts = [f"{count} {value(label)}" for label, count in rows[:_MOST_LABELS]]
    rest = sum(count for _, count in rows[_MOST_LABELS:])
    return ", ".join([*parts, f"{rest} others"] if rest else parts)


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _message(record: Record) -> Event | Notice | Clip | Loss | None:
    try:
        return record.message
    except msgspec.MsgspecError:
        return None
