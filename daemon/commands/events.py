"""`lookout events`: what tracks and rules find, live from the wire or from the journal over HTTP."""

from __future__ import annotations

import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence

import msgspec

from daemon.clock import utc_text
from daemon.errors import LookoutError
from daemon.peers.addresses import given_token
from daemon.redact import Secret, printable
from daemon.system.streams import is_output_read
from lookout.client import Subscriber
from lookout.messages import Event, Message

_TIMEOUT_S = 10.0
_POLL_S = 0.5
_MAX_ERROR = 500  # bytes of an answer that is shown
_SCHEMES = ("http://", "https://")


class _Page(msgspec.Struct):
    """An answer of `GET /api/v1/events`."""

    events: list[Event]
    next: int
    more: bool


class _Refusal(msgspec.Struct):
    error: str


def is_url(endpoint: str) -> bool:
    """Whether it is the HTTP API, and not the wire."""
    return endpoint.startswith(_SCHEMES)


def live(subscriber: Subscriber, as_json: bool) -> int:
    """Print each event as it comes, until interrupted, or until nobody reads."""
    for message in messages_while_read(subscriber):
        if isinstance(message, Event):
            _print(message, as_json)
    return 0


def messages_while_read(subscriber: Subscriber) -> Iterator[Message]:
    """Messages as they come, for as long as somebody may read what is printed of them."""
    while is_output_read():
        message = subscriber.receive(_POLL_S)
        if message is not None:
            yield message


def kept(url: str, sources: Sequence[str], since: int | None, token: str | None, as_json: bool) -> int:
    """Print events of the journal: the newest, or all behind a number."""
    for event in _pages(url.rstrip("/"), since, given_token(token)):
        if not sources or event.source in sources:
            _print(event, as_json)
    return 0


def line_of(event: Event) -> str:
    """An event for a person: when, where, what, and what was not seen meanwhile."""
    return f"{utc_text(event.at)}  {words_of(event)}"


def words_of(event: Event) -> str:
    """`line_of` without the time."""
    parts = [event.source, f"{event.kind} {event.phase}", event.rule, event.direction]
    parts += [event.label, None if event.track is None else f"track {event.track}"]
    parts += [None if event.count is None else f"{event.count} tracks"]
    parts += [None if event.dwell is None else f"{event.dwell / 1e9:.1f} s"]
    parts += [f"{event.attribute.name} {event.attribute.value}" if event.attribute else None]
    parts += [event.reason if event.reason not in (None, event.phase) else None]
    if event.unseen.frames:
        parts.append(f"({event.unseen.frames} frames unseen, {event.unseen.longest_gap / 1e9:.1f} s at most)")
    return printable("  ".join(part for part in parts if part))


def _pages(url: str, since: int | None, token: Secret | None) -> Iterator[Event]:
    while True:
        page = _get(url, since, token)
        yield from page.events
        if not (page.more and is_output_read()):
            return
        since = page.next


def _get(url: str, since: int | None, token: Secret | None) -> _Page:
    query = "" if since is None else f"?since={since}&limit=1000"
    headers = {} if token is None else {"Authorization": f"Bearer {token.reveal()}"}
    try:
        request = urllib.request.Request(f"{url}/api/v1/events{query}", headers=headers)  # noqa: S310 - `is_url`
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:  # noqa: S310 - likewise
            return msgspec.json.decode(answer.read(), type=_Page)
    except urllib.error.HTTPError as error:
        raise LookoutError(f"{url} answers {error.code}: {_words(error.read(_MAX_ERROR))}") from error
    except (OSError, ValueError) as error:
        raise LookoutError(f"{url} does not answer as Lookout does: {getattr(error, 'reason', error)}") from error


def _words(body: bytes) -> str:
    try:
        return printable(msgspec.json.decode(body, type=_Refusal).error)
    except msgspec.MsgspecError:
        return "no reason"


def _print(event: Event, as_json: bool) -> None:
    sys.stdout.write((msgspec.json.encode(event).decode() if as_json else line_of(event)) + "\n")
    sys.stdout.flush()
