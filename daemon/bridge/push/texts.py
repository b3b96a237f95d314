"""Records as people read them, on a phone: short, with local times, and without anything that a value could do."""

from __future__ import annotations

from dataclasses import dataclass, replace
from urllib.parse import quote

import msgspec

from daemon.bridge.messages import Loss, Notice
from daemon.bridge.push.port import RefusedError
from daemon.bridge.records import Delivery, Picture, Record
from daemon.clock import Clock, utc_ms_text, wall_text
from daemon.config.templates import replaced
from daemon.redact import printable
from lookout.messages import Clip, Event

MAX_TEXT = 1000  # characters: Telegram takes 1,024 beside a picture, ntfy 4,096 bytes
_MAX_VALUE = 80
_MAX_REASON = 300
_MAX_TITLE = 120
_CAUSES = {
    "wire": "they did not arrive, and the journal does not have them",
    "journal": "the journal lost or removed them",
    "spool_full": "the bridge's spool was full",
    "disk": "the bridge could not write its spool",
}


@dataclass(frozen=True)
class Said:
    """A message to people.

    Attributes:
        title: short; for a digest, too.
        text: at most `MAX_TEXT` characters, without control characters but line breaks.
        click: a URL; None without.
        mood: whether something is wrong, or is right again; None of events.
    """

    title: str
    text: str
    click: str | None = None
    mood: str | None = None
    picture: bytes | None = None

    def without_picture(self, reason: str) -> Said:
        """The same as text alone, which says why."""
        return replace(self, text=with_reason(self.text, reason), picture=None)


class Texts:
    """Writes records down.

    Args:
        template: of events.
        click: of URLs; None without.
    """

    def __init__(self, template: str, click: str | None, clock: Clock) -> None:
        self._template, self._click, self._clock = template, click, clock

    def of(self, delivery: Delivery) -> Said:
        """
        Raises:
            RefusedError: the record is of no use.
        """
        record, picture = delivery.record, delivery.picture or Picture(None)
        try:
            message = record.message
        except msgspec.MsgspecError as error:
            raise RefusedError(f"it cannot be read: {error}") from error
        said = self._said(record, message)
        if picture.jpeg is not None:
            return replace(said, picture=picture.jpeg)
        return said.without_picture(picture.reason) if picture.reason else said

    def time_of(self, utc_ns: int) -> str:
        """By the clock on the wall, with the date if it is not of today."""
        return wall_text(utc_ns, self._clock.utc_ns())

    def _said(self, record: Record, message: Event | Notice | Clip | Loss) -> Said:
        click = self._link(record)
        if isinstance(message, Event):
            title = f"{message.source}, {message.rule}" if message.rule else message.source
            return Said(_title(title), _cut(replaced(self._template, self._values(record, message))), click)
        if isinstance(message, Notice):
            mood = "wrong" if message.condition == "down" else "right"
            return Said(_title(_thing(message)), _cut(self._notice(message)), click, mood)
        if isinstance(message, Clip):
            begin, end = self.time_of(message.begin), self.time_of(message.end)
            state = {"ready": "is ready", "failed": "could not be recorded"}.get(message.state, "is being recorded")
            text = f"The video of {value(message.source)}, {begin} to {end}, {state}"
            return Said(_title(message.source), text, click, "wrong" if message.state == "failed" else None)
        if message.is_of_clips:
            text = f"Messages about videos of {value(message.daemon)} did not arrive. Some videos may not be told"
            return Said("Lookout", text, click, "wrong")
        count = "An unknown number of" if message.count is None else f"{message.count}"
        of = f" of {value(message.daemon)}" if message.daemon else ""
        return Said("Lookout", f"{count} events{of} are lost: {_CAUSES[message.cause]}", click, "wrong")

    def _values(self, record: Record, event: Event) -> dict[str, str]:
        crowd = f"crowd of {event.count}" if event.count else "crowd"
        reason = (event.reason or "").replace("_", " ")
        if event.attribute is not None:
            reason = f"{event.attribute.name}: {event.attribute.value}"
        values = {
            "label": event.label or (crowd if event.kind == "crowd" else "object"),
            "source": event.source,
            "rule": event.rule or "no rule",
            "event": f"{event.kind}.{event.phase}",
            "time": self.time_of(event.at),
            "daemon": record.daemon,
            "reason": reason,
        }
        return {name: value(text) for name, text in values.items()}

    def _notice(self, notice: Notice) -> str:
        since, now = self.time_of(notice.since), self.time_of(notice.at)
        thing, reason = _thing(notice), _reason(notice.reason)
        if notice.about == "recording":
            if notice.condition == "down":
                return f"{thing} have gaps since {since}{reason}"
            return f"{thing} have no gaps any more. They had from {since} to {now}{reason}"
        down, back = {
            "store": ("cannot be written", "can be written again. It could not"),
            "daemon": ("does not answer", "answers again. It did not"),
        }.get(notice.about, ("is down", "is up again. It was down"))
        if notice.condition == "down":
            return f"{thing} {down} since {since}{reason}"
        return f"{thing} {back} from {since} to {now}{reason}"

    def _link(self, record: Record) -> str | None:
        if self._click is None:
            return None
        values = {
            "source": record.source,
            "id": record.id,
            "at": utc_ms_text(record.at),
            "daemon": record.daemon,
        }
        return replaced(self._click, values, lambda text: quote(text[:256], safe=""))


def value(text: str) -> str:
    """A text of others, on one line and short."""
    return _shortened(printable(text), _MAX_VALUE)


def with_reason(text: str, reason: str) -> str:
    """A text that says why it has no picture."""
    line = f"\n(no picture: {_shortened(printable(reason), _MAX_REASON)})"
    return _shortened(text, MAX_TEXT - len(line)) + line


def _thing(notice: Notice) -> str:
    name = value(notice.name)
    words = {"source": f"Camera {name}", "store": f"Store {name}", "recording": f"Recordings of camera {name}"}
    return words.get(notice.about, f"Lookout at {value(notice.daemon)}")


def _reason(text: str | None) -> str:
    return f": {_shortened(printable(text), _MAX_REASON)}" if text else ""


def _title(text: str) -> str:
    return _shortened(printable(text), _MAX_TITLE)


def _cut(text: str) -> str:
    """Line breaks of a template stay."""
    return _shortened("\n".join(map(printable, text.splitlines())), MAX_TEXT)


def _shortened(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
