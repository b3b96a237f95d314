"""Failures of a connection and refusals of etcd as one clear line."""

from __future__ import annotations

import ssl

import msgspec

from daemon.etcd.errors import EtcdAwayError, EtcdError, LeaseNotFoundError, TokenError
from daemon.etcd.settings import EtcdSettings
from daemon.redact import printable

# Codes of gRPC.
CANCELLED, INVALID, DEADLINE, EXHAUSTED, PRECONDITION, UNAVAILABLE, UNAUTHENTICATED = 1, 3, 4, 8, 9, 14, 16
_MAX_TEXT = 300  # characters of etcd's own words
_PLAIN_TO_TLS = "HTTP request to an HTTPS server"


class Refusal(msgspec.Struct):
    """An error's answer.

    Attributes:
        code: of gRPC.
    """

    error: str = ""
    code: int = 0


def connection_fault(error: Exception, settings: EtcdSettings) -> EtcdError:
    """The error of a connection that was not made, or has ended, without the endpoint's name."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return EtcdError(f"its certificate is refused here: {error.verify_message}: {_expected_ca(settings)}")
    closed = ssl.SSLEOFError | ssl.SSLZeroReturnError | ConnectionError  # which of them is a matter of moments
    if isinstance(error, closed) and not isinstance(error, ConnectionRefusedError):
        return EtcdAwayError(f"it closes the connection: {_hint(settings)}")
    if isinstance(error, ssl.SSLError):
        return _tls_fault(error, settings)
    if isinstance(error, TimeoutError):
        return EtcdAwayError("no answer in time")
    reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return EtcdAwayError(one_line(reason))


def refusal(status: int, content: bytes, settings: EtcdSettings) -> EtcdError:
    """The error for an answer other than 200, without the endpoint's name."""
    try:
        answer = msgspec.json.decode(content.strip().partition(b"\n")[0].partition(b"Grpc-Trailer")[0], type=Refusal)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return _foreign(status, content)
    return refusal_of(answer, settings)


def refusal_of(answer: Refusal, settings: EtcdSettings) -> EtcdError:
    text = one_line(answer.error.removeprefix("etcdserver: "))
    if answer.code == UNAUTHENTICATED or "revision of auth store is old" in text:
        return TokenError(text)
    if answer.code in (CANCELLED, DEADLINE, UNAVAILABLE) or "too many requests" in text:
        return EtcdAwayError(text)
    if "lease not found" in text:
        return LeaseNotFoundError("the lease has ended")
    return EtcdError(_EXPLAINED.get(text, "{text}").format(text=text, user=_user(settings)))


_EXPLAINED = {
    "mvcc: database space exceeded": "its disk quota is used up, and it takes no writes: see `etcdctl alarm list`; "
    "compact, then `etcdctl defrag` and `etcdctl alarm disarm`",
    "authentication failed, invalid user ID or password": "wrong user or password for {user}",
    "permission denied": "permission denied: {user} has no role for these keys",
    "user name is empty": "it wants a user and a password, and none is set",
    "authentication is not enabled": "its authentication is not enabled, but a user is set ({user}): "
    "run `etcdctl auth enable`, or set no user",
    "request is too large": "a record is too large: etcd takes 1.5 MB at once",
}


def one_line(text: str) -> str:
    return printable(" ".join(text.split()))[:_MAX_TEXT]


def _foreign(status: int, content: bytes) -> EtcdError:
    """The answer of something that may not be etcd."""
    text = one_line(content.decode("utf-8", "replace"))
    if _PLAIN_TO_TLS in text:
        return EtcdError("it speaks TLS: write etcds:// for its address")
    if status >= 500:  # a proxy whose etcd is away
        return EtcdAwayError(f"HTTP status {status}")
    return EtcdError(f"HTTP status {status}: is this etcd 3.4 or later, and its client port?")


def _tls_fault(error: ssl.SSLError, settings: EtcdSettings) -> EtcdError:
    reason = error.reason or ""
    if "ALERT" in reason or "CERTIFICATE_REQUIRED" in reason:
        own = settings.tls.certificate if settings.tls else None
        if own is None:
            return EtcdError("it asks for a certificate of this client, and none is set")
        return EtcdError(f"it refuses the certificate of this client, {own} ({reason.lower().replace('_', ' ')})")
    if reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG"):
        return EtcdError("it does not speak TLS: write etcd:// for its address")
    return EtcdAwayError(one_line(reason.lower().replace("_", " ") or str(error)))


def _hint(settings: EtcdSettings) -> str:
    """A server may close a connection without a reason; these are those that a user can cause."""
    if settings.tls is None:
        return "if it speaks TLS, write etcds:// for its address"
    own = settings.tls.certificate
    trust = (
        f"does it trust the certificate of this client, {own}" if own else "does it want a certificate of this client"
    )
    return f"does it speak TLS (else write etcd://), and {trust}?"


def _expected_ca(settings: EtcdSettings) -> str:
    ca = settings.tls.ca if settings.tls else None
    return f"it must be signed by {ca}, for the name in the address" if ca else "set the CA that has signed it"


def _user(settings: EtcdSettings) -> str:
    return repr(settings.user.name) if settings.user else "no user"
