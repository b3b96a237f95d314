"""The GPU's decoder against FFmpeg's: bit-identical pictures with equal times.

    python -m tests.gpu.decoder CLIP ...

Each clip is decoded with and without low latency, drained, and decoded again. Then with lost, cut or random packets:
from the next key frame on all pictures must be right. MJPEG is left out, because decoders round it differently.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import av
import numpy as np
from av.packet import Packet

from daemon.errors import DecodeError
from daemon.sources.bitstream import Bitstream
from daemon.sources.nvdec.port import LoadablePicture
from daemon.sources.nvdec.session import Engines
from detectors.cuda import DeviceBuffer, Stream
from detectors.port import DeviceImage

_MAX_PICTURES = 420  # of each clip
_LOST = (40, 41, 55, 90)
# Units without a picture: supplemental information.
_NOTHING = {"h264": b"\0\0\0\1\x06\x05\x01\0\x80", "hevc": b"\0\0\0\1\x4e\x01\x05\x01\0\x80"}
_NOISE = bytes(range(256)) * 2

Packets = list[tuple["Packet[Any]", "int | None"]]
Pictures = list[tuple["int | None", int]]
"""Time, and the sum of all luma."""


def main() -> int:
    engines = Engines(0)
    failed = 0
    for path in map(Path, sys.argv[1:]):
        codec, packets, truth, again = _load(path)
        if codec == "mjpeg":
            continue
        for low_latency in (True, False):
            wrong = {"whole": _wrong(_decoded(engines, codec, packets, low_latency=low_latency), truth)}
            for name, damage in _damages(codec).items():
                damaged = [(damage(packet) if n in _LOST else packet, pts) for n, (packet, pts) in enumerate(packets)]
                found = _decoded(engines, codec, damaged, low_latency=low_latency)
                wrong[name] = _wrong(_since(found, again), _since(truth, again))
            failed += sum(wrong.values())
            counts = ", ".join(f"{name} {count}" for name, count in wrong.items())
            waits = "at once" if low_latency else "may wait"
            sys.stdout.write(f"{path.name:22} {codec:5} {len(truth):4} pictures, {waits:8}, wrong: {counts}\n")
            sys.stdout.flush()
    engines.close()
    return int(failed > 0)


def _load(path: Path) -> tuple[str, Packets, Pictures, int | None]:
    """Codec, packets, pictures, and the time of the first key frame after the lost packets."""
    again = None
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        bitstream = Bitstream(stream.codec_context.name, stream.codec_context.extradata)
        packets: Packets = []
        for packet in container.demux(stream):
            if packet.size and len(packets) < _MAX_PICTURES:
                data = bitstream.to_annex_b(bytes(packet), key=packet.is_keyframe) if bitstream.has_lengths else packet
                packets.append((Packet(bytes(data)), packet.pts))
                if again is None and packet.is_keyframe and len(packets) > max(_LOST) + 1:
                    again = packet.pts
    with av.open(str(path)) as container:
        known = {pts for _, pts in packets}
        truth = [(frame.pts, _luma(frame)) for frame in container.decode(video=0) if frame.pts in known]
    return stream.codec_context.name, packets, truth, again


def _luma(frame: av.VideoFrame) -> int:
    plane = frame.planes[0]
    rows = np.frombuffer(plane, np.uint8).reshape(-1, plane.line_size)  # type: ignore[call-overload]
    return int(rows[: frame.height, : frame.width].sum(dtype=np.uint64))


def _damages(codec: str) -> dict[str, Callable[[Packet[Any]], Packet[Any]]]:
    if codec not in _NOTHING:
        return {}
    return {
        "lost": lambda _: Packet(_NOTHING[codec]),
        "cut": lambda packet: Packet(bytes(packet)[:12]),
        "noise": lambda packet: Packet(bytes(packet)[:8] + _NOISE),
    }


def _decoded(engines: Engines, codec: str, packets: Packets, *, low_latency: bool) -> Pictures:
    """Pictures of two passes; the decoder is drained after each."""
    session = engines.session(codec, low_latency=low_latency, surfaces=3)
    found: Pictures = []
    for _ in range(2):
        for packet, pts in packets:
            found += _brought_out(session.decode(packet.buffer_ptr, packet.buffer_size, pts))
        found += _brought_out(session.drain())
    session.close()
    return found


def _wrong(found: Pictures, truth: Pictures) -> int:
    """Number of pictures of two passes that differ from the reference."""
    return sum(a != b for a, b in zip(found, truth * 2)) + abs(len(found) - 2 * len(truth))


def _since(pictures: Pictures, first: int | None) -> Pictures:
    """Pictures from a time on; none without a time."""
    return [] if first is None else [row for row in pictures if row[0] is not None and row[0] >= first]


def _brought_out(shown: list[LoadablePicture]) -> Iterator[tuple[int | None, int]]:
    for load, time in shown:
        try:
            yield time, _downloaded(load(True, False))
        except DecodeError:
            continue


def _downloaded(image: DeviceImage) -> int:
    """The sum of a picture's luma."""
    size = image.height * image.pitch
    rows = np.empty((image.height, image.pitch), np.uint8)
    with closing(Stream()) as stream, closing(DeviceBuffer(size)) as buffer:
        stream.wait(image.ready)
        stream.copy(buffer.pointer, image.luma, size)
        buffer.download(rows, stream)
        stream.synchronize()
    return int(rows[:, : image.width].sum(dtype=np.uint64))


if __name__ == "__main__":
    sys.exit(main())
