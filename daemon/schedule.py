"""Times of the week when a rule is active, such as "mon-fri 22:00-06:00", in a named time zone."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_SECOND = 1_000_000_000
_MINUTE = 60 * _SECOND
_DAY = 24 * 60  # minutes
_TIMES = re.compile(r"(\d{1,2}):(\d{2})-(\d{1,2}):(\d{2})")


class Schedule:
    """Parts, separated by semicolons, of days and times: `mon-fri 22:00-06:00; sat,sun`.

    Days alone mean all day, times alone mean every day. Times that end before they begin go on into the next day, and
    belong to the day on which they begin. Local time decides: an hour that a change of the clocks repeats counts twice,
    and an hour that it leaves out does not count.

    Args:
        zone: IANA name, such as Europe/Berlin.

    Raises:
        ValueError: the text is no schedule, is never active, or the zone is unknown.
    """

    def __init__(self, text: str, zone: str) -> None:
        try:
            self._zone = ZoneInfo(zone)
        except (ZoneInfoNotFoundError, ValueError, OSError) as error:
            raise ValueError(f"{zone!r} is no time zone of this machine: write one such as Europe/Berlin") from error
        parts = [part.split() for part in text.lower().split(";") if part.strip()]
        if not parts:
            raise ValueError("is empty: write such as mon-fri 22:00-06:00")
        self._parts = [_part(words) for words in parts]

    def is_active(self, utc_ns: int) -> bool:
        local = self._local(utc_ns)
        day, minute = local.weekday(), local.hour * 60 + local.minute
        return any(_holds(part, day, minute) for part in self._parts)

    def held(self, utc_ns: int) -> tuple[bool, int, int]:
        """Whether it is active, and the time from and before which that holds: the minute of local time."""
        begin = utc_ns - self._local(utc_ns).second * _SECOND - utc_ns % _SECOND
        return self.is_active(utc_ns), begin, begin + _MINUTE

    def _local(self, utc_ns: int) -> datetime:
        return (_EPOCH + timedelta(seconds=utc_ns // _SECOND)).astimezone(self._zone)


_Part = tuple[frozenset[int], int, int]  # days, from and before which minute of the day


def _part(words: list[str]) -> _Part:
    days, times = frozenset(range(7)), (0, _DAY)
    matches = [_TIMES.fullmatch(word) for word in words]
    if len(words) > 2 or (len(words) == 2 and (matches[0] or not matches[1])):
        raise ValueError(f"{' '.join(words)!r} is not days and times, such as mon-fri 22:00-06:00")
    if not matches[0]:
        days = _days(words[0])
    if last := matches[-1]:
        times = _times(last)
    return days, *times


def _days(text: str) -> frozenset[int]:
    found: set[int] = set()
    for item in text.split(","):
        first, _, last = item.partition("-")
        for name in (first, last or first):
            if name not in _DAYS:
                raise ValueError(f"{name!r} is no day: days are {', '.join(_DAYS)}, as in mon-fri or sat,sun")
        begin, end = _DAYS.index(first), _DAYS.index(last or first)
        found.update((begin + offset) % 7 for offset in range((end - begin) % 7 + 1))
    return frozenset(found)


def _times(match: re.Match[str]) -> tuple[int, int]:
    text = match[0]
    hours, minutes, end_hours, end_minutes = map(int, match.groups())
    begin, end = hours * 60 + minutes, end_hours * 60 + end_minutes
    if minutes > 59 or end_minutes > 59 or begin >= _DAY or end > _DAY:
        raise ValueError(f"{text!r} is no time of a day: from 00:00 to 24:00")
    if begin == end:
        raise ValueError(f"{text!r} never is: it ends when it begins; 00:00-24:00 is all day")
    return begin, end


def _holds(part: _Part, day: int, minute: int) -> bool:
    days, begin, end = part
    if begin < end:
        return day in days and begin <= minute < end
    return (day in days and minute >= begin) or ((day - 1) % 7 in days and minute < end)


def schedule_problem(times: str | None, zone: str | None) -> str | None:
    """The mistake in the keys `active` and `timezone`; None without one."""
    if times is None:
        return None if zone is None else "timezone: is for `active`, which is not set"
    if zone is None:
        return "active: needs a `timezone` beside it, such as Europe/Berlin"
    try:
        Schedule(times, zone)
    except ValueError as error:
        return f"{'timezone' if 'time zone' in str(error) else 'active'}: {error}"
    return None
