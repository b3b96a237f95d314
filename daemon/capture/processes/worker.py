"""In the daemon's process: one capture process, its messages, and its successor when it dies.

The pool's thread alone uses it. Nothing here blocks: slow conditions are checked again at the next run.
"""

from __future__ import annotations

import pickle
import signal
from collections.abc import Collection, Sequence
from dataclasses import replace

import structlog

from daemon.capture.processes.channel import NoDescriptorError
from daemon.capture.processes.inbox import Inbox
from daemon.capture.processes.main import Task, WorkerConfig
from daemon.capture.processes.protocol import Abandon, Add, NoRecord, Remove, Retry, StopAll, Watch
from daemon.capture.processes.remote import RemoteCapture
from daemon.capture.processes.run import ProcessRun, with_rings
from daemon.capture.sinks import DaemonSinks
from daemon.sources.buffers import Mapper
from daemon.system.children import reap
from daemon.system.runtime import Runtime

log = structlog.get_logger(__name__)
_PACKETS = 16  # from one process before the others are served
_BUSY_MS = 2  # returned buffers do not wake the poll; this bounds how long a source waits to hear of one
_CLOSING_MS = 10
_DEAD_MS = 50
_DESCRIPTOR_MS = 50
_IDLE_MS = 200
_PAUSED_NS = 5_000_000_000  # a longer gap between two runs means that the whole process was stopped
_MAX_PAUSE_FACTOR = 30  # times the first pause


class CaptureProcess:
    """One capture process and, when it dies, the next one for the same sources.

    Args:
        mapper: see `Inbox`.

    Attributes:
        on_gpu: the GPU decodes its sources.
    """

    def __init__(
        self,
        number: int,
        captures: Sequence[RemoteCapture],
        config: WorkerConfig,
        sinks: DaemonSinks,
        runtime: Runtime,
        *,
        on_gpu: bool,
        mapper: Mapper | None = None,
    ) -> None:
        self.on_gpu = on_gpu
        self._number, self._captures = number, {capture.number: capture for capture in captures}
        self._config, self._sinks = config, sinks
        self._inbox = Inbox(self._captures, sinks, mapper)
        self._clock, self._limits = runtime.clock, runtime.limits
        self._current: ProcessRun | None = None
        self._closing: list[ProcessRun] = []  # socket closed, perhaps still running
        self._dead: list[ProcessRun] = []  # ended, but their pictures are still in use
        self._stopping = False
        self._has_ending = False  # some captures will end
        self._pause = runtime.limits.worker_pause
        self._due_ns: int | None = None  # monotonic time of the next start
        self._idle_ns: int | None = None  # monotonic time since when it has no source
        self._no_descriptor_ns: int | None = None  # monotonic time at which a descriptor was missing for its memory
        self._last_run_ns = runtime.clock.monotonic_ns()

    @property
    def pid(self) -> int | None:
        now = self._current
        return now.process.pid if now else None

    @property
    def memory(self) -> int:
        """See `WorkerPool`."""
        return self._inbox.memory

    @property
    def poll_ms(self) -> int:
        """Time limit of the next poll: shorter while slots are outstanding, or a process is ending."""
        if self._current is not None and self._current.outstanding > 0:
            return _BUSY_MS
        if self._closing:
            return _CLOSING_MS
        if self._no_descriptor_ns is not None:
            return _DESCRIPTOR_MS
        return _DEAD_MS if self._dead else _IDLE_MS

    @property
    def has_process(self) -> bool:
        """Whether a process runs, or may still run."""
        return bool(self._current or self._closing)

    @property
    def done(self) -> bool:
        """Whether it was stopped, its processes have ended, and their memory is free."""
        return self._stopping and not (self.has_process or self._dead)

    @property
    def accepts_sources(self) -> bool:
        """Whether sources may be added."""
        return not self._stopping

    def fileno(self) -> int | None:
        """The socket's descriptor, None if it is not to be read now."""
        if self._current is None or self._lacks_descriptor:
            return None
        return self._current.channel.socket.fileno()

    @property
    def _lacks_descriptor(self) -> bool:
        """Whether a descriptor was missing a moment ago; reading pauses."""
        return (
            self._no_descriptor_ns is not None
            and self._clock.monotonic_ns() - self._no_descriptor_ns < _DESCRIPTOR_MS * 1e6
        )

    def start(self) -> None:
        """Start a process for the sources that continue."""
        self._due_ns = None
        tasks = [Task(row.number, row.config, row.seq) for row in self._captures.values() if row.continues]
        if not tasks:
            return
        try:
            self._current = ProcessRun.begin(replace(self._config, tasks=tasks), self._clock.monotonic_ns())
        except OSError as error:  # no descriptor or no process
            self._schedule_restart([*self._captures.values()], f"no capture process can be started: {error.strerror}")
            return
        for task in tasks:
            self._current.unsent.extend(with_rings(self._captures[task.capture], self._sinks.recorder))
        if self._stopping:
            self._current.unsent.append(StopAll())

    @property
    def sources(self) -> int:
        """Number of sources that have not ended."""
        return len(self._captures)

    def has(self, capture: RemoteCapture) -> bool:
        return capture.number in self._captures

    def add(self, capture: RemoteCapture) -> None:
        """Add a source."""
        self._captures[capture.number], self._idle_ns = capture, None
        if self._current:
            task = Task(capture.number, capture.config, capture.seq)
            self._current.unsent.append(Add(pickle.dumps(task)))
            self._current.unsent.extend(with_rings(capture, self._sinks.recorder))
            self._current.captures.add(capture.number)
        elif self._due_ns is None and all(run.is_reported for run in self._closing):
            self.start()

    def remove(self, capture: RemoteCapture) -> None:
        """Ask a source to end."""
        capture.leave()
        self._has_ending = True
        if self._current and capture.number in self._current.captures:
            self._current.unsent.extend((NoRecord(capture.number), Remove(capture.number)))

    def watch(self, changed: Collection[str]) -> None:
        """Tell the process whether the packets of these sources are wanted."""
        run = self._current
        if run is None:
            return
        for number in run.captures:
            capture = self._captures.get(number)
            if capture and capture.id in changed:
                run.unsent.append(Watch(number, self._sinks.packets.is_watched(capture.id)))

    def record(self, changed: Collection[str]) -> None:
        """Tell the process where the packets of these sources are recorded."""
        run = self._current
        if run is None:
            return
        for number in run.captures:
            capture = self._captures.get(number)
            if capture and capture.id in changed:
                run.unsent.extend(with_rings(capture, self._sinks.recorder) or [NoRecord(number)])

    def retry(self, capture: RemoteCapture) -> None:
        """Have the process connect a source that is down at once."""
        if self._current and capture.number in self._current.captures:
            self._current.unsent.append(Retry(capture.number))

    def abandon_capture(self, capture: RemoteCapture) -> None:
        """Ignore a removed source that has not ended.

        A process without another source is killed, and the blocked library with it.
        """
        self._end(capture, None, "left behind: its process does not answer for it")
        run = self._current
        if run and self._captures:
            run.unsent.append(Abandon(capture.number))
        elif run:
            self._stopping = True
            run.kill(self._clock.monotonic_ns())

    def stop(self) -> None:
        """Ask the process to end with its sources; it takes no more."""
        self._stopping = True
        if self._current:
            self._current.unsent.append(StopAll())
            return
        self._due_ns = None
        for capture in [*self._captures.values()]:
            self._end(capture, capture.broken or capture.failure)

    def kill(self) -> None:
        """Kill the process; from any thread."""
        now = self._current
        for run in (*self._closing, *([now] if now else [])):
            run.kill(self._clock.monotonic_ns())

    def abandon(self) -> None:
        """Kill the process without waiting for it. The last call."""
        self.kill()
        for run in (*self._closing, *([self._current] if self._current else [])):
            reap(run.process, 0)

    def receive(self) -> bool:
        """Receive messages, up to a number of packets; returns whether any came. A process with invalid messages is
        replaced.

        Raises:
            NoDescriptorError: for its memory; later messages are not received.
        """
        packets = 0
        try:
            while packets < _PACKETS and (run := self._current) and self._receive_packet(run):
                packets += 1
        finally:
            self._inbox.put_frames()
        return packets > 0

    def _receive_packet(self, run: ProcessRun) -> bool:
        """Receive the messages of one packet; returns whether one came."""
        try:
            received = run.channel.receive()
            if received is None:
                self._on_closed(run)
                return False
            messages, fd = received
            if not messages:
                return False
            run.note_sign_of_life(self._clock.monotonic_ns())
            self._no_descriptor_ns = None
            self._inbox.take(run, messages, fd)
        except NoDescriptorError:
            raise
        except OSError as error:
            log.error("capture process is replaced", process=self._number, reason=error.strerror)
            self._replace(run, f"its memory could not be taken: {error.strerror}")
        except Exception as error:
            log.exception("capture process cannot be understood", process=self._number)
            self._replace(run, f"{type(error).__name__}: {error}")
        return True

    def wait_for_descriptor(self) -> None:
        """Pause reading until a descriptor is free, or the process is given up. Meanwhile none of its messages is read,
        not even a heartbeat."""
        if not (run := self._current):
            return
        if self._no_descriptor_ns is None:
            log.warning("frames wait for a file descriptor", process=self._number, pid=run.process.pid)
        self._no_descriptor_ns = self._clock.monotonic_ns()
        if run.killed_ns is not None or run.process.poll():
            self._on_closed(run)

    def _replace(self, run: ProcessRun, problem: str) -> None:
        run.blame(problem)
        run.kill(self._clock.monotonic_ns())
        self._on_closed(run)

    def run_once(self) -> None:
        """Do what is due: return slots, send messages, reap processes, start the next."""
        for closed in [*self._closing]:
            self._reap(closed)
        for dead in [dead for dead in self._dead if dead.all_free]:
            self._dead.remove(dead)
            dead.release()
        if self._has_ending:
            self._end_broken()
        if not (self._captures or self._stopping):
            self._stop_if_idle()
        now, before = self._clock.monotonic_ns(), self._last_run_ns
        self._last_run_ns = now
        run = self._current
        if run:
            if now - before > _PAUSED_NS:  # its messages meanwhile have not been read
                run.note_sign_of_life(now)
            run.send()
            self._check(run)
        if self._due_ns is not None and now >= self._due_ns and self._has_room():
            self.start()

    def _has_room(self) -> bool:
        """Whether a new process may send a full queue: with a lossless board the last one's frames must be done."""
        return self._config.live or all(self._sinks.board.is_settled(row.id) for row in self._captures.values())

    def _end_broken(self) -> None:
        """End broken captures once their last frame is sent."""
        reading = self._current.captures if self._current else ()
        ending = [row for row in self._captures.values() if not row.continues]
        for capture in ending:
            if capture.number not in reading and (self._stopping or self._sinks.board.is_settled(capture.id)):
                self._end(capture, capture.broken)
        self._has_ending = bool(ending)

    def _stop_if_idle(self) -> None:
        """End the process if it has had no source for a while."""
        now = self._clock.monotonic_ns()
        self._idle_ns = self._idle_ns or now
        if now - self._idle_ns >= self._limits.worker_idle * 1e9:
            self.stop()

    # --- the process -----------------------------------------------------------------------------------------------

    def _check(self, run: ProcessRun) -> None:
        """Kill a process that is stuck."""
        now = self._clock.monotonic_ns()
        limit = self._limits.worker_silence if run.has_spoken else self._limits.worker_start
        if run.killed_ns is None and now - run.heard_ns > limit * 1e9:
            lacks_descriptor = self._no_descriptor_ns is not None
            what = "no file descriptor for its memory" if lacks_descriptor else "no sign of life"
            run.blame(run.problem or f"{what} for {limit:.0f} s")
            run.kill(now)
        elif run.killed_ns is not None and now - run.killed_ns > self._limits.worker_exit * 1e9:
            self._on_closed(run)  # a thread in the kernel, or a library's child process, keeps the socket open

    def _on_closed(self, run: ProcessRun) -> None:
        """Its socket is closed: it has ended, or will soon."""
        self._inbox.put_frames()  # before its sources end
        run.close(self._clock.monotonic_ns())
        self._inbox.forget_memory()
        self._current = self._no_descriptor_ns = None
        self._closing.append(run)
        self._reap(run)

    def _reap(self, run: ProcessRun) -> None:
        """Reap the process; kill it if it takes too long, and go on without it if even that fails."""
        now, code = self._clock.monotonic_ns(), run.process.poll()
        if code is not None:
            self._closing.remove(run)
            self._dead.append(run)
            self._on_worker_lost(run, run.problem or _exit_message(code))
        elif run.killed_ns is None:
            if now - (run.closed_ns or 0) > self._limits.worker_exit * 1e9:
                run.kill(now)
        elif now - max(run.killed_ns, run.closed_ns or 0) > self._limits.worker_exit * 1e9:
            self._on_worker_lost(run, "it cannot be killed: the kernel holds it")

    def _on_worker_lost(self, run: ProcessRun, how: str) -> None:
        """Report the loss to its sources."""
        if not run.report_once():
            return
        lost = [capture for capture in self._captures.values() if capture.number in run.captures]
        if lost:
            if self._clock.monotonic_ns() - run.started_ns > self._limits.worker_lived * 1e9:
                self._pause = self._limits.worker_pause
            log.error("capture process ended", process=self._number, reason=how)
            self._schedule_restart(lost, f"the process that read it ended ({how})")
        elif self._due_ns is None and not self._current and any(row.continues for row in self._captures.values()):
            self.start()

    def _schedule_restart(self, captures: Sequence[RemoteCapture], reason: str) -> None:
        """Report sources as down, and schedule the next process."""
        for capture in captures:
            self._sinks.admission.release(capture.id)
            if self._stopping:
                self._end(capture, None)
            elif not capture.is_leaving and capture.plays_once and capture.seq > capture.first_seq:
                # Part of it was published: a restart would publish the same frames twice.
                capture.break_off(reason)
                self._has_ending = True
            elif not capture.is_leaving:
                capture.note_state("down", None)
                self._sinks.announce(capture.id, None, "down", reason, self._pause, None)
        if any(capture.continues for capture in self._captures.values()):
            self._due_ns = self._clock.monotonic_ns() + round(self._pause * 1e9)
            self._pause = min(_MAX_PAUSE_FACTOR * self._limits.worker_pause, self._pause * 2)

    def _end(self, capture: RemoteCapture, failure: str | None, reason: str = "stopped") -> None:
        """End a capture on behalf of its process."""
        del self._captures[capture.number]
        self._sinks.admission.release(capture.id)
        capture.note_state("ended", None)
        self._sinks.announce(capture.id, None, "ended", failure or reason, None, None)
        capture.finish(failure)


def _exit_message(code: int) -> str:
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
