"""Why a source cannot be opened, and what to set: from FFmpeg's error, and from what its server answers when asked."""

from __future__ import annotations

import errno
import re

import av.error

from daemon.config.sources import AvConfig
from daemon.errors import LoginRefusedError, SourceError
from daemon.redact import printable, scrub
from daemon.sources.http_files import joined, origin_of, redirects_of
from daemon.sources.libav import CLOSED, HTTP, LOCAL, RTSP, message_of
from daemon.sources.server_probe import Answer, probe_http, probe_rtsp

_INQUIRY_S = 2.0  # for the server to answer
_LOGIN_ERRORS = (av.error.HTTPUnauthorizedError, av.error.HTTPForbiddenError)
# Errors of servers that answer; other errors say enough.
_ERRORS_OF_ANSWERS = (av.error.HTTPError, av.error.HTTPClientError, av.error.InvalidDataError, av.error.EOFError)
_ERRNO_ERRORS_OF_ANSWERS = (errno.EIO, errno.EINVAL, errno.EPERM)


def explain(config: AvConfig, error: Exception) -> SourceError:
    """The error of a source that could not be opened. This may probe its server."""
    kind = LoginRefusedError if isinstance(error, _LOGIN_ERRORS) else SourceError
    return kind(f"cannot open {config.url}: {_reason(config, error)}{_hint(config)}")


def _reason(config: AvConfig, error: Exception) -> str:
    scheme, message = config.url.scheme, message_of(error)
    if isinstance(error, av.error.ProtocolNotFoundError):
        return f"this FFmpeg does not speak {scheme}; have it sent as rtsp, rtsps, http, https, rtmp, rtmps, rtp or udp"
    if scheme in LOCAL and isinstance(error, av.error.ArgumentError):
        return f"{message}: its format is not allowed for files; options: {{format_whitelist: ...}} allows others"
    answer = _probe(config, error)
    if answer and (reason := _reason_of_rtsp(config, answer) if scheme in RTSP else _reason_of_http(config, answer)):
        return reason
    return message + _guess(scheme, error)


def _guess(scheme: str, error: Exception) -> str:
    """A likely cause where the server does not tell one."""
    if isinstance(error, _LOGIN_ERRORS):
        return ": check user name and password"
    if scheme in LOCAL:
        is_odd = isinstance(error, av.error.InvalidDataError | av.error.EOFError)
        return ": it is empty, cut short or not a video" if is_odd else ""
    if isinstance(error, av.error.InvalidDataError):
        return ": it is not a video"
    if isinstance(error, av.error.EOFError) or getattr(error, "errno", None) == errno.EIO:
        plain = f", or it speaks no TLS: try {scheme[:-1]}://" if scheme in ("rtsps", "https", "rtmps") else ""
        return f": the host name may be wrong, or {CLOSED}{plain}"
    return ""


def _probe(config: AvConfig, error: Exception) -> Answer | None:
    """The server's answer to a client that is not FFmpeg; None if the error says enough, or there is no answer."""
    if not (isinstance(error, _ERRORS_OF_ANSWERS) or getattr(error, "errno", None) in _ERRNO_ERRORS_OF_ANSWERS):
        return None
    log_in = not isinstance(error, _LOGIN_ERRORS)
    if config.url.scheme in RTSP:
        return probe_rtsp(config.address, log_in=log_in, timeout_s=_INQUIRY_S)
    if config.url.scheme in HTTP:
        headers = config.options["headers"].reveal() if "headers" in config.options else ""
        return probe_http(config.address, headers=headers, log_in=log_in, timeout_s=_INQUIRY_S)
    return None


def _reason_of_rtsp(config: AvConfig, answer: Answer) -> str | None:
    """Why FFmpeg cannot play what answers so; None if the answer does not tell."""
    if answer.protocol != "RTSP":
        return _reason_of_other(config, answer, "RTSP")
    words = {
        404: "it has no such stream: check the path of the URL",
        453: "it has no bandwidth for another viewer: close one, or take a smaller stream",
        454: "it has forgotten the session: is it about to restart?",
        461: "it offers no transport that was asked for: set transport",
        503: "it is busy, perhaps with as many viewers as it can have",
    }
    return _reason_of_status(answer, words, "")


def _reason_of_http(config: AvConfig, answer: Answer) -> str | None:
    if answer.protocol != "HTTP":
        return _reason_of_other(config, answer, "HTTP")
    words = {
        204: "it sends nothing: check the path of the URL",
        404: "there is nothing at the URL: check its path",
        429: "it is asked too often",
        503: "it is busy, perhaps with as many viewers as it can have",
    }
    kind = answer.header("content-type").partition(";")[0].strip().lower()
    if answer.status == 200 and kind == "text/html":
        return "it is not a video but a web page: ask the camera's manual for the URL of its stream"
    if answer.status == 200:
        return f"it is not a video that FFmpeg can read: the server calls it {printable(kind)[:40] or 'nothing'}"
    location = answer.header("location") if 300 <= answer.status < 400 else ""
    goes_on = location and origin_of(joined(config.address, location))
    if goes_on and (number := redirects_of(config)):
        return _reason_of_redirect(answer, f", which leads nowhere in {number} redirects")
    follow = ', or options: {max_redirects: "3"} to follow it' if goes_on else ""
    return _reason_of_status(answer, words, follow)


def _reason_of_status(answer: Answer, words: dict[int, str], follow: str) -> str | None:
    if answer.status == 200:
        return None
    status = printable(f"{answer.status} {answer.reason}".strip())[:60]
    if 300 <= answer.status < 400:
        return _reason_of_redirect(answer, ", which is not followed") + follow
    if answer.status == 401:
        return _reason_of_login(answer)
    if answer.status == 403:
        return "it does not allow this (403): check user name and password, and what that user may see"
    meaning = words.get(answer.status)
    return f"it answers {status}: {meaning}" if meaning else f"it answers {status}"


def _reason_of_redirect(answer: Answer, why: str) -> str:
    target = printable(scrub(answer.header("location")))[:300] or "an address that it does not name"
    return f"it redirects to {target}{why}: set url to the camera's own address"


def _reason_of_login(answer: Answer) -> str:
    """FFmpeg knows Basic and Digest with MD5. Of several challenges it takes Digest, and of those the last one."""
    digests = [row for row in answer.challenges if row.scheme == "digest"]
    if digests and digests[-1].algorithm not in ("MD5", "MD5-SESS"):
        algorithm = printable(digests[-1].algorithm)[:20]
        return (
            f"it asks for a login by Digest with {algorithm}, and this FFmpeg knows MD5 alone: "
            "set the camera to Digest with MD5, or to Basic"
        )
    if answer.challenges and not digests and all(row.scheme != "basic" for row in answer.challenges):
        return f"it asks for a login by {printable(answer.challenges[0].scheme)[:20]}, which this FFmpeg does not know"
    return "it refuses the login (401): check user name and password"


def _reason_of_other(config: AvConfig, answer: Answer, expected: str) -> str:
    """The server does not speak the URL's protocol."""
    port = "check the port of the URL"
    if answer.protocol == "TLS":
        return f"it speaks TLS: set url to {config.url.scheme}s://, or {port}"
    if answer.protocol:
        return f"it speaks {answer.protocol}, not {expected}: {port}"
    return f"it does not speak {expected}: {port}"


def _hint(config: AvConfig) -> str:
    """A hint where the URL has a variable without braces, which is not replaced."""
    found = re.search(r"\$([A-Z][A-Z0-9_]+)", config.url.written)
    return f"; the URL has ${found[1]}: for a variable write ${{{found[1]}}}" if found else ""
