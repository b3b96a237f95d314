"""Many cameras at once without a media server: MPEG-TS over TCP, each packet of video at its time.

    python -m tests.support.ts_cameras CLIP --seconds 60 [--breaks 2]

Prints its port, and serves until its standard input ends. Each connection gets the clip from its beginning, again and
again, with times that grow. With --breaks it is closed after so many seconds.
"""

from __future__ import annotations

import argparse
import io
import select
import socket
import sys
from collections import deque
from pathlib import Path
from time import monotonic
from typing import Any

import av
from av.packet import Packet

_PHASES = 10  # of a picture's time, in which connections send one after the other
_MAX_WAITING = 256  # packets; a connection that takes no more is closed


class _Sink(io.RawIOBase):
    """Takes what the muxer writes."""

    def __init__(self) -> None:
        super().__init__()
        self._chunks: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._chunks.append(bytes(data))
        return len(data)

    def take(self) -> bytes:
        found = b"".join(self._chunks)
        self._chunks.clear()
        return found


def packets_of(clip: Path, seconds: float) -> tuple[list[bytes], float]:
    """MPEG-TS for each picture of a clip that is repeated, and the pictures a second."""
    sink, found = _Sink(), []
    with av.open(str(clip)) as source:
        video = source.streams.video[0]
        rate, unit = video.average_rate, video.time_base
        assert rate is not None
        assert unit is not None
        packets = [packet for packet in source.demux(video) if packet.size]
        step = round(1 / (rate * unit))
        output: Any = av.open(sink, "w", format="mpegts", options={"flush_packets": "1"})
        stream = output.add_stream_from_template(video)
        data = [bytes(packet) for packet in packets]
        times: list[Any] = [(packet.pts, packet.dts, packet.is_keyframe) for packet in packets]
        for number in range(round(seconds * rate)):
            lap, place = divmod(number, len(data))
            packet: Any = Packet(data[place])
            pts, dts, is_key = times[place]
            shift = lap * len(data) * step
            packet.stream, packet.time_base = stream, unit
            packet.pts, packet.dts, packet.is_keyframe = pts + shift, dts + shift, is_key
            output.mux(packet)
            found.append(sink.take())
    return found, float(rate)


class _Client:
    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        self.end, self.next = end, 0
        self._rest: deque[memoryview] = deque()

    def send(self, packets: list[bytes]) -> bool:
        """Send the next packet; False if nobody takes it."""
        if self.next < len(packets):
            self._rest.append(memoryview(packets[self.next]))
            self.next += 1
        try:
            while self._rest:
                sent = self.end.send(self._rest[0])
                if sent == len(self._rest[0]):
                    self._rest.popleft()
                else:
                    self._rest[0] = self._rest[0][sent:]
        except BlockingIOError:
            return len(self._rest) < _MAX_WAITING
        except OSError:
            return False
        return True


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("clip", type=Path)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--breaks", type=float, help="seconds after which a connection is closed")
    args = parser.parse_args()
    packets, rate = packets_of(args.clip, args.seconds)
    last = round(args.breaks * rate) if args.breaks else len(packets)
    listener = socket.create_server(("127.0.0.1", 0), backlog=512)
    listener.setblocking(False)
    sys.stdout.write(f"{listener.getsockname()[1]}\n")
    sys.stdout.flush()
    phases: list[list[_Client]] = [[] for _ in range(_PHASES)]
    poller, turn, begun = select.poll(), 0, monotonic()
    poller.register(listener, select.POLLIN)
    poller.register(sys.stdin, select.POLLIN)
    while True:
        due = begun + turn / rate / _PHASES
        for fd, _ in poller.poll(max(0.0, due - monotonic()) * 1000):
            if fd == sys.stdin.fileno():
                return 0
            end, _ = listener.accept()
            min(phases, key=len).append(_Client(end))
        if monotonic() < due:
            continue
        clients = phases[turn % _PHASES]
        for client in [client for client in clients if client.next > last or not client.send(packets)]:
            client.end.close()
            clients.remove(client)
        turn += 1


if __name__ == "__main__":
    sys.exit(main())
