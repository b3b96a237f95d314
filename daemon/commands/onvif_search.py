"""WS-Discovery of ONVIF cameras: one multicast probe, and the addresses in the answers.

Source: ONVIF Core Specification, "Device discovery"; SOAP-over-UDP to 239.255.255.250:3702.
"""

from __future__ import annotations

import re
import select
import socket
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from time import monotonic
from urllib.parse import urlsplit

import psutil

GROUP = ("239.255.255.250", 3702)
_MAX_BYTES = 65_535  # of a datagram
_MAX_CAMERAS = 1000
_PROBE = """<?xml version="1.0" encoding="UTF-8"?>
<s:Envelope xmlns:s="http://www.w3.org/2003/05/soap-envelope" xmlns:a="http://schemas.xmlsoap.org/ws/2004/08/addressing"
 xmlns:d="http://schemas.xmlsoap.org/ws/2005/04/discovery" xmlns:dn="http://www.onvif.org/ver10/network/wsdl"><s:Header>
<a:MessageID>urn:uuid:{}</a:MessageID><a:To>urn:schemas-xmlsoap-org:ws:2005:04:discovery</a:To>
<a:Action>http://schemas.xmlsoap.org/ws/2005/04/discovery/Probe</a:Action></s:Header>
<s:Body><d:Probe><d:Types>dn:NetworkVideoTransmitter</d:Types></d:Probe></s:Body></s:Envelope>"""
_ADDRESSES = re.compile(rb"XAddrs>\s*([^<>]+)<")


def search(seconds: float) -> list[str]:
    """URLs of the device services that answer within `seconds`.

    The host is the sender's, whatever the answer contains, so that an answer cannot redirect to another machine.
    """
    found: dict[str, None] = {}
    with ExitStack() as stack:
        sockets = [stack.enter_context(made) for made in _sockets()]
        for _ in range(2):  # datagrams may get lost
            for each in sockets:
                _send(each)
            until = monotonic() + seconds / 2
            while sockets and len(found) < _MAX_CAMERAS and (left := until - monotonic()) > 0:
                for ready in select.select(sockets, [], [], left)[0]:
                    found.update(dict.fromkeys(_answer(ready)))
    return [*found]


def _sockets() -> Iterator[socket.socket]:
    """One socket per IPv4 address of this machine, because a multicast uses one interface."""
    for addresses in psutil.net_if_addrs().values():
        for row in addresses:
            if row.family is socket.AF_INET:
                made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
                try:
                    made.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(row.address))
                    made.bind((row.address, 0))
                except OSError:  # the interface is down
                    made.close()
                else:
                    made.setblocking(False)
                    yield made


def _send(made: socket.socket) -> None:
    try:
        made.sendto(_PROBE.format(uuid.uuid4()).encode(), GROUP)
    except OSError:
        return  # an interface without multicast


def _answer(made: socket.socket) -> Iterator[str]:
    try:
        content, (host, *_) = made.recvfrom(_MAX_BYTES)
    except OSError:
        return
    for addresses in _ADDRESSES.findall(content):
        for url in addresses.decode(errors="replace").split():
            try:
                parts = urlsplit(url)
                port = parts.port or 80
            except ValueError:
                continue
            if parts.scheme == "http":
                yield f"http://{host}:{port}{parts.path}"
                break  # the others belong to the same camera
