"""Credentials are redacted at the door: what prints or logs these values cannot give them away."""

from __future__ import annotations

import re

_SECRET_QUERY = re.compile(r"([?&;][^=&;]*(?:pass|pwd|user|token|key|secret|auth|sig)[^=&;]*=)[^&;]*", re.IGNORECASE)
_USERINFO = re.compile(r"(\w[\w+.-]*://)[^\s/'\"]*@")


class Secret:
    """A text that shows itself only through `reveal`."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        return self._text

    def __str__(self) -> str:
        return "***"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)


class Url(Secret):
    """A URL or path whose credentials are hidden, the rest not: `rtsp://***@host/stream`."""

    __slots__ = ()

    def __str__(self) -> str:
        return redact_url(self._text)

    @property
    def scheme(self) -> str:
        """In lower case; empty for a path."""
        scheme, separator, _ = self._text.partition("://")
        return scheme.lower() if separator else ""


def redact_url(url: str) -> str:
    """A URL without user name, password and query values that look secret.

    Everything up to the last @ goes, because passwords hold unescaped slashes and at signs.
    """
    scheme, separator, rest = url.partition("://")
    if not separator:
        return url
    path, query_mark, query = rest.partition("?")
    _, at, host = path.rpartition("@")
    if "@" in query and ":" in path:  # a password may have a question mark in it
        path, query_mark, query = f"***@{query.rpartition('@')[2]}", "", ""
    elif at:
        path = f"***@{host}"
    return scheme + separator + path + _SECRET_QUERY.sub(r"\1***", query_mark + query)


def scrub(text: str) -> str:
    """Any text with the user names and passwords of URLs in it hidden: for what libraries say."""
    return _USERINFO.sub(r"\1***@", text)
