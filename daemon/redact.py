"""Credentials are redacted by their type, so that no print and no log can give them away.

`printable` keeps foreign text from controlling a terminal.

Only parts of a URL that are known to be harmless are shown. Cameras carry passwords in user names, paths, queries
and fragments, under names that no list of secrets is long enough for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import quote

HIDDEN = "***"

# Keys of queries that choose a stream. Their values are shown where they are short and plain.
_SHOWN = """
    action app audio cam camera ch channel channelid channels chn cmd codec compression format fps h height id
    idc ids inst instance line mode motion multicast nocache num overlays port preset proto profile profileid protocol
    quality rate resolution size stream streamid streamtype stream_type subtype transport transportmode track trackid
    type unicast v vcodec video videocodec videokeyframeinterval videoresolution w width x"""
_HARMLESS = frozenset(_SHOWN.split())
# Keys that are shown, and their values never; any other key is hidden, too: it may be part of a password.
_NAMED = """
    account accesskey access_token api_key apikey auth authbasic code expires hash key login loginpas
    loginpass loginuse loginuser name nonce pass passwd password psw pswd pw pwd secret session sessionid sig
    sign signature
    streamkey token user user_name userid username usr"""
_SECRET = frozenset(_NAMED.split())
_HOST = re.compile(r"(?:\[[\w:.%]+\]|[\w.-]+)(?::\d{1,5})?(?=[/?#]|$)")
_CREDENTIALS = re.compile(r"[^:/?#]*(?:@|:(?!\d{1,5}[/?#]))")
_ENCODED = re.compile(r"%[0-9A-Fa-f]{2}")
_PLAIN = re.compile(r"[\w.,~-]{0,64}", re.ASCII)
# A name: a word in one case or CamelCase, perhaps after a codec, and a number no longer than a date; a size, a rate, a
# moment. Longer texts that are none of these may be keys.
_NAME = re.compile(
    r"(?:h26[45x]|mpeg4|mp4)?(?:[A-Z]*|[A-Z]{0,4}[a-z]*|[A-Z]?[a-z]{2,}(?:[A-Z]{1,4}|[A-Z][a-z]{2,})*)\d{0,8}"
    r"|\d{2,5}x\d{2,5}|\d{3,4}[pi]\d{0,2}|\d{8}[Tt]\d{6}[Zz]?",
    re.ASCII,
)
_SHORT, _LONGEST_NAME = 6, 20
_KEYED = ("rtmp", "rtmps", "rtmpt")  # the path is the application, and behind it the key to publish or to play
_URL = re.compile(r"[A-Za-z][\w+.-]*://\S+")
_AROUND = re.compile(r"['\"`<>()\[\]{}:,.;]{0,2}\Z")  # behind a URL in a sentence; more may be a password's end


class Secret:
    """A text that only `reveal` shows.

    Args:
        written: the text in the configuration, if it differs: `${NAME}` stays `${NAME}`.
    """

    __slots__ = ("_text", "written")

    def __init__(self, text: str, written: str | None = None) -> None:
        self._text = text
        self.written = text if written is None else written

    def reveal(self) -> str:
        return self._text

    def __str__(self) -> str:
        return HIDDEN

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)


def written_of(value: object) -> str:
    """The text of a value in the configuration; a secret stays as it was written."""
    return value.written if isinstance(value, Secret) else str(value)


class Url(Secret):
    """A URL or path. Only harmless parts are shown: `rtsp://***@host/stream`."""

    __slots__ = ()

    def __str__(self) -> str:
        return redact_url(self._text)

    @property
    def scheme(self) -> str:
        """In lower case; empty for a path."""
        scheme, separator, _ = self._text.partition("://")
        return scheme.lower() if separator else ""

    @property
    def path(self) -> str:
        """Of a file or folder of this machine, with or without the scheme `file`."""
        return self._text[len("file://") :] if self.scheme == "file" else self._text

    @property
    def authority(self) -> str:
        """Host and port, without credentials; empty for a path."""
        rest = self._text.partition("://")[2].removeprefix(f"{_credentials(self._text)}@")
        return re.split("[/?#]", rest, maxsplit=1)[0]

    @property
    def has_credentials(self) -> bool:
        """A user name or password stands before the host."""
        return bool(_credentials(self._text))

    def encoded(self) -> str:
        """The URL with user name and password percent-encoded; parts that are encoded already stay."""
        _, separator, rest = self._text.partition("://")
        scheme, credentials = self.scheme, _credentials(self._text)  # FFmpeg knows schemes in lower case alone
        if not credentials:
            return f"{scheme}{separator}{rest}" if separator else self._text
        user, colon, password = credentials.partition(":")
        return f"{scheme}{separator}{percent_encoded(user)}{colon}{percent_encoded(password)}{rest[len(credentials) :]}"

    def with_credentials(self, user: Secret, password: Secret | None) -> str:
        """The URL with user name and password, percent-encoded."""
        _, separator, rest = self._text.partition("://")
        secret = "" if password is None else f":{quote(password.reveal(), safe='')}"
        return f"{self.scheme}{separator}{quote(user.reveal(), safe='')}{secret}@{rest}"


def redact_url(url: str) -> str:
    """A URL with its host, the harmless parts of its path, and the harmless keys of its query; a path as it is.

    Everything up to the last @ goes, because passwords hold unescaped slashes, at signs and question marks.
    """
    scheme, separator, rest = url.partition("://")
    if not separator or scheme.lower() == "file":
        return url
    credentials, at, rest = rest.rpartition("@")
    shown = f"{scheme}://"
    if at and not _CREDENTIALS.match(credentials + at):  # the @ is in a path or query, after a port perhaps
        return shown + HIDDEN
    shown += f"{HIDDEN}@" if at else ""
    host = _HOST.match(rest)
    if not host:
        return shown + HIDDEN if rest else shown
    rest, sharp, _ = rest[host.end() :].partition("#")
    path, mark, query = rest.partition("?")
    parts = list(_parts(path, keyed=scheme.lower() in _KEYED))
    shown += host[0] + "/".join(parts)
    if mark and parts[-1] == HIDDEN:  # the query may be the rest of it
        return f"{shown}?{HIDDEN}"
    if mark:
        shown += "?" + "&".join(_item(item) for item in re.split("[&;]", query))
    return shown + f"#{HIDDEN}" if sharp else shown


def percent_encoded(text: str) -> str:
    """Encode a text for a URL; encoded text stays as it is."""
    return quote(text, safe="%" if _ENCODED.search(text) else "")


def scrub(text: str) -> str:
    """A text with its URLs redacted, for messages of libraries."""
    return _URL.sub(_redact_match, text)


def printable(text: str) -> str:
    """Replace control characters; a line break counts as one."""
    return text if text.isprintable() else "".join(sign if sign.isprintable() else "\ufffd" for sign in text)


def _credentials(url: str) -> str:
    """The part before the host and its @, escaped or not; empty if there is none, or if it may be a path."""
    credentials, at, _ = url.partition("://")[2].rpartition("@")
    return credentials if at and _CREDENTIALS.match(credentials + at) else ""


def _redact_match(match: re.Match[str]) -> str:
    url = _AROUND.sub("", match[0])
    return redact_url(url) + match[0][len(url) :]


def _parts(path: str, *, keyed: bool) -> Iterator[str]:
    """Of a path, up to the first that may be a secret: what follows may be the rest of it."""
    for place, part in enumerate(path.split("/")):
        if not _is_plain(part) or (keyed and place > 1):
            yield HIDDEN
            return
        yield part


def _item(item: str) -> str:
    key, equals, value = item.partition("=")
    if key.lower() in _HARMLESS and _is_plain(value):
        return item
    return f"{key}{equals}{HIDDEN}" if key.lower() in _HARMLESS | _SECRET else HIDDEN


def _is_plain(text: str) -> bool:
    """Names and numbers; nothing as mixed, or as long, as a key."""
    return bool(_PLAIN.fullmatch(text)) and all(map(_is_name, re.split(r"[._,~-]", text)))


def _is_name(word: str) -> bool:
    return len(word) <= _SHORT or (len(word) <= _LONGEST_NAME and bool(_NAME.fullmatch(word)))
