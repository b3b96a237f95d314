"""An RTSP camera in this process, which answers and sends what a test says, over TCP. For what GStreamer's never does.

It sends its pictures as fast as they are read: their times are what it stamps on them, so no test waits for a camera.
"""

from __future__ import annotations

import base64
import hashlib
import re
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

import av

from daemon.sources.bitstream import Bitstream

_NTP_EPOCH = 2_208_988_800  # seconds from 1900 to 1970
_NONCE = "5ca1ab1e"
_PAYLOAD = 1400  # bytes in a packet


@dataclass(frozen=True)
class Picture:
    """One picture.

    Attributes:
        units: NAL units without start codes.
        at: seconds, its RTP time.
        wait: seconds before it is sent.
    """

    units: Sequence[bytes]
    at: float
    wait: float = 0.0


@dataclass(frozen=True)
class Report:
    """A sender report: at RTP time `at` it was `utc` by the camera's clock, seconds."""

    at: float
    utc: float
    track: str = "video"


@dataclass(frozen=True)
class Sent:
    """Bytes on the RTSP connection, such as a request of the camera's own."""

    data: bytes


Item = Picture | Report | Sent


@dataclass(frozen=True)
class Request:
    method: str
    uri: str
    headers: Mapping[str, str]

    @property
    def authorization(self) -> str:
        return self.headers.get("authorization", "")


@dataclass(frozen=True)
class Camera:
    """How a camera behaves.

    Attributes:
        items: what it sends, in order; each connection begins anew.
        codec: `h264` or `h265`.
        answers: by method, the status line and headers in place of its own answer; `authenticated` after a login alone.
        login: user name and password.
        schemes: the ways to log in that it offers, in order: `Basic`, `MD5`, `SHA-256`.
        audio: it has sound, too.
        ends: it closes the connection after its last picture; otherwise it stays, and is silent.
        certificate: PEM files of certificate and key, to be reached by `rtsps` alone.
    """

    items: Sequence[Item] = ()
    codec: str = "h264"
    sdp: str = ""
    answers: Mapping[str, str] = field(default_factory=dict)
    authenticated: Mapping[str, str] = field(default_factory=dict)
    login: tuple[str, str] | None = None
    schemes: Sequence[str] = ("MD5",)
    audio: bool = False
    ends: bool = False
    certificate: tuple[Path, Path] | None = None


class RtspCamera:
    """Serves a camera until it is closed.

    Attributes:
        requests: all that it was asked, in order.
        connections: number of connections, also of those that asked nothing.
    """

    def __init__(self, camera: Camera) -> None:
        self._camera = camera
        self.requests: list[Request] = []
        self.connections = 0
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self._sessions: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> RtspCamera:
        return self

    def __exit__(self, *_: object) -> None:
        for one in (self._socket, *self._sessions):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def answer_with(self, answers: Mapping[str, str]) -> None:
        """Change its answers for connections to come."""
        self._camera = replace(self._camera, answers=answers)

    def url(self, path: str = "cam", credentials: str = "", scheme: str = "rtsp") -> str:
        return f"{scheme}://{credentials}{'@' if credentials else ''}127.0.0.1:{self.port}/{path}"

    def methods(self) -> list[str]:
        return [request.method for request in self.requests]

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._socket.accept()
                self.connections += 1
                self._sessions.append(connection)
                threading.Thread(target=self._serve, args=[connection], daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        if self._camera.certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*self._camera.certificate)
            connection = context.wrap_socket(connection, server_side=True)
        with suppress(OSError), connection:
            _Session(self._camera, connection).serve(self.requests.append)


class _Session:
    """One connection."""

    def __init__(self, camera: Camera, connection: socket.socket) -> None:
        self._camera, self._connection = camera, connection
        self._channels: dict[str, int] = {}
        self._sequence = 0

    def serve(self, note: Callable[[Request], None]) -> None:
        for request in self._requests():
            note(request)
            self._connection.sendall(self._answer(request).encode())
            if request.method == "PLAY" and "PLAY" not in self._camera.answers:
                threading.Thread(target=self._play, daemon=True).start()

    def _requests(self) -> Iterator[Request]:
        data = b""
        while part := self._connection.recv(65536):
            data += part
            while data:
                if data[:1] == b"$":  # a receiver report
                    size = 4 + int.from_bytes(data[2:4], "big")
                    if len(data) < size:
                        break
                    data = data[size:]
                    continue
                head, end, rest = data.partition(b"\r\n\r\n")
                if not end:
                    break
                data = rest
                first, *lines = head.decode().split("\r\n")
                method, uri, _ = first.split(" ", 2)
                if method.startswith("RTSP/"):  # an answer to a request of the camera
                    continue
                rows = (line.partition(":") for line in lines)
                yield Request(method, uri, {key.strip().lower(): value.strip() for key, _, value in rows})

    def _answer(self, request: Request) -> str:
        camera, cseq = self._camera, f"CSeq: {request.headers.get('cseq', '0')}\r\n"
        given = camera.answers.get(request.method)
        if given is None and camera.login and request.method != "OPTIONS":
            if not _is_allowed(camera, request):
                challenges = "".join(map(_challenge, camera.schemes))
                return f"RTSP/1.0 401 Unauthorized\r\n{cseq}{challenges}\r\n"
            given = camera.authenticated.get(request.method)
        if given is not None:
            status, *headers = given.split("\n")
            return "\r\n".join([f"RTSP/1.0 {status}", cseq.strip(), *headers, "", ""])
        if request.method == "DESCRIBE":
            sdp = camera.sdp or _sdp(camera)
            kind = f"Content-Type: application/sdp\r\nContent-Base: {request.uri}/\r\nContent-Length: {len(sdp)}\r\n"
            return f"RTSP/1.0 200 OK\r\n{cseq}{kind}\r\n{sdp}"
        session = "Session: 12345678\r\n"
        if request.method == "SETUP":
            channels = re.search(r"interleaved=(\d+)-(\d+)", request.headers["transport"])
            if channels is None:
                return f"RTSP/1.0 461 Unsupported Transport\r\n{cseq}\r\n"
            self._channels[request.uri.rpartition("/")[2]] = int(channels[1])
            session += f"Transport: RTP/AVP/TCP;unicast;{channels[0]}\r\n"
        if request.method == "PLAY":
            session += "Range: npt=now-\r\n"
        return f"RTSP/1.0 200 OK\r\n{cseq}{session}\r\n"

    def _play(self) -> None:
        pause = threading.Event()
        with suppress(OSError):
            for item in self._camera.items:
                if isinstance(item, Sent):
                    self._connection.sendall(item.data)
                elif isinstance(item, Report):
                    self._report(item)
                else:
                    pause.wait(item.wait)
                    self._picture(item)
            if self._camera.ends:
                self._connection.shutdown(socket.SHUT_RDWR)

    def _report(self, report: Report) -> None:
        if report.track not in self._channels:
            return
        stamp = round(report.at * (90_000 if report.track == "video" else 8_000))
        utc, fraction = int(report.utc), int(report.utc % 1 * 2**32)
        body = struct.pack(">BBHIIIIII", 0x80, 200, 6, 7, utc + _NTP_EPOCH, fraction, stamp & 0xFFFFFFFF, 1, 1)
        self._send(self._channels[report.track] + 1, body)

    def _picture(self, picture: Picture) -> None:
        stamp = round(picture.at * 90_000)
        packets = [packet for unit in picture.units for packet in _packets(unit, self._camera.codec)]
        for number, packet in enumerate(packets):
            marker = (number == len(packets) - 1) << 7
            header = struct.pack(">BBHII", 0x80, 96 | marker, self._sequence, stamp & 0xFFFFFFFF, 7)
            self._sequence = (self._sequence + 1) & 0xFFFF
            self._send(self._channels["video"], header + packet)

    def _send(self, channel: int, body: bytes) -> None:
        self._connection.sendall(struct.pack(">cBH", b"$", channel, len(body)) + body)


def pictures_of(clip: Path) -> list[list[bytes]]:
    """The NAL units of each picture of a clip without B-frames, parameter sets before key pictures."""
    with av.open(str(clip)) as container:
        stream = container.streams.video[0]
        bits = Bitstream(stream.codec_context.name, stream.codec_context.extradata)
        packets = [packet for packet in container.demux(stream) if packet.size]
        return [units_of(bytes(bits.to_annex_b(bytes(packet), key=packet.is_keyframe))) for packet in packets]


def units_of(data: bytes) -> list[bytes]:
    """NAL units of Annex B."""
    return [unit.rstrip(b"\0") for unit in data.split(b"\0\0\1")[1:]]


def at_rate(pictures: Iterable[Sequence[bytes]], fps: float, begin: float = 1000.0, wait: float = 0.0) -> list[Picture]:
    """Pictures with times."""
    return [Picture(units, begin + number / fps, wait) for number, units in enumerate(pictures)]


def _packets(unit: bytes, codec: str) -> list[bytes]:
    """RTP payloads of a NAL unit (RFC 6184, RFC 7798)."""
    if len(unit) <= _PAYLOAD:
        return [unit]
    head = 2 if codec == "h265" else 1
    kind = unit[0] >> 1 & 0x3F if codec == "h265" else unit[0] & 0x1F
    indicator = bytes([unit[0] & 0x81 | 49 << 1, unit[1]]) if codec == "h265" else bytes([unit[0] & 0xE0 | 28])
    parts = [unit[at : at + _PAYLOAD] for at in range(head, len(unit), _PAYLOAD)]
    flags = [kind] * len(parts)
    flags[0] |= 0x80
    flags[-1] |= 0x40
    return [indicator + bytes([flag]) + part for flag, part in zip(flags, parts)]


def _sdp(camera: Camera) -> str:
    lines = ["v=0", "o=- 1 1 IN IP4 127.0.0.1", "s=cam", "t=0 0", "m=video 0 RTP/AVP 96"]
    lines += [f"a=rtpmap:96 {camera.codec.upper()}/90000", "a=control:video"]
    sets = next((item.units[:-1] for item in camera.items if isinstance(item, Picture) and len(item.units) > 2), ())
    if camera.codec == "h264" and sets:
        coded = ",".join(base64.b64encode(unit).decode() for unit in sets)
        lines.insert(-1, f"a=fmtp:96 packetization-mode=1;sprop-parameter-sets={coded}")
    if camera.audio:
        lines += ["m=audio 0 RTP/AVP 8", "a=rtpmap:8 PCMA/8000", "a=control:audio"]
    return "\r\n".join(lines) + "\r\n"


def _challenge(scheme: str) -> str:
    if scheme == "Basic":
        return 'WWW-Authenticate: Basic realm="cam"\r\n'
    algorithm = "" if scheme == "MD5" else f', algorithm="{scheme}"'
    return f'WWW-Authenticate: Digest realm="cam", nonce="{_NONCE}"{algorithm}\r\n'


def _is_allowed(camera: Camera, request: Request) -> bool:
    user, password = cast("tuple[str, str]", camera.login)
    scheme, _, rest = request.authorization.partition(" ")
    if scheme == "Basic":
        return "Basic" in camera.schemes and base64.b64decode(rest).decode() == f"{user}:{password}"
    fields = dict(re.findall(r'(\w+)="?([^",]*)', rest))
    algorithm = fields.get("algorithm", "MD5")
    if algorithm not in camera.schemes:
        return False

    def digest(text: str) -> str:
        return hashlib.new(algorithm.replace("-", "").lower(), text.encode()).hexdigest()

    first, second = digest(f"{user}:cam:{password}"), digest(f"{request.method}:{fields.get('uri')}")
    return fields.get("response") == digest(f"{first}:{_NONCE}:{second}")
