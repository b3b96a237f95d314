"""In the daemon's process: all capture processes, and the thread that receives from them."""

from __future__ import annotations

import os
import select
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import replace

import structlog

from daemon.capture.processes.channel import NoDescriptorError
from daemon.capture.processes.main import WorkerConfig
from daemon.capture.processes.remote import RemoteCapture
from daemon.capture.processes.run import PROGRAM
from daemon.capture.processes.spare import SpareDescriptors
from daemon.capture.processes.worker import CaptureProcess
from daemon.capture.sinks import DaemonSinks
from daemon.sources.buffers import Mapper
from daemon.sources.decode import NoHardwareDecoder
from daemon.system.children import prepare
from daemon.system.runtime import Runtime
from daemon.system.stop_token import StopToken

log = structlog.get_logger(__name__)
_IDLE_MS = 200
_GATHER_S = 0.004  # live: frames are gathered this long, so that this thread and lanes wake less often
_CPU_SOURCES = 8  # sources for each process that decodes on the CPU
_NICE = 10
_NO_SESSION = "the GPU has room for {} decoder sessions, which others have"
_SPARE = 4  # descriptors: one for new memory, more because other threads may take some
_BASE_BYTES = 1 << 30  # memory limit of a process that decodes on the CPU, and what each source adds:
_SOURCE_BYTES = 512 << 20  # an 8K stream with 16 reference pictures


class WorkerPool(threading.Thread):
    """All capture processes. The thread runs until it is stopped, even without sources.

    Sources that the CPU decodes beside a GPU have processes of their own: in a shared one they would compete for the
    GIL with the many sources that the GPU decodes. These processes have a lower priority, because lanes and the GPU's
    decoder need few cores, but at once.

    Args:
        config: of every process; `tasks`, `part`, `niceness` and `memory_bytes` are set for each.
        processes: the number of processes for a number of sources, of either kind.

    Attributes:
        ended: set when the pool was stopped and all processes have ended. Their memory stays while it is in use.
    """

    def __init__(
        self, config: WorkerConfig, processes: Callable[[int], int], sinks: DaemonSinks, runtime: Runtime
    ) -> None:
        super().__init__(name="capture-workers", daemon=True)
        self._config, self._processes = config, processes
        self._sinks, self._runtime = sinks, runtime
        self._backend = config.backend
        self._workers: list[CaptureProcess] = []
        self._next_number = 0
        self._calls: deque[Callable[[], None]] = deque()  # run by this thread
        self._mapper: Mapper | None = None
        self._spares = SpareDescriptors(0)
        self._ending, self._is_killed = StopToken(), False
        self._is_busy = False  # messages came at the last turn
        self._watched: frozenset[str] = frozenset()  # sources whose packets are wanted, as processes know
        self._rings = sinks.recorder.rings  # likewise, where packets are recorded
        self.ended = StopToken()
        self._wake, self._waker = os.pipe()
        os.set_blocking(self._wake, False)
        os.set_blocking(self._waker, False)
        self._lock = threading.Lock()  # guards the pipe
        self._is_open = True

    @property
    def memory(self) -> int:
        """GPU memory reserved for their decoders, bytes."""
        return sum(worker.memory for worker in self._workers)

    @property
    def pids(self) -> list[int]:
        """Process ids of the running processes."""
        return [pid for worker in self._workers if (pid := worker.pid) is not None]

    def add(self, captures: Sequence[RemoteCapture]) -> None:
        """Add sources; from any thread. Sources that are added together are distributed evenly."""
        prepare(PROGRAM, "daemon.sources.ffmpeg")
        self._call(lambda: self._place_all(captures))

    def remove(self, capture: RemoteCapture) -> None:
        """Ask a source to end; from any thread."""
        self._call(lambda: self._call_worker(capture, CaptureProcess.remove))

    def retry(self, capture: RemoteCapture) -> None:
        """Connect a source that is down at once; from any thread."""
        self._call(lambda: self._call_worker(capture, CaptureProcess.retry))

    def abandon(self, capture: RemoteCapture) -> None:
        """Ignore a removed source that has not ended; from any thread."""
        self._call(lambda: self._call_worker(capture, CaptureProcess.abandon_capture))

    def stop(self) -> None:
        """Ask all sources to end. The caller waits for `ended` and joins the thread."""
        self._ending.set()
        self._ring()

    def kill(self) -> None:
        """Kill all processes, and leave behind those that do not end even then."""
        self._is_killed = True
        for worker in [*self._workers]:
            worker.kill()
        self._ring()

    def close(self) -> None:
        """Release a pool that was never started."""
        if self.ident is None:
            self._close_pipe()

    def run(self) -> None:
        try:
            with closing(self._backend.mapper()) as mapper:
                mapper.make_current()
                self._mapper, self._spares = mapper, SpareDescriptors(_SPARE)
                with closing(self._spares):
                    self._serve()
        except Exception as error:
            log.exception("capture processes failed")
            self._runtime.on_failure(f"capture processes failed: {error}")
        finally:
            for worker in self._workers:
                worker.abandon()
            self.ended.set()
            self._close_pipe()

    def _serve(self) -> None:
        """Until the pool is stopped and all processes have ended or are given up."""
        stopped, until_ns = False, 0
        clock = self._runtime.clock
        with self._runtime.watchdog.pulse(self.name) as pulse:
            while not (stopped and all(worker.done for worker in self._workers)):
                while self._calls:
                    self._calls.popleft()()
                if self._ending.is_set and not stopped:
                    stopped = True
                    for worker in self._workers:
                        worker.stop()
                if stopped and not any(worker.has_process for worker in self._workers):
                    self.ended.set()
                if self._is_killed:
                    until_ns = until_ns or clock.monotonic_ns() + round(self._runtime.limits.worker_exit * 1e9)
                    if clock.monotonic_ns() > until_ns:
                        return
                self._run_once()
                pulse.beat()

    def _call(self, call: Callable[[], None]) -> None:
        self._calls.append(call)
        self._ring()

    def _ring(self) -> None:
        with self._lock, suppress(BlockingIOError):  # the pipe is full: the thread will wake
            if self._is_open:
                os.write(self._waker, b".")

    def _close_pipe(self) -> None:
        with self._lock:
            if self._is_open:
                self._is_open = False
                os.close(self._wake)
                os.close(self._waker)

    # --- which process serves a source -----------------------------------------------------------------------------

    def _place_all(self, captures: Sequence[RemoteCapture]) -> None:
        if self._ending.is_set:
            self._refuse(captures)
            return
        if self._workers:
            for capture in captures:
                self._place(capture)
            return
        for on_gpu, part in self._partition(captures):
            self._start(part, len(part) / len(captures), on_gpu=on_gpu)

    def _refuse(self, captures: Sequence[RemoteCapture]) -> None:
        """Sources that were added after the stop."""
        for capture in captures:
            self._sinks.announce(capture.id, None, "ended", "stopped", None, None)
            capture.cancel()

    def _partition(self, captures: Sequence[RemoteCapture]) -> list[tuple[bool, list[RemoteCapture]]]:
        """The sources of each process, and whether the GPU decodes them."""
        on_gpu = self._fit_on_gpu(captures, 0)
        others = [capture for capture in captures if capture not in on_gpu]
        parts: list[tuple[bool, list[RemoteCapture]]] = []
        for group in (on_gpu, others):
            count = self._max_processes(len(group), len(captures), on_gpu=group is on_gpu, alone=not on_gpu)
            parts += [(group is on_gpu, group[number::count]) for number in range(count)]
        return parts

    def _fit_on_gpu(self, captures: Sequence[RemoteCapture], taken: int) -> list[RemoteCapture]:
        """The sources that fit on the GPU's decoder; sources that require it come first.

        Args:
            taken: sessions in use.
        """
        if isinstance(self._backend, NoHardwareDecoder):
            return []
        wanting = sorted((row for row in captures if row.wants_gpu), key=lambda row: not row.requires_gpu)
        sessions, required = self._backend.sessions, sum(row.requires_gpu for row in wanting)
        return wanting if sessions is None else wanting[: max(required, sessions - taken)]

    def _max_processes(self, sources: int, total: int, *, on_gpu: bool, alone: bool) -> int:
        """The number of processes for the sources of one kind.

        Args:
            total: all sources.
            alone: there are no sources of the other kind.
        """
        return min(max(1, self._processes(total)), sources if on_gpu or alone else -(-sources // _CPU_SOURCES))

    def _place(self, capture: RemoteCapture) -> None:
        going = [worker for worker in self._workers if worker.accepts_sources]
        taken = sum(worker.sources for worker in going if worker.on_gpu)
        total = sum(worker.sources for worker in going) + 1
        on_gpu = bool(self._fit_on_gpu([capture], taken))
        alike = [worker for worker in going if worker.on_gpu == on_gpu]
        sources = sum(worker.sources for worker in alike) + 1
        if len(alike) < self._max_processes(sources, total, on_gpu=on_gpu, alone=len(alike) == len(going)):
            self._start([capture], 1 / max(self._processes(total), 1), on_gpu=on_gpu)
        else:
            min(alike, key=lambda worker: worker.sources).add(capture)

    def _start(self, captures: list[RemoteCapture], part: float, *, on_gpu: bool) -> None:
        """Start another process."""
        backend = self._backend
        config = replace(self._config, part=part)
        if not on_gpu:  # without a source that wants the GPU, the process does not open it
            if not isinstance(backend, NoHardwareDecoder):
                full = _NO_SESSION.format(backend.sessions)
                asked = any(capture.wants_gpu for capture in captures)
                backend = backend.without_decoder(full) if asked else NoHardwareDecoder(full)
                config = replace(config, niceness=_NICE)
            config = replace(config, backend=backend)
        if isinstance(backend, NoHardwareDecoder):
            config = replace(config, memory_bytes=_BASE_BYTES + max(_CPU_SOURCES, len(captures)) * _SOURCE_BYTES)
        number, self._next_number = self._next_number, self._next_number + 1
        own = self._sinks, self._runtime
        worker = CaptureProcess(number, captures, config, *own, on_gpu=on_gpu, mapper=self._mapper)
        self._workers = [*self._workers, worker]
        worker.start()

    def _call_worker(self, capture: RemoteCapture, act: Callable[[CaptureProcess, RemoteCapture], None]) -> None:
        for worker in self._workers:
            if worker.has(capture):
                act(worker, capture)

    # ---------------------------------------------------------------------------------------------------------------

    def _run_once(self) -> None:
        self._pass_on_demand()
        for worker in self._workers:  # send messages before waiting
            worker.run_once()
        self._workers = [worker for worker in self._workers if not worker.done]
        self._spares.refill()
        # While frames come at each turn, there is no need to ask which processes have some.
        came = [self._receive(worker) for worker in (self._workers if self._is_busy else self._poll())]
        self._is_busy = self._config.live and any(came)
        if self._is_busy:
            self._runtime.clock.wait(self._ending, _GATHER_S)

    def _pass_on_demand(self) -> None:
        """Tell processes whose packets are wanted or recorded from now on, or no more."""
        watched, rings = self._sinks.packets.watched, self._sinks.recorder.rings
        if watched is not self._watched:
            changed, self._watched = self._watched ^ watched, watched
            for worker in self._workers:
                worker.watch(changed)
        if rings is not self._rings:
            before, self._rings = self._rings, rings
            moved = [source for source in before.keys() | rings.keys() if before.get(source) != rings.get(source)]
            for worker in self._workers:
                worker.record(moved)

    def _poll(self) -> list[CaptureProcess]:
        """Wait for messages; returns the workers that have some."""
        poller = select.poll()
        poller.register(self._wake, select.POLLIN)
        workers = {fd: worker for worker in self._workers if (fd := worker.fileno()) is not None}
        for fd in workers:
            poller.register(fd, select.POLLIN)
        came = poller.poll(min([_IDLE_MS, *(worker.poll_ms for worker in self._workers)]))
        if any(fd == self._wake for fd, _ in came):
            with suppress(BlockingIOError):
                os.read(self._wake, 4096)
        return [workers[fd] for fd, _ in came if fd != self._wake]

    def _receive(self, worker: CaptureProcess) -> bool:
        """Returns whether messages came."""
        if worker.fileno() is None:
            return False
        try:
            return worker.receive()
        except NoDescriptorError:
            with self._spares.released():
                try:
                    return worker.receive()
                except NoDescriptorError:  # other threads took them
                    worker.wait_for_descriptor()
                    return False
