"""A small ONVIF camera: answers a search in the network, and lists its streams."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import psutil

from daemon.commands.onvif_search import GROUP
from tests.support.ports import free_port

_ENVELOPE = """<?xml version="1.0" encoding="UTF-8"?>
<s:Envelope xmlns:s="http://www.w3.org/2003/05/soap-envelope" xmlns:tds="http://www.onvif.org/ver10/device/wsdl"
  xmlns:trt="http://www.onvif.org/ver10/media/wsdl" xmlns:tt="http://www.onvif.org/ver10/schema"
  xmlns:ter="http://www.onvif.org/ver10/error"><s:Body>{}</s:Body></s:Envelope>"""
_FAULT = """<s:Fault><s:Code><s:Value>s:Sender</s:Value><s:Subcode><s:Value>ter:NotAuthorized</s:Value></s:Subcode>
</s:Code><s:Reason><s:Text xml:lang="en">Sender not Authorized</s:Text></s:Reason></s:Fault>"""
_SERVICE = "<tds:Service><tds:Namespace>http://www.onvif.org/ver10/{0}/wsdl</tds:Namespace><tds:XAddr>{1}</tds:XAddr>" \
    "<tds:Version><tt:Major>2</tt:Major><tt:Minor>0</tt:Minor></tds:Version></tds:Service>"  # fmt: skip
_PROFILE = """<trt:Profiles token="{0}" fixed="true"><tt:Name>{0}</tt:Name>
<tt:VideoEncoderConfiguration token="e"><tt:Name>e</tt:Name><tt:UseCount>1</tt:UseCount><tt:Encoding>H264</tt:Encoding>
<tt:Resolution><tt:Width>{1}</tt:Width><tt:Height>{2}</tt:Height></tt:Resolution><tt:Quality>4</tt:Quality>
<tt:Multicast><tt:Address><tt:Type>IPv4</tt:Type></tt:Address><tt:Port>0</tt:Port><tt:TTL>1</tt:TTL>
<tt:AutoStart>false</tt:AutoStart></tt:Multicast><tt:SessionTimeout>PT60S</tt:SessionTimeout>
</tt:VideoEncoderConfiguration></trt:Profiles>"""
_DEVICE = """<tds:GetDeviceInformationResponse><tds:Manufacturer>Street</tds:Manufacturer><tds:Model>Lamp 3</tds:Model>
<tds:FirmwareVersion>1</tds:FirmwareVersion><tds:SerialNumber>7</tds:SerialNumber><tds:HardwareId>1</tds:HardwareId>
</tds:GetDeviceInformationResponse>"""
_TIME = """<tds:GetSystemDateAndTimeResponse><tds:SystemDateAndTime><tt:DateTimeType>Manual</tt:DateTimeType>
<tt:DaylightSavings>false</tt:DaylightSavings><tt:UTCDateTime><tt:Time><tt:Hour>1</tt:Hour><tt:Minute>2</tt:Minute>
<tt:Second>3</tt:Second></tt:Time><tt:Date><tt:Year>2026</tt:Year><tt:Month>1</tt:Month><tt:Day>2</tt:Day></tt:Date>
</tt:UTCDateTime></tds:SystemDateAndTime></tds:GetSystemDateAndTimeResponse>"""
STREAMS = {"sub": (640, 360), "main": (1920, 1080)}


@dataclass
class OnvifCamera:
    """A camera that is served.

    Attributes:
        asked: operations, in order.
        address: of all streams, None for the default.
    """

    port: int
    asked: list[str]
    address: str | None = None

    def stream(self, profile: str) -> str:
        return self.address or f"rtsp://127.0.0.1:554/{profile}"


@contextmanager
def onvif_camera(user: str | None = None, address: str | None = None) -> Iterator[OnvifCamera]:
    """Serve a camera on loopback.

    Args:
        user: required for everything but the time.
        address: of its streams; None for good addresses.
    """
    camera = OnvifCamera(free_port(), [], address)

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None: ...

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            operation = re.search(r"Body>\s*<(?:\w+:)?(\w+)", body)
            camera.asked.append(operation[1] if operation else "")
            knows = user is None or f">{user}</" in body or camera.asked[-1] == "GetSystemDateAndTime"
            answer = _answer(camera, camera.asked[-1], body) if knows else _FAULT
            content = _ENVELOPE.format(answer).encode()
            self.send_response(400 if answer == _FAULT else 200)
            self.send_header("Content-Type", "application/soap+xml; charset=utf-8")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    server = ThreadingHTTPServer(("0.0.0.0", camera.port), Handler)  # noqa: S104 - as a camera does
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield camera
    finally:
        server.shutdown()
        server.server_close()


def _answer(camera: OnvifCamera, operation: str, body: str) -> str:
    place = f"http://127.0.0.1:{camera.port}/onvif"
    if operation == "GetServices":
        rows = "".join(_SERVICE.format(name, f"{place}/{name}_service") for name in ("device", "media"))
        return f"<tds:GetServicesResponse>{rows}</tds:GetServicesResponse>"
    if operation == "GetProfiles":
        rows = "".join(_PROFILE.format(name, *size) for name, size in STREAMS.items())
        return f"<trt:GetProfilesResponse>{rows}</trt:GetProfilesResponse>"
    if operation == "GetStreamUri":
        profile = next(name for name in STREAMS if f">{name}</" in body)
        return (
            f"<trt:GetStreamUriResponse><trt:MediaUri><tt:Uri>{camera.stream(profile)}</tt:Uri>"
            "<tt:InvalidAfterConnect>false</tt:InvalidAfterConnect><tt:InvalidAfterReboot>false</tt:InvalidAfterReboot>"
            "<tt:Timeout>PT60S</tt:Timeout></trt:MediaUri></trt:GetStreamUriResponse>"
        )
    return {"GetDeviceInformation": _DEVICE, "GetSystemDateAndTime": _TIME}.get(operation, _FAULT)


@contextmanager
def answering(port: int) -> Iterator[None]:
    """Answer a search in the network with this machine's camera at a port, and first with a camera at another host,
    which must not be contacted."""
    matches = (
        '<s:Envelope xmlns:s="http://www.w3.org/2003/05/soap-envelope" '
        'xmlns:d="http://schemas.xmlsoap.org/ws/2005/04/discovery"><s:Body><d:ProbeMatches><d:ProbeMatch>'
        f"<d:XAddrs>http://192.0.2.99:{port}/onvif/device_service https://192.0.2.99/x</d:XAddrs>"
        "</d:ProbeMatch></d:ProbeMatches></s:Body></s:Envelope>"
    )
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(GROUP)
        for rows in psutil.net_if_addrs().values():
            for row in rows:
                if row.family is socket.AF_INET:
                    with suppress(OSError):
                        member = socket.inet_aton(GROUP[0]) + socket.inet_aton(row.address)
                        listening.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, member)

        def answer() -> None:
            while True:
                content, sender = listening.recvfrom(65535)
                if content == b"end":
                    return
                if b"NetworkVideoTransmitter" in content:
                    for datagram in (b"\xff nonsense", b"<XAddrs>http://[x/ file:///etc</XAddrs>", matches.encode()):
                        listening.sendto(datagram, sender)

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        yield
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as ending:
            ending.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("127.0.0.1"))
            while thread.is_alive():
                ending.sendto(b"end", GROUP)
                thread.join(0.1)
