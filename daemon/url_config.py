"""Mistakes in the URL of a source that no camera and no network can mend."""

from __future__ import annotations

import difflib
import re

from daemon.errors import ConfigError
from daemon.redact import Url

# FFmpeg reads pictures from these; a build of it may lack some.
_SCHEMES = """
    ffrtmphttp file ftp gopher gophers hls http https mms mmsh mmst rist rtmp rtmpe rtmps rtmpt rtmpte rtmpts rtp rtsp
    rtsps sap satip sctp sftp smb srt srtp tcp tls udp udplite unix whep zmq"""
_KNOWN = frozenset(_SCHEMES.split())
_WITHOUT_HOST = frozenset(("file", "hls", "rtp", "sap", "srt", "srtp", "tcp", "tls", "udp", "udplite", "unix", "zmq"))
_PORT = re.compile(r":(\d+)\Z")


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
