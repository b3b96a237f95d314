"""Mistakes in a push target that are found before a request: URLs, networks and secrets."""

from __future__ import annotations

import binascii
import re
from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from ipaddress import ip_address
from urllib.parse import SplitResult, urlsplit

from daemon.config.networks import Networks, is_of_this_machine
from daemon.redact import Secret

_PREFIX = "whsec_"
_KEY_BYTES = 24, 64  # as Standard Webhooks has it
_TOKEN = re.compile(r"[!-~]+")
_TOPIC = re.compile(r"(/[^/]+)*/[-_A-Za-z0-9]{1,64}")
_BOT = re.compile(r"\d+:[A-Za-z0-9_-]{20,}")
_CHAT = re.compile(r"-?\d+|@\w+")
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_OWN_HEADERS = ("host", "connection", "content-length", "content-type", "transfer-encoding", "expect")


def url_problems(key: str, url: str, allow: Sequence[str], *, allow_plaintext: bool) -> Iterator[str]:
    """Mistakes in the URL of a server. Nothing of the URL is told: it may be a secret."""
    parts = _parts(url)
    if parts is None:
        yield f"{key}: is no URL, such as https://HOST/PATH"
        return
    if parts.username is not None or parts.password is not None:
        yield f"{key}: may hold no user name or password: they are told to whoever sees the address"
    if parts.fragment:
        yield f"{key}: may hold no #: servers never see what follows it"
    host = parts.hostname or ""
    is_here = host == "localhost" or (_is_address(host) and is_of_this_machine(host))
    if parts.scheme == "http" and not allow_plaintext and not is_here:
        yield f"{key}: http:// can be read on the way: write https://, or allow_plaintext: true if that is meant"
    yield from _host_problems(key, host, allow)


def topic_problem(url: str) -> str | None:
    """The mistake in the URL of a topic of ntfy, beside those of any URL."""
    parts = _parts(url)
    if parts is not None and (parts.query or not _TOPIC.fullmatch(parts.path)):
        return "url: needs a topic of letters, digits, '_' and '-' behind the server: https://SERVER/TOPIC"
    return None


def header_problems(headers: Mapping[str, Secret]) -> Iterator[str]:
    for name, value in headers.items():
        if not _HEADER.fullmatch(name) or name.lower() in _OWN_HEADERS or name.lower().startswith("webhook-"):
            yield f"headers: {name!r} cannot be set: it is no name of a header, or Lookout's own"
        elif not (value.reveal().isascii() and value.reveal().isprintable()):
            yield f"headers: {name}: holds signs that a header cannot have"


def token_problem(key: str, token: Secret | None) -> str | None:
    if token is not None and not _TOKEN.fullmatch(token.reveal()):
        return f"{key}: is empty, or holds signs that a token cannot have"
    return None


def bot_problems(token: Secret, chat: str) -> Iterator[str]:
    """Of Telegram."""
    if not _BOT.fullmatch(token.reveal()):
        yield "token: is no bot's: @BotFather gives one such as 123456789:AAE..."
    if not _CHAT.fullmatch(chat):
        yield f'chat: {chat!r} is no chat: write its number, such as "-1001234567890", or @NAME of a public channel'


def secret_problems(secrets: Sequence[Secret]) -> Iterator[str]:
    for index, secret in enumerate(secrets):
        try:
            key_of(secret.reveal())
        except ValueError as error:
            yield f"secrets[{index}]: {error}"


def key_of(secret: str) -> bytes:
    """The key of a secret as Standard Webhooks writes it: base64, with or without `whsec_` before it.

    Raises:
        ValueError: it is none; the text does not have it.
    """
    how = "make one with: echo whsec_$(openssl rand -base64 32)"
    text = secret.strip().removeprefix(_PREFIX).rstrip("=")
    try:
        key = b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError(f"is no base64: {how}") from None
    least, most = _KEY_BYTES
    if not least <= len(key) <= most:
        raise ValueError(f"holds {len(key)} bytes, and not {least} to {most}: {how}")
    return key


def _parts(url: str) -> SplitResult | None:
    """None of what is no URL of http or https."""
    if not (url.isascii() and url.isprintable()) or " " in url:
        return None
    try:
        parts = urlsplit(url)
        is_whole = bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        return None
    return parts if is_whole and parts.scheme in ("http", "https") else None


def _host_problems(key: str, host: str, allow: Sequence[str]) -> Iterator[str]:
    here = ("127.0.0.1", "::1")
    try:
        refusals = [Networks(allow).refusal(text) for text in (here if host == "localhost" else (host,))]
    except ValueError:
        return  # a name; or `allow` is wrong, which is told itself
    if None not in refusals:
        yield f"{key}: its address is {refusals[0]}: add its network to allow if it is meant"


def _is_address(host: str) -> bool:
    try:
        ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True
