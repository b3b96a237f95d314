"""Probes a server of RTSP or HTTP for its answer, to explain why FFmpeg could not open a source: FFmpeg tells little.

The probe connects to the source's own address alone, and follows nothing. Its answer is bounded in size and time.
"""

from __future__ import annotations

import base64
import hashlib
import re
import secrets
import socket
import ssl
from collections.abc import Iterable, Iterator
from contextlib import suppress
from time import monotonic
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

_PORTS = {"rtsp": 554, "rtsps": 322, "http": 80, "https": 443}
_MAX_HEAD = 64 << 10  # bytes
_MAX_BODY = 64 << 10
_AGENT = "User-Agent: Lookout"
_STATUS = re.compile(r"(RTSP|HTTP)/\d\.\d (\d{3}) ?(.*)")
_PARAMETER = re.compile(r'(\w+)\s*=\s*(?:"([^"]*)"|([^\s,]+))')
_TLS_ALERT = b"\x15\x03"


class Answer(NamedTuple):
    """A server's answer.

    Attributes:
        method: of the request.
        protocol: `RTSP`, `HTTP` or `TLS`; empty if it is none of these.
        reason: the text behind the status; without a status the beginning of what came.
        headers: names in lower case, and values.
    """

    method: str
    protocol: str
    status: int = 0
    reason: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    body: str = ""

    def header(self, name: str) -> str:
        """The first of this name; empty if there is none."""
        return next((value for key, value in self.headers if key == name), "")

    @property
    def challenges(self) -> list[Challenge]:
        """The ways to log in that it offers."""
        return [_challenge(value) for key, value in self.headers if key == "www-authenticate"]


class Challenge(NamedTuple):
    """A way to log in: `basic`, or `digest` with an algorithm such as MD5."""

    scheme: str
    parameters: dict[str, str]

    @property
    def algorithm(self) -> str:
        return self.parameters.get("algorithm", "MD5").upper()


def probe_rtsp(url: str, *, log_in: bool, timeout_s: float) -> Answer | None:
    """The answer at which a server stops on the way to play a stream; the last one if it does not. None if it cannot be
    reached, or says nothing.

    Args:
        url: with user name and password, percent-encoded.
        log_in: use them; a password that was refused is not tried again.
    """
    answer: Answer | None = None
    with suppress(OSError, ValueError), _Conversation(url, timeout_s) as server:
        for answer in _rtsp_answers(server, log_in=log_in):
            if answer.status != 200:
                break
    return answer


def probe_http(url: str, *, headers: str, log_in: bool, timeout_s: float) -> Answer | None:
    """A server's answer to GET; None if it cannot be reached, or says nothing.

    Args:
        headers: further ones, as FFmpeg takes them.
        log_in: see `probe_rtsp`.
    """
    further = [line for line in headers.splitlines() if line]
    with suppress(OSError, ValueError):
        with _Conversation(url, timeout_s) as server:
            answer = server.request("GET", server.path, *further)
            if answer.status != 401 or not (log_in and server.log_in(answer)):
                return answer
        with server.again() as server:
            return server.request("GET", server.path, *further)
    return None


def _rtsp_answers(server: _Conversation, *, log_in: bool) -> Iterator[Answer]:
    """The answers to all steps up to PLAY."""
    yield server.request("OPTIONS", server.uri)
    described = server.request("DESCRIBE", server.uri, "Accept: application/sdp")
    if described.status == 401 and log_in and server.log_in(described):
        described = server.request("DESCRIBE", server.uri, "Accept: application/sdp")
    yield described
    base = described.header("content-base") or server.uri
    set_up = server.request("SETUP", _track_of(described.body, base), "Transport: RTP/AVP/TCP;unicast;interleaved=0-1")
    yield set_up
    session = set_up.header("session").partition(";")[0]
    yield server.request("PLAY", base, f"Session: {session}", "Range: npt=0.000-")


def _track_of(sdp: str, base: str) -> str:
    """The URL of the first video (RFC 2326, C.1.1)."""
    video = sdp.partition("m=video")[2].partition("\nm=")[0]
    found = re.search(r"^a=control:\s*(\S+)", video, re.MULTILINE)
    control = found[1] if found else "*"
    if control == "*":
        return base
    return control if "://" in control else f"{base.rstrip('/')}/{control}"


class _Conversation:
    """A connection to the server of a URL."""

    def __init__(self, url: str, timeout_s: float, challenge: Challenge | None = None) -> None:
        self._url, self._timeout_s, self._challenge = url, timeout_s, challenge
        parts = urlsplit(url)
        scheme, _, rest = url.partition("://")
        place = rest.rpartition("@")[2] if parts.username is not None else rest
        self.uri = f"{scheme}://{place}"  # without user name and password
        self.path = parts.path + (f"?{parts.query}" if parts.query else "") or "/"
        self._user, self._password = unquote(parts.username or ""), unquote(parts.password or "")
        self._host, self._port = parts.hostname or "", parts.port or _PORTS[parts.scheme]
        self._is_rtsp, self._is_tls = parts.scheme.startswith("rtsp"), parts.scheme.endswith("s")
        self._number = 0
        self._data = b""

    def __enter__(self) -> _Conversation:
        self._until = monotonic() + self._timeout_s
        self._socket = socket.create_connection((self._host, self._port), self._timeout_s)
        if self._is_tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            # Cameras sign their own certificates, and FFmpeg takes them.
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            try:
                self._socket = context.wrap_socket(self._socket)
            except OSError:
                self._socket.close()
                raise
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def again(self) -> _Conversation:
        """Another connection, with the same login."""
        return _Conversation(self._url, self._timeout_s, self._challenge)

    def log_in(self, answer: Answer) -> bool:
        """Send the password from now on, in the way that the server asks for; False if that is not known."""
        known = [row for row in answer.challenges if row.scheme == "basic" or row.algorithm == "MD5"]
        self._challenge = known[-1] if known and self._user else None
        return self._challenge is not None

    def request(self, method: str, uri: str, *headers: str) -> Answer:
        """
        Raises:
            OSError, ValueError: the server does not answer.
        """
        self._number += 1
        login = self._authorization(method, uri)
        if self._is_rtsp:
            lines = [f"{method} {uri} RTSP/1.0", f"CSeq: {self._number}", _AGENT, *login, *headers]
        else:
            host = self.uri.partition("://")[2].partition("/")[0]
            lines = [f"{method} {uri} HTTP/1.1", f"Host: {host}", _AGENT, "Connection: close", *login, *headers]
        self._socket.settimeout(self._timeout_s)
        self._socket.sendall("\r\n".join([*lines, "", ""]).encode())
        return self._answer(method)

    def _answer(self, method: str) -> Answer:
        self._receive_until(b"\n")
        while self._data[:1] == b"$":  # a packet of video between the answers
            self._receive(4)
            size = 4 + int.from_bytes(self._data[2:4], "big")
            self._receive(size)
            self._data = self._data[size:]
            self._receive_until(b"\n")
        first = self._data.partition(b"\n")[0].decode(errors="replace").strip()
        status = _STATUS.match(first)
        if status is None:
            return Answer(method, "TLS" if self._data.startswith(_TLS_ALERT) else "", reason=first[:80])
        self._receive_until(b"\r\n\r\n")
        head, _, self._data = self._data.partition(b"\r\n\r\n")
        headers = tuple(_headers(head.decode(errors="replace").splitlines()[1:]))
        answer = Answer(method, status[1], int(status[2]), status[3], headers)
        length = answer.header("content-length") if self._is_rtsp else ""
        if not length.isdecimal():
            return answer
        size = min(int(length), _MAX_BODY)
        self._receive(size)
        body, self._data = self._data[:size], self._data[size:]
        return answer._replace(body=body.decode(errors="replace"))

    def _receive_until(self, end: bytes) -> None:
        """Receive up to a mark, or the end of the connection after some bytes."""
        while end not in self._data and len(self._data) < _MAX_HEAD and self._receive_part():
            pass
        if not self._data:
            raise ValueError("no answer")

    def _receive(self, size: int) -> None:
        while len(self._data) < size and self._receive_part():
            pass

    def _receive_part(self) -> bool:
        """Receive what comes; False at the end of the connection."""
        self._socket.settimeout(max(0.001, self._until - monotonic()))
        part = self._socket.recv(65536)
        self._data += part
        return bool(part)

    def _authorization(self, method: str, uri: str) -> Iterable[str]:
        """The header that logs in (RFC 7617, RFC 7616)."""
        if self._challenge is None:
            return
        if self._challenge.scheme == "basic":
            yield "Authorization: Basic " + base64.b64encode(f"{self._user}:{self._password}".encode()).decode()
            return
        given = self._challenge.parameters
        realm, nonce = given.get("realm", ""), given.get("nonce", "")
        rows = {"username": self._user, "realm": realm, "nonce": nonce, "uri": uri}
        secret, request = _md5(f"{self._user}:{realm}:{self._password}"), _md5(f"{method}:{uri}")
        if "auth" in given.get("qop", "").split(","):
            own = secrets.token_hex(8)
            rows |= {"qop": "auth", "nc": "00000001", "cnonce": own}
            rows["response"] = _md5(f"{secret}:{nonce}:00000001:{own}:auth:{request}")
        else:
            rows["response"] = _md5(f"{secret}:{nonce}:{request}")
        if "opaque" in given:
            rows["opaque"] = given["opaque"]
        yield "Authorization: Digest " + ", ".join(f'{key}="{value}"' for key, value in rows.items())


def _headers(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    for line in lines:
        key, _, value = line.partition(":")
        yield key.strip().lower(), value.strip()


def _challenge(text: str) -> Challenge:
    scheme, _, rest = text.partition(" ")
    return Challenge(scheme.lower(), {key.lower(): a or b for key, a, b in _PARAMETER.findall(rest)})


def _md5(text: str) -> str:
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()  # the protocol's own
