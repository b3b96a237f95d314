"""Keys of recording: stores, and what is kept of each source."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from daemon.config.http import HttpConfig, check_http
from daemon.config.models import is_name
from daemon.config.section import Section
from daemon.config.sources import Gibibytes, RecordMode, Roll, SourceRecord
from daemon.errors import ConfigError

Days = Annotated[float, msgspec.Meta(gt=0, le=36_500)]
_SCHEMES = ("rtsp", "rtsps", "http", "https", "rtmp", "srt", "udp", "rtp")


class StoreConfig(Section, frozen=True):
    path: Path
    """a folder of this store alone"""
    max_gib: Gibibytes | None = None
    """of all its recordings; the oldest go; null: the disk is the limit"""
    min_free_gib: Annotated[float, msgspec.Meta(ge=0, le=1 << 24)] = 2.0
    """of the disk; the oldest recordings go"""
    must_be_mount: bool = False
    """write only where something is mounted on the folder: a share that is away must not fill the system's disk"""
    only: Literal["events"] | None = None
    """events: this store keeps what events want, whatever the mode of a source is"""


class KeepConfig(Section, frozen=True):
    continuous_days: Days = 3.0
    """recordings that no event wants go when they are older"""
    events_days: Days = 30.0
    """recordings that an event wants"""


class RecordConfig(Section, frozen=True):
    stores: dict[str, StoreConfig] = {}
    """folders by name, such as {main: {path: /var/lib/lookout/recordings}}; none: nothing is recorded"""
    mode: RecordMode = "events"
    """of sources that do not say otherwise: off, events (what events want, with pre_s and post_s), continuous"""
    pre_s: Roll = 5.0
    """before an event, from the key picture before"""
    post_s: Roll = 5.0
    """after the last event of a clip"""
    max_clip_s: Annotated[float, msgspec.Meta(ge=1, le=86_400)] = 300.0
    """of one event's clip, at most; later events begin another one"""
    keep: KeepConfig = KeepConfig()
    """how long"""
    memory_mib: Literal["auto"] | Annotated[int, msgspec.Meta(ge=8, le=1 << 20)] = "auto"
    """of video that waits to be written, at most, of all sources together; auto: 48 for each source and store, and a
    tenth of the machine's memory at most"""
    tracks: bool = True
    """boxes and ids beside the video"""
    port: Annotated[int, msgspec.Meta(ge=0, le=65535)] | None = None
    """of the API of recordings, at http.host, for the holders of http's tokens; null: none; 0: any free one"""
    evidence_key: Path | None = None
    """a private key (Ed25519, PEM) that signs evidence which is exported over HTTP; `lookout recordings keys` makes
    one; null: it is not signed"""


def check_record(record: RecordConfig) -> None:
    """
    Raises:
        ConfigError: stores that are in each other's way.
    """
    paths: dict[Path, str] = {}
    for name, store in record.stores.items():
        if not is_name(name):
            raise ConfigError(f"record.stores: {name!r} may hold letters, digits, '_', '.' and '-' only, and up to 64")
        where = f"record.stores.{name}.path"
        for other, known in paths.items():
            if store.path == other or other in store.path.parents or store.path in other.parents:
                raise ConfigError(f"{where}: lies within the folder of {known!r}: each store needs a folder of its own")
        paths[store.path] = name


def check_playback(record: RecordConfig, http: HttpConfig) -> None:
    """
    Raises:
        ConfigError: nobody could use the API of recordings, or it has no port.
    """
    if record.port is None:
        return
    if not record.stores:
        raise ConfigError("record.port: there is nothing to serve: set record.stores")
    if http.token is None and http.token_file is None and not http.tokens:
        raise ConfigError("record.port: recordings are for holders of a token: set http.token or http.tokens")
    check_http(msgspec.structs.replace(http, enabled=True))
    if http.enabled and record.port and record.port == http.port:
        raise ConfigError(f"record.port: {record.port} is http.port: choose another one")


def check_source_record(own: SourceRecord, stores: Sequence[str] | None, where: str, *, is_camera: bool) -> None:
    """
    Args:
        stores: names of all stores; None where they are not known.
        is_camera: it is live video of FFmpeg's, which alone can be recorded.

    Raises:
        ConfigError: a setting means nothing.
    """
    for name in own.stores or ():
        if stores is not None and name not in stores:
            known = f": there are {', '.join(stores)}" if stores else ": there is none, see record.stores"
            raise ConfigError(f"{where}record.stores: no store is named {name!r}{known}")
    if own.url is not None and own.url.scheme not in _SCHEMES:
        raise ConfigError(f"{where}record.url: is no stream of a camera, such as rtsp://192.0.2.10/main")
    if own.mode in ("events", "continuous") and not is_camera:
        raise ConfigError(
            f"{where}record: only video that comes encoded from a camera can be recorded (type: av, live)"
        )
