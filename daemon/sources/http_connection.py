"""Opens sources over HTTP: HLS, pictures one after the other, and everything else that is one file."""

from __future__ import annotations

import re
from functools import cache

import av
import av.error
from av.container import InputContainer
from av.format import formats_available

from daemon.config.sources import AvConfig
from daemon.sources.hls import HlsFiles, hls_options
from daemon.sources.http_files import HttpFiles, redirects_of, without_secrets
from daemon.sources.libav import LIVE_OPTIONS
from daemon.sources.server_probe import probe_http

_JPEG_OPTIONS = LIVE_OPTIONS | {"analyzeduration": "1"}  # otherwise it reads pictures for five seconds first
_LISTING_FORMATS = {"concat", "dash", "hls", "imf", "sdp", "webm_dash_manifest"}  # name other files
_HLS_PATH = re.compile(r"\.m3u8?(?=[?#]|$)", re.IGNORECASE)
# FFmpeg 9 takes the end of an answer in chunks for a break of the connection, unless it may ask more over it.
_RECORDING_OPTIONS = {"multiple_requests": "1"}
_PROBE_S = 2.0
_Timeout = tuple[float, float | None]


def open_http(config: AvConfig, options: dict[str, str], timeout: _Timeout) -> tuple[InputContainer, HlsFiles | None]:
    """Open a URL as HLS if it is that, and otherwise as a format that names no other files.

    Args:
        options, timeout: as of `av.open`.

    Raises:
        FFmpegError: it cannot be opened.
        SourceError: the playlist cannot be read.
    """
    if not _HLS_PATH.search(config.url.reveal()):
        try:
            return _open_file(config, options, timeout), None
        except av.error.ArgumentError:  # its format is not on the list
            pass
    options = hls_options(options if config.kind == "recording" else LIVE_OPTIONS | options)
    hls = HlsFiles(config, options)
    try:
        timeout = config.open_timeout_s, None  # the files have their own
        return av.open(config.address, format="hls", options=options, timeout=timeout, io_open=hls.open), hls
    except BaseException as error:
        hls.close()
        if isinstance(error, av.error.InvalidDataError) and hls.is_nested:
            raise hls.nested() from error
        raise


def _open_file(config: AvConfig, options: dict[str, str], timeout: _Timeout) -> InputContainer:
    files, address = HttpFiles(config.address, options), config.address
    own = {"format_whitelist": _unlisted()} | (_RECORDING_OPTIONS if config.kind == "recording" else {})

    def options_for(url: str) -> dict[str, str]:
        return own | without_secrets(options) | files.options_for(url)

    try:
        return av.open(address, options=options_for(address), timeout=timeout)
    except av.error.OSError:  # as FFmpeg calls a redirect that it does not follow
        target = files.target(address, redirects_of(config))
        if target == address:
            raise
        return av.open(target, options=options_for(target), timeout=timeout)
    except av.error.InvalidDataError:
        if not _sends_parts(config, options):
            raise
        # FFmpeg wants a delimiter before the first of several pictures, and some cameras send none. So pictures are
        # found by their own beginning and end.
        return av.open(address, format="mjpeg", options=options_for(address) | _JPEG_OPTIONS, timeout=timeout)


def _sends_parts(config: AvConfig, options: dict[str, str]) -> bool:
    """Whether the server sends one part after the other, as cameras send pictures."""
    headers = options.get("headers", "")
    answer = probe_http(config.address, headers=headers, log_in=True, timeout_s=_PROBE_S)
    return answer is not None and answer.status == 200 and answer.header("content-type").startswith("multipart/")


@cache
def _unlisted() -> str:
    """The formats that name no other files."""
    return ",".join(sorted(formats_available - _LISTING_FORMATS))
