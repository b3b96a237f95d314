"""`lookout bench decode`: what the GPU's decoder does when nothing else is asked of it, by number of sessions.

Packets are in memory, converted, before the clock starts; each session has a thread and loops them into its decoder,
which is made once. Nothing else happens to the pictures. What a pipeline reaches is to be compared with this.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, process_time
from typing import TYPE_CHECKING, Any

import av
from av.packet import Packet

from daemon.errors import LookoutError
from daemon.probes import GpuProbe, open_gpu_probe
from daemon.sources.bitstream import Bitstream
from daemon.sources.decoding import UnsuitableError
from daemon.sources.nvdec.card import ask
from detectors.port import DetectorError

if TYPE_CHECKING:
    from daemon.sources.nvdec.session import Engines

_WARM = 30  # packets of each session before the clock starts
_SETTLE_S = 0.3
_SAMPLE_S = 0.25


@dataclass(frozen=True)
class DecodeOptions:
    """What to measure; see `lookout bench decode --help`."""

    clip: Path
    sessions: tuple[int, ...] = (7, 28, 56, 150)
    seconds: float = 3.0
    low_latency: bool = False
    calls: int | None = None
    device: int = 0


@dataclass(frozen=True)
class DecodeRate:
    """One number of sessions in steady state.

    Attributes:
        fps: pictures of all sessions together.
        decoder_percent: utilisation, mean of samples in the window, None where the card does not tell.
        cpu_ms_per_frame: of the process.
        session_mib: GPU memory for each session.
        calls: sessions that may be inside the driver at once.
    """

    codec: str
    sessions: int
    calls: int
    fps: float
    decoder_percent: float | None
    cpu_ms_per_frame: float
    session_mib: float | None
    start_s: float


@dataclass(frozen=True)
class DecodeRates:
    clip: str
    size: tuple[int, int]
    rates: list[DecodeRate]


@dataclass(frozen=True)
class _Clip:
    """A recording as packets that a decoder takes."""

    codec: str
    size: tuple[int, int]
    packets: list[Packet[Any]]


def decode(options: DecodeOptions) -> DecodeRates:
    """Run and measure.

    Raises:
        LookoutError: there is no decoder, or it cannot decode this.
    """
    clip = _load(options.clip)
    try:
        ask(options.device)
    except UnsuitableError as error:
        raise LookoutError(f"there is no decoder to measure: {error}") from error
    rates = [limit_of(clip, count, options) for count in options.sessions]
    return DecodeRates(options.clip.name, clip.size, rates)


def limit_of(clip: _Clip, sessions: int, options: DecodeOptions) -> DecodeRate:
    """Of one number of sessions."""
    from daemon.sources.nvdec.session import Engines

    engines = Engines(options.device, options.calls or sessions)
    probe = open_gpu_probe()
    workers = [_Worker(engines, clip, options.low_latency) for _ in range(sessions)]
    try:
        before = _memory(probe)
        began = monotonic()
        for worker in workers:
            worker.start()
        for worker in workers:
            if not worker.ready.wait(60) or worker.problem:
                problem = worker.problem or "the decoder does not start"
                ready = sum(worker.ready.is_set() and not worker.problem for worker in workers)
                raise LookoutError(f"{options.clip}: {problem}; {ready} of {sessions} sessions were ready")
        started = monotonic() - began
        after = _memory(probe)
        threading.Event().wait(_SETTLE_S)
        count, cpu, began, used = _done(workers), process_time(), monotonic(), []
        while monotonic() - began < options.seconds:
            threading.Event().wait(_SAMPLE_S)
            used += [gpu.decoder_utilisation for gpu in (probe.read() or [])[:1]]
        seconds, cpu, count = monotonic() - began, process_time() - cpu, _done(workers) - count
    finally:
        for worker in workers:
            worker.stop.set()
        for worker in workers:
            if worker.ident is not None:
                worker.join()
        probe.close()
        engines.close()
    known = [value for value in used if value is not None]
    return DecodeRate(
        codec=clip.codec,
        sessions=sessions,
        calls=options.calls or sessions,
        fps=round(count / seconds, 1),
        decoder_percent=round(sum(known) / len(known), 1) if known else None,
        cpu_ms_per_frame=round(cpu / max(1, count) * 1000, 3),
        session_mib=None if before is None or after is None else round((after - before) / sessions / (1 << 20), 1),
        start_s=round(started, 2),
    )


class _Worker(threading.Thread):
    """One session, fed as fast as it takes packets."""

    def __init__(self, engines: Engines, clip: _Clip, low_latency: bool) -> None:
        super().__init__(daemon=True)
        self.ready, self.stop = threading.Event(), threading.Event()
        self.done = 0
        self.problem: str | None = None
        self._engines, self._clip, self._low_latency = engines, clip, low_latency

    def run(self) -> None:
        try:
            session = self._engines.session(self._clip.codec, low_latency=self._low_latency, surfaces=1)
            where = [(packet.buffer_ptr, packet.buffer_size) for packet in self._clip.packets]
            number = 0
            while not self.stop.is_set():
                address, size = where[number % len(where)]
                self.done += len(session.decode(address, size))
                number += 1
                if number == _WARM:
                    self.ready.set()
            session.close()
        except (UnsuitableError, LookoutError, DetectorError) as error:
            self.problem = str(error)
            self.ready.set()


def _load(path: Path) -> _Clip:
    try:
        with av.open(str(path)) as container:
            stream = container.streams.video[0]
            context = stream.codec_context
            bitstream = Bitstream(context.name, context.extradata)
            packets = [
                Packet(bytes(bitstream.to_annex_b(bytes(packet), key=packet.is_keyframe)))
                if bitstream.has_lengths
                else packet
                for packet in container.demux(stream)
                if packet.size
            ]
            return _Clip(context.name, (context.width, context.height), packets)
    except (av.error.FFmpegError, IndexError) as error:
        raise LookoutError(f"{path} cannot be read: {error}") from error


def _done(workers: Sequence[_Worker]) -> int:
    return sum(worker.done for worker in workers)


def _memory(probe: GpuProbe) -> int | None:
    rows = probe.read()
    return rows[0].memory_used_bytes if rows else None
