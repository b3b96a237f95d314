"""`lookout bench part decode`: rate of the GPU's decoder alone, by number of sessions.

Packets are converted and in memory before the measurement. Each session has a thread that loops them through a decoder,
which is made once; pictures are fetched but not used. Sessions are spread over processes like the daemon's, because one
interpreter is slower than the decoder. The result is an upper bound for pipelines.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from time import monotonic, process_time
from typing import TYPE_CHECKING, Any

import av
from av.packet import Packet

from daemon.bench.harness import probing
from daemon.errors import LookoutError
from daemon.monitoring.probes import GpuProbe
from daemon.sources.bitstream import Bitstream
from daemon.sources.decode import UnsuitableError
from daemon.sources.nvdec.trial import probe as probe_nvdec
from daemon.system.mps import Mps
from daemon.system.signals import ignore_stop_signals
from detectors.port import DetectorError

if TYPE_CHECKING:
    from daemon.sources.nvdec.session import Engines

_WARM_UP_PACKETS = 30  # of each session
_START_TIMEOUT_S = 60
_SETTLE_S = 0.3
_SAMPLE_S = 0.25


@dataclass(frozen=True)
class DecodeOptions:
    """Options of the measurement; see `lookout bench part decode --help`."""

    clip: Path
    sessions: tuple[int, ...] = (7, 28, 56, 150)
    processes: int = 4
    seconds: float = 3.0
    low_latency: bool = False
    device: int = 0


@dataclass(frozen=True)
class DecodeRate:
    """Rate of one number of sessions in steady state.

    Attributes:
        fps: sum over all sessions.
        decoder_percent: mean utilisation; None if unknown.
        cpu_ms_per_frame: of all processes.
        session_mib: GPU memory per session.
    """

    codec: str
    sessions: int
    processes: int
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
    """A recording as packets for the decoder."""

    codec: str
    size: tuple[int, int]
    packets: list[Packet[Any]]


def decode(options: DecodeOptions) -> DecodeRates:
    """Run and measure.

    Raises:
        LookoutError: no decoder, or an unsupported clip.
    """
    clip = _load(options.clip)
    with probing() as probe:
        try:
            probe_nvdec(options.device)
        except UnsuitableError as error:
            raise LookoutError(f"there is no decoder to measure: {error}") from error
        rates = [limit_of(clip, count, options, probe) for count in options.sessions]
    return DecodeRates(options.clip.name, clip.size, rates)


def limit_of(clip: _Clip, sessions: int, options: DecodeOptions, probe: GpuProbe) -> DecodeRate:
    """Measure one number of sessions."""
    processes = min(options.processes, sessions)
    with ExitStack() as undo:
        if processes > 1:
            undo.callback(Mps().close)  # as in the daemon; without MPS the processes would be time-sliced
        before, began = _memory(probe, options.device), monotonic()
        shares = [sessions // processes + (number < sessions % processes) for number in range(processes)]
        children = [_DecodeProcess(share, options) for share in shares]
        for child in children:
            undo.callback(child.close)
        for child in children:
            child.begin()
        started, after = monotonic() - began, _memory(probe, options.device)
        threading.Event().wait(_SETTLE_S)
        count, cpu, began, used = *_done(children), monotonic(), []
        while monotonic() - began < options.seconds:
            threading.Event().wait(_SAMPLE_S)
            used += [gpu.decoder_utilisation for gpu in (probe.read() or [])[options.device : options.device + 1]]
        seconds = monotonic() - began
        counted, spent = _done(children)
    known = [value for value in used if value is not None]
    return DecodeRate(
        codec=clip.codec,
        sessions=sessions,
        processes=processes,
        fps=round((counted - count) / seconds, 1),
        decoder_percent=round(sum(known) / len(known), 1) if known else None,
        cpu_ms_per_frame=round((spent - cpu) / max(1, counted - count) * 1000, 3),
        session_mib=None if before is None or after is None else round((after - before) / sessions / (1 << 20), 1),
        start_s=round(started, 2),
    )


class _DecodeProcess:
    """A child process with a share of the sessions."""

    def __init__(self, sessions: int, options: DecodeOptions) -> None:
        context = get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, sessions, options), daemon=True)
        self._process.start()
        theirs.close()

    def begin(self) -> None:
        """Wait until all its sessions decode.

        Raises:
            LookoutError: one does not.
        """
        if problem := self._receive():
            raise LookoutError(problem)

    def done(self) -> tuple[int, float]:
        """Pictures so far, and CPU seconds."""
        self._pipe.send(None)
        pictures, cpu = self._receive()
        return pictures, cpu

    def close(self) -> None:
        self._pipe.close()
        self._process.join()

    def _receive(self) -> Any:
        try:
            if self._pipe.poll(2 * _START_TIMEOUT_S):
                return self._pipe.recv()
        except (EOFError, OSError):
            self._process.join(_SETTLE_S)
        raise LookoutError(f"a decoding process hangs, or ended with exit code {self._process.exitcode}")


def _serve(pipe: Connection, sessions: int, options: DecodeOptions) -> None:
    """Run the child process until the pipe closes."""
    from daemon.sources.nvdec.session import Engines

    ignore_stop_signals()
    try:
        clip, engines = _load(options.clip), Engines(options.device)
    except (LookoutError, DetectorError, OSError) as error:
        with suppress(OSError):  # the parent has given up
            pipe.send(str(error))
        return
    workers = [_Worker(engines, clip, options.low_latency) for _ in range(sessions)]
    try:
        for worker in workers:
            worker.start()
        problem = None
        for worker in workers:
            if not worker.ready.wait(_START_TIMEOUT_S) or worker.problem:
                ready = sum(worker.ready.is_set() and not worker.problem for worker in workers)
                reason = worker.problem or "the decoder does not start"
                problem = f"{options.clip}: {reason}; {ready} of {sessions} sessions of a process were ready"
                break
        pipe.send(problem)
        while True:
            pipe.recv()
            pipe.send((sum(worker.done for worker in workers), process_time()))
    except (EOFError, OSError):
        pass
    finally:
        for worker in workers:
            worker.stop.set()
        for worker in workers:
            if worker.ident is not None:
                worker.join()
        engines.close()


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
            session = self._engines.session(self._clip.codec, low_latency=self._low_latency, surfaces=2)
            where = [(packet.buffer_ptr, packet.buffer_size) for packet in self._clip.packets]
            number = 0
            while not self.stop.is_set():
                address, size = where[number % len(where)]
                for load, _ in session.decode(address, size, None):
                    load(True, False)
                    self.done += 1
                number += 1
                if number == _WARM_UP_PACKETS:
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


def _done(children: Sequence[_DecodeProcess]) -> tuple[int, float]:
    """Sums over all processes."""
    rows = [child.done() for child in children]
    return sum(pictures for pictures, _ in rows), sum(cpu for _, cpu in rows)


def _memory(probe: GpuProbe, device: int) -> int | None:
    rows = (probe.read() or [])[device : device + 1]
    return rows[0].memory_used_bytes if rows else None
