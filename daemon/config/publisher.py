"""Keys of what leaves the daemon over ZeroMQ."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import msgspec

from daemon.config.http import is_loopback
from daemon.config.section import Count, Section
from daemon.errors import ConfigError
from daemon.redact import Secret
from lookout.messages import Encoding, is_port

MaskForm = Literal["polygon", "rle", "off"]


class CurveConfig(Section, frozen=True):
    secret_key: Secret | None = None
    """such as "${LOOKOUT_SECRET_KEY}", of 40 characters"""
    secret_key_file: Path | None = None
    """or the file that holds it; `lookout keys new` makes one"""
    clients: Path | None = None
    """only subscribers whose .key file is in that folder, which a reload reads again; null: all"""


class PublisherConfig(Section, frozen=True):
    endpoint: str = "tcp://127.0.0.1:5556"
    """* for the port takes a free one; other addresses than loopback need curve"""
    encoding: Encoding = "json"
    """or msgpack"""
    high_water_mark: Count = 1000
    """messages that wait for a slow subscriber before it loses some"""
    outbox: Count = 1024
    """messages that wait for the publisher before frames are dropped as outbox_full"""
    packets: str = "auto"
    """of sources that somebody watches live: on a port that the system chooses, beside endpoint's; or an endpoint of
    your own, such as tcp://127.0.0.1:5557; off: no live video"""
    masks: MaskForm = "polygon"
    """of models that find them: outlines; rle: bitmaps in run lengths; off: none. See docs/wire.md"""
    max_masks: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 100
    """masks in a message, the strongest; lookout_masks_left_out_total counts the others"""
    max_subscribers: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 1000
    """connections; fewer where the process may open few files. Beyond, one that has subscribed to nothing is cut off"""
    wait_for_subscriber_s: Annotated[float, msgspec.Meta(ge=0, le=86_400)] = 0.0
    """wait so long for the first subscriber before the first frame"""
    allow_plaintext: bool = False
    """true: publish to the network without encryption"""
    curve: CurveConfig | None = None
    """{secret_key_file: keys/lookout.key_secret} or {secret_key: "${LOOKOUT_SECRET_KEY}"}; with clients: FOLDER, only
    subscribers whose .key file is in that folder, which a reload reads again"""


def check_publisher(publisher: PublisherConfig) -> None:
    scheme, _, address = publisher.endpoint.partition("://")
    if scheme not in ("tcp", "ipc") or not address:
        raise ConfigError(f"publisher.endpoint: {publisher.endpoint!r} must start with tcp:// or ipc://")
    port = address.rpartition(":")[2]
    if scheme == "tcp" and port != "*" and not is_port(port):
        raise ConfigError(f"publisher.endpoint: {publisher.endpoint!r} must end with a port, 0 to 65535, or with *")
    _check_packets(publisher.packets)
    curve = publisher.curve
    if curve and (curve.secret_key is None) == (curve.secret_key_file is None):
        raise ConfigError(
            "publisher.curve: set one of secret_key and secret_key_file (`lookout keys new` makes a pair)"
        )
    if scheme == "tcp" and not curve and not publisher.allow_plaintext and not is_loopback(address.rpartition(":")[0]):
        raise ConfigError(
            f"publisher.endpoint: {publisher.endpoint} can be read by the whole network: set publisher.curve "
            "(`lookout keys new` makes keys), or allow_plaintext: true if that is meant"
        )


def _check_packets(endpoint: str) -> None:
    scheme, _, address = endpoint.partition("://")
    port = address.rpartition(":")[2]
    if endpoint in ("auto", "off") or (scheme == "ipc" and address):
        return
    if scheme != "tcp" or not (port == "*" or is_port(port)):
        raise ConfigError(
            f"publisher.packets: {endpoint!r} must be auto, off, or an endpoint such as tcp://127.0.0.1:5557"
        )
