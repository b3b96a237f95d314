"""HTTP: each server gets what it may have, and no more.

User name, password, headers and cookies of a source are for its own server (scheme, host and port); cookies of another
server are for that one. FFmpeg by itself sends headers wherever a playlist or a redirect points, and cookies that name
no domain. So it follows no redirect: the target is found here, and opened with what its own server may have.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple
from urllib.parse import urljoin

import av.error

from daemon.config.sources import AvConfig
from daemon.sources.avio import AvioFile
from daemon.sources.server_probe import probe_http

_FOR_ALL = (
    "protocol_whitelist",
    "user_agent",
    "referer",
    "http_proxy",
    "tls_verify",
    "ca_file",
    "timeout",
    "rw_timeout",
)
_SECRET = ("headers", "cookies")
_MAX_REDIRECTS = 8  # as FFmpeg has it
_PROBE_S = 2.0  # for a redirect
CIPHER = "crypto+"  # before a URL: FFmpeg deciphers what is there
# A URL that FFmpeg and this program cannot read in two ways.
_PLAIN = re.compile(
    r"(?:crypto\+)?(?P<scheme>https?)://(?P<login>[^/?#@\\\s]*@)?(?P<host>[\w.-]+|\[[\da-fA-F:.]+\])(?::(?P<port>\d+))?"
    r"(?=[/?]|$)",
    re.ASCII,
)


class Origin(NamedTuple):
    """A server."""

    scheme: str
    host: str
    port: str


class HttpFiles:
    """Opens URLs for a source.

    Args:
        url: of the source, with user name and password.
        options: FFmpeg's, for the source's own server.
        is_over: whether to give up; polled while a server is silent.
    """

    def __init__(self, url: str, options: Mapping[str, str], is_over: Callable[[], bool] = lambda: False) -> None:
        self._options, self._is_over = options, is_over
        self._origin, self._login = origin_of(url), _login_of(url)
        self._cookies: dict[Origin | None, str] = {}

    def open(self, url: str, options: Mapping[str, str], *, redirects: int = _MAX_REDIRECTS) -> AvioFile:
        """
        Args:
            options: FFmpeg's further ones, of this file.
            redirects: how many may be followed.

        Raises:
            FFmpegError: it cannot be opened.
        """
        try:
            return self._open(url, options)
        except av.error.OSError:  # as FFmpeg calls a redirect that it does not follow
            target = self.target(url, redirects)
            if target == url:
                raise
            return self._open(target, options)

    def target(self, url: str, redirects: int) -> str:
        """The URL to which a server redirects, the same one if it does not, or to another protocol than HTTP."""
        plain = url.removeprefix(CIPHER)
        for _ in range(redirects):
            headers = self.options_for(plain).get("headers", "")
            answer = probe_http(self._logged_in(plain), headers=headers, log_in=True, timeout_s=_PROBE_S)
            if answer is None or not 300 <= answer.status < 400 or not answer.header("location"):
                break
            further = joined(plain, answer.header("location"))
            if origin_of(further) is None:  # it is not HTTP
                break
            plain = further
        return CIPHER + plain if url.startswith(CIPHER) else plain

    def options_for(self, url: str) -> dict[str, str]:
        """FFmpeg's options for a URL."""
        origin = origin_of(url)
        mine = origin is not None and origin == self._origin
        given = {key: value for key, value in self._options.items() if mine or key in _FOR_ALL}
        if cookies := self._cookies.get(origin):
            given["cookies"] = cookies
        return {**given, "max_redirects": "0"}

    def _open(self, url: str, options: Mapping[str, str]) -> AvioFile:
        given = without_secrets(options) | self.options_for(url)
        file = AvioFile(self._logged_in(url), given, self._is_over)
        if cookies := file.option("cookies"):
            self._cookies[origin_of(url)] = cookies
        return file

    def _logged_in(self, url: str) -> str:
        """A URL of the source's own server with user name and password, if it has none."""
        mine = origin_of(url) == self._origin is not None
        return url.replace("://", f"://{self._login}", 1) if mine and not _login_of(url) else url


def without_secrets(options: Mapping[str, str]) -> dict[str, str]:
    """FFmpeg's options that any server may have."""
    return {key: value for key, value in options.items() if key not in _SECRET}


def redirects_of(config: AvConfig) -> int:
    """How many redirects of the source's own URL may be followed."""
    number = config.options["max_redirects"].reveal() if "max_redirects" in config.options else "0"
    return min(int(number), _MAX_REDIRECTS) if number.isdecimal() else 0


def origin_of(url: str) -> Origin | None:
    """The server of a URL; None if it is not plain."""
    found = _PLAIN.match(url)
    if found is None:
        return None
    port = found["port"] or {"http": "80", "https": "443"}[found["scheme"]]
    return Origin(found["scheme"], found["host"].lower(), port)


def joined(base: str, reference: str) -> str:
    """The absolute URL of a reference; a reference that is no URL, as it is."""
    try:
        return urljoin(base, reference)
    except ValueError:
        return reference


def _login_of(url: str) -> str:
    """User name and password with their @; empty without."""
    found = _PLAIN.match(url)
    return (found["login"] or "") if found else ""
