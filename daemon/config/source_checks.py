"""Checks of sources, of their tracking, and of their connections, beyond the types of their keys."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Sequence

from daemon.config.recording import check_source_record
from daemon.config.sources import AvConfig, CameraConfig, ReconnectConfig, SourceConfig, TrackingConfig
from daemon.errors import ConfigError
from daemon.redact import Url
from daemon.rule_checks import problems_of_coordinates, problems_of_polygon, problems_of_rules
from daemon.rule_config import Corner
from daemon.view_config import RoiConfig, TilesConfig, tiles_of

# FFmpeg reads pictures from these; a build of it may lack some.
_SCHEMES = """
    ffrtmphttp file ftp gopher gophers hls http https mms mmsh mmst rist rtmp rtmpe rtmps rtmpt rtmpte rtmpts rtp rtsp
    rtsps sap satip sctp sftp smb srt srtp tcp tls udp udplite unix whep zmq"""
_KNOWN = frozenset(_SCHEMES.split())
_WITHOUT_HOST = frozenset(("file", "hls", "rtp", "sap", "srt", "srtp", "tcp", "tls", "udp", "udplite", "unix", "zmq"))
_PORT = re.compile(r":(\d+)\Z")


def check_groups(tracking: TrackingConfig) -> None:
    seen: set[str] = set()
    for index, group in enumerate(tracking.groups):
        for label in group:
            if label in seen:
                raise ConfigError(f"tracking.groups[{index}]: {label!r} is named twice; a label has one group")
            seen.add(label)


def check_reconnect(reconnect: ReconnectConfig) -> None:
    if reconnect.max_s < reconnect.initial_s:
        raise ConfigError("reconnect.max_s: is below reconnect.initial_s")
    if reconnect.refused_max_s < reconnect.refused_s:
        raise ConfigError("reconnect.refused_max_s: is below reconnect.refused_s")


def check_source(source: SourceConfig, where: str, stores: Sequence[str] | None = None) -> None:
    """
    Raises:
        ConfigError: the first of `problems_of_source`.
    """
    for problem in problems_of_source(source, where, stores):
        raise ConfigError(problem)


def problems_of_source(source: SourceConfig, where: str, stores: Sequence[str] | None = None) -> Iterator[str]:
    """Keys that mean nothing, or contradict each other.

    Args:
        stores: names of all stores of recordings; None where they are not known.
    """
    id = source.id
    if not re.fullmatch(r"[A-Za-z0-9_.-]+", id):
        yield f"{where}id: {id!r} may hold letters, digits, '_', '.' and '-' only"
    elif not id.strip("."):
        yield f"{where}id: {id!r} means a folder to most programs: give it a letter or a digit"
    yield from problems_of_rules(source.rules, where)
    yield from problems_of_views(source.roi, source.tiles, where)
    is_camera = isinstance(source, AvConfig) and source.is_live
    yield from faults(lambda: check_source_record(source.recording, stores, where, is_camera=is_camera))
    if isinstance(source, AvConfig):
        yield from faults(lambda: check_url(source.url, where))
        yield from _problems_of_credentials(source, where)
    elif isinstance(source, CameraConfig) and isinstance(source.device, str) and "://" in source.device:
        yield f"{where}device: is a URL, and not a camera of this machine: set type: av and url"


def faults(*checks: Callable[[], object]) -> Iterator[str]:
    """The words of each of these checks that raises a ConfigError."""
    for one in checks:
        try:
            one()
        except ConfigError as error:
            yield str(error)


def _problems_of_credentials(source: AvConfig, where: str) -> Iterator[str]:
    if source.password is not None and source.user is None:
        yield f"{where}password: wants a user, too"
    if source.user is not None and not source.url.scheme:
        yield f"{where}user: is for URLs; {source.url} is a path"
    if source.user is not None and source.url.has_credentials:
        yield f"{where}user: the URL has a user name as well: write one of them"


def check_url(url: Url, where: str) -> None:
    """Check a scheme, a host and a port.

    Raises:
        ConfigError: it can never be opened; shows nothing of it that may be secret.
    """
    if not url.scheme:
        return
    if url.scheme not in _KNOWN:
        close = difflib.get_close_matches(url.scheme, sorted(_KNOWN), n=6)
        # Letters are swapped more often than left out, and the first is seldom wrong.
        close.sort(key=lambda known: (known[0] != url.scheme[0], abs(len(known) - len(url.scheme))))
        advice = f"did you mean {close[0]}://?" if close else f"known are {', '.join(sorted(_KNOWN))}"
        raise ConfigError(f"{where}url: {url.scheme}:// is nothing that video comes from; {advice}")
    authority = url.authority
    if not authority and url.scheme not in _WITHOUT_HOST:
        raise ConfigError(f"{where}url: {url.scheme}:// names no host: write {url.scheme}://HOST/PATH")
    port = _PORT.search(authority)
    if port and not 0 < int(port[1]) < 65536:
        raise ConfigError(f"{where}url: port {port[1]} is not one from 1 to 65535")


def check_views(roi: Sequence[Corner] | RoiConfig | None, tiles: str | TilesConfig | None, where: str) -> None:
    """
    Raises:
        ConfigError: the first of `problems_of_views`.
    """
    for problem in problems_of_views(roi, tiles, where):
        raise ConfigError(problem)


def problems_of_views(
    roi: Sequence[Corner] | RoiConfig | None, tiles: str | TilesConfig | None, where: str
) -> Iterator[str]:
    """The first fault of each view of a source beyond its type, with the path of its key.

    Args:
        where: path of the source, with a dot behind it, or nothing.
    """
    if isinstance(roi, RoiConfig):
        for problem in (
            *problems_of_coordinates([("points", roi.points)], roi.frame_size),
            *problems_of_polygon("points", roi.points, roi.frame_size),
        ):
            yield f"{where}roi.{problem}"
            break
    elif roi is not None:
        remedy = "roi: {points: [...], frame_size: [width, height]}"
        for problem in (
            *problems_of_coordinates([("roi", list(roi))], None, remedy),
            *problems_of_polygon("roi", list(roi), None),
        ):
            yield f"{where}{problem}"
            break
    if tiles is None:
        return
    tiling = tiles_of(tiles)
    if tiling is None:
        yield f"{where}tiles: {tiles!r} is not columns x rows, such as 2x2, with 1 to 8 of each"
    elif tiling.columns == tiling.rows == 1:
        yield f"{where}tiles: one tile is the whole picture: leave the key out"
