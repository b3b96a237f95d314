"""In the daemon's process: one capture process, its messages, and its successor when it dies.

The pool's thread alone uses it. Nothing here blocks: slow conditions are checked again at the next run.
"""

from __future__ import annotations

import os
import pickle
import signal
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import structlog

from daemon.capture.processes.channel import Channel, NoDescriptorError, pair
from daemon.capture.processes.main import Task, WorkerConfig
from daemon.capture.processes.protocol import (
    Abandon,
    Add,
    AdmissionReply,
    Connected,
    DeviceFrame,
    Disconnected,
    Ended,
    Failed,
    FrameFormat,
    FromCapture,
    Heartbeat,
    HostFrame,
    MemoryClosed,
    NewMemory,
    PacketPart,
    PassedOver,
    PictureSkipped,
    ProcessMessage,
    QuotaChanged,
    Remove,
    Retry,
    Returned,
    StateChanged,
    StopAll,
    Watch,
)
from daemon.capture.processes.remote import RemoteCapture
from daemon.capture.sinks import DaemonSinks
from daemon.errors import SourceError
from daemon.pipeline.frames import Frame
from daemon.sources.buffers import HostMapper, Mapper, RemoteLease, SharedMemory, view
from daemon.system.children import Child, reap, spawn
from daemon.system.runtime import Runtime
from detectors.port import DeviceImage, HostImage

log = structlog.get_logger(__name__)
_MAX_SLOTS = 1024  # in one packet
PROGRAM = "daemon.capture.processes.main"
_PACKETS = 16  # from one process before the others are served
_BUSY_MS = 2  # returned buffers do not wake the poll; this bounds how long a source waits to hear of one
_CLOSING_MS = 10
_DEAD_MS = 50
_DESCRIPTOR_MS = 50
_IDLE_MS = 200
_PAUSED_NS = 5_000_000_000  # a longer gap between two runs means that the whole process was stopped
_MAX_PAUSE_FACTOR = 30  # times the first pause


@dataclass
class _Run:
    """One process.

    Attributes:
        captures: numbers of its captures, ended ones included.
        started_ns, heard_ns: monotonic times of its start and of its last message.
        memories: its memory, by number.
        formats: of the frames of its captures.
        returned: slots that the daemon has released and not yet returned.
        outstanding: number of slots that are not returned yet.
        unsent: messages to it.
        parts: of packets of video that are not complete, by capture.
        problem: why it will end, by its own message.
        closed_ns: monotonic time at which its socket was found closed; None while it is open.
        killed_ns: monotonic time at which it was killed.
        is_reported: its sources are reported as down.
    """

    process: Child
    channel: Channel
    captures: set[int]
    started_ns: int
    heard_ns: int
    memories: dict[int, SharedMemory] = field(default_factory=dict)
    formats: dict[int, FrameFormat] = field(default_factory=dict)
    returned: deque[tuple[int, int]] = field(default_factory=deque)
    outstanding: int = 0
    unsent: deque[ProcessMessage] = field(default_factory=deque)
    parts: dict[int, list[bytes]] = field(default_factory=dict)
    problem: str | None = None
    closed_ns: int | None = None
    killed_ns: int | None = None
    is_reported: bool = False

    @property
    def all_free(self) -> bool:
        """Whether the daemon uses none of its memory."""
        return len(self.returned) == self.outstanding

    def kill(self, now_ns: int) -> None:
        if self.killed_ns is None:
            self.killed_ns = now_ns
            self.process.kill()

    def release(self) -> None:
        """Unmap its memory; it must have ended, and its memory must be free."""
        for memory in self.memories.values():
            memory.close()
        self.memories.clear()


class CaptureProcess:
    """One capture process and, when it dies, the next one for the same sources.

    Attributes:
        on_gpu: the GPU decodes its sources.
        mapper: maps its GPU memory; set before the start.
        memory: see `WorkerPool`.
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
    ) -> None:
        self.on_gpu = on_gpu
        self.mapper: Mapper = HostMapper()
        self.memory = 0
        self._number, self._captures = number, {capture.number: capture for capture in captures}
        self._config, self._host, self._sinks = config, HostMapper(), sinks
        self._clock, self._limits = runtime.clock, runtime.limits
        self._frames: list[Frame] = []  # for the board
        self._current: _Run | None = None
        self._closing: list[_Run] = []  # socket closed, perhaps still running
        self._dead: list[_Run] = []  # ended, but their pictures are still in use
        self._stopping = False
        self._has_ending = False  # some captures will end
        self._pause = runtime.limits.worker_pause
        self._due_ns: int | None = None  # monotonic time of the next start
        self._idle_ns: int | None = None  # monotonic time since when it has no source
        self._no_descriptor_ns: int | None = None  # monotonic time at which a descriptor was missing for its memory
        self._last_run_ns = runtime.clock.monotonic_ns()
        self._handlers: Mapping[type[ProcessMessage], Callable[[_Run, Any], None]] = {
            FrameFormat: self._on_frame_format,
            DeviceFrame: self._on_device_frame,
            HostFrame: self._on_host_frame,
            PictureSkipped: self._on_picture_skipped,
            PassedOver: self._on_passed_over,
            StateChanged: self._on_state_changed,
            Connected: self._on_connected,
            Disconnected: self._on_disconnected,
            Ended: self._on_ended,
            MemoryClosed: self._on_memory_closed,
            Heartbeat: self._on_heartbeat,
            Failed: self._on_failed,
            PacketPart: self._on_packet_part,
        }

    @property
    def pid(self) -> int | None:
        now = self._current
        return now.process.pid if now else None

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
            self._current = self._spawn(replace(self._config, tasks=tasks))
        except OSError as error:  # no descriptor or no process
            self._schedule_restart([*self._captures.values()], f"no capture process can be started: {error.strerror}")
            return
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
            self._current.captures.add(capture.number)
        elif self._due_ns is None and all(run.is_reported for run in self._closing):
            self.start()

    def remove(self, capture: RemoteCapture) -> None:
        """Ask a source to end."""
        capture.is_leaving = self._has_ending = True
        if self._current and capture.number in self._current.captures:
            self._current.unsent.append(Remove(capture.number))

    def watch(self, changed: Collection[str]) -> None:
        """Tell the process whether the packets of these sources are wanted."""
        run = self._current
        if run is None:
            return
        for number in run.captures:
            capture = self._captures.get(number)
            if capture and capture.id in changed:
                run.unsent.append(Watch(number, self._sinks.packets.is_watched(capture.id)))

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
            self._put_frames()
        return packets > 0

    def _receive_packet(self, run: _Run) -> bool:
        """Receive the messages of one packet; returns whether one came."""
        try:
            received = run.channel.receive()
            if received is None:
                self._on_closed(run)
                return False
            messages, fd = received
            if not messages:
                return False
            run.heard_ns, self._no_descriptor_ns = self._clock.monotonic_ns(), None
            handlers = self._handlers
            for message in messages:
                if isinstance(message, NewMemory):
                    self._on_new_memory(run, message, fd)
                else:
                    handlers[type(message)](run, message)
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

    def _replace(self, run: _Run, problem: str) -> None:
        run.problem = problem
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
                run.heard_ns = now
            self._send(run)
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

    def _spawn(self, config: WorkerConfig) -> _Run:
        """Start a process."""
        mine, theirs = pair()
        try:
            process = spawn(PROGRAM, config, [theirs.fileno()])
        except BaseException:
            mine.close()
            raise
        finally:
            theirs.close()
        now = self._clock.monotonic_ns()
        return _Run(process, Channel(mine, FromCapture), {task.capture for task in config.tasks}, now, now)

    def _send(self, run: _Run) -> None:
        if run.returned:
            slots = [run.returned.popleft() for _ in range(min(len(run.returned), _MAX_SLOTS))]
            run.outstanding -= len(slots)
            run.unsent.append(Returned(slots))
        try:
            while run.unsent and run.channel.send([run.unsent[0]]):
                run.unsent.popleft()
        except OSError:  # it has ended; its last messages are still to be read
            run.unsent.clear()

    def _check(self, run: _Run) -> None:
        """Kill a process that is stuck."""
        now = self._clock.monotonic_ns()
        has_begun = run.heard_ns > run.started_ns
        limit = self._limits.worker_silence if has_begun else self._limits.worker_start
        if run.killed_ns is None and now - run.heard_ns > limit * 1e9:
            lacks_descriptor = self._no_descriptor_ns is not None
            what = "no file descriptor for its memory" if lacks_descriptor else "no sign of life"
            run.problem = run.problem or f"{what} for {limit:.0f} s"
            run.kill(now)
        elif run.killed_ns is not None and now - run.killed_ns > self._limits.worker_exit * 1e9:
            self._on_closed(run)  # a thread in the kernel, or a library's child process, keeps the socket open

    def _on_closed(self, run: _Run) -> None:
        """Its socket is closed: it has ended, or will soon."""
        self._put_frames()  # before its sources end
        run.channel.close()
        run.closed_ns = self._clock.monotonic_ns()
        self._current, self._no_descriptor_ns, self.memory = None, None, 0
        self._closing.append(run)
        self._reap(run)

    def _reap(self, run: _Run) -> None:
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

    def _on_worker_lost(self, run: _Run, how: str) -> None:
        """Report the loss to its sources."""
        if run.is_reported:
            return
        run.is_reported = True
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
                capture.broken, self._has_ending = reason, True
            elif not capture.is_leaving:
                capture.state, capture.format = "down", None
                self._sinks.announce(capture.id, None, "down", reason, self._pause, None)
        if any(capture.continues for capture in self._captures.values()):
            self._due_ns = self._clock.monotonic_ns() + round(self._pause * 1e9)
            self._pause = min(_MAX_PAUSE_FACTOR * self._limits.worker_pause, self._pause * 2)

    def _end(self, capture: RemoteCapture, failure: str | None, reason: str = "stopped") -> None:
        """End a capture on behalf of its process."""
        del self._captures[capture.number]
        self._sinks.admission.release(capture.id)
        capture.state, capture.failure, capture.format = "ended", failure, None
        self._sinks.announce(capture.id, None, "ended", failure or reason, None, None)
        capture.end.set()

    # --- messages --------------------------------------------------------------------------------------------------
    # For a capture that is unknown by now frames are returned at once, and other messages are ignored.

    def _on_frame_format(self, run: _Run, message: FrameFormat) -> None:
        run.formats[message.capture] = message

    def _on_device_frame(self, run: _Run, message: DeviceFrame) -> None:
        memory, offset = message.memory, message.offset
        run.outstanding += 1
        lease = RemoteLease(run.returned, memory, offset)
        if not (capture := self._captures.get(message.capture)):
            return
        form = run.formats[message.capture]
        luma = run.memories[memory].pointer + offset
        image = DeviceImage(
            luma, luma + form.chroma, form.pitch, form.width, form.height, form.bt709, form.full_range, 0, lease,
            form.turns,
        )  # fmt: skip
        self._accept(capture, Frame(message.info(capture.id, form), image))

    def _on_host_frame(self, run: _Run, message: HostFrame) -> None:
        run.outstanding += 1
        lease = RemoteLease(run.returned, message.memory, message.offset)
        if not (capture := self._captures.get(message.capture)):
            return
        form, address = run.formats[message.capture], run.memories[message.memory].pointer + message.offset
        image = HostImage(view(address, (form.height, form.width, 3), lease))
        self._accept(capture, Frame(message.info(capture.id, form), image))

    def _accept(self, capture: RemoteCapture, frame: Frame) -> None:
        capture.seq = frame.info.seq + 1
        self._sinks.ledger.captured(capture.id)
        self._frames.append(frame)

    def _put_frames(self) -> None:
        if self._frames:
            self._sinks.board.put_all(self._frames)
            self._frames.clear()

    def _on_picture_skipped(self, _: _Run, message: PictureSkipped) -> None:
        if capture := self._captures.get(message.capture):
            capture.seq = message.seq + 1
            self._sinks.ledger.captured(capture.id)
            self._sinks.ledger.dropped(capture.id, message.seq, message.cause)

    def _on_passed_over(self, _: _Run, message: PassedOver) -> None:
        if capture := self._captures.get(message.capture):
            self._sinks.ledger.passed_over(capture.id, message.counts)

    def _on_state_changed(self, _: _Run, message: StateChanged) -> None:
        if not (capture := self._captures.get(message.capture)):
            return
        capture.state = message.state
        if message.state not in ("up", "stalled"):
            capture.format = None
        elif message.format:
            capture.format = message.format
        if message.state == "ended":
            self._put_frames()
        self._sinks.announce(
            capture.id, message.session, message.state, message.reason, message.retry_in_s, message.format
        )

    def _on_connected(self, run: _Run, message: Connected) -> None:
        if not (capture := self._captures.get(message.capture)):
            return
        number, connection = message.capture, message.connection
        answer = self._sinks.admission.admit(
            capture.id,
            message.fps,
            lambda quota: run.unsent.append(QuotaChanged(number, connection, quota)),
            message.format,
        )
        refusal = answer.exception()
        if refusal is not None and not isinstance(refusal, SourceError):
            raise refusal
        if self._sinks.packets.is_watched(capture.id):  # its process may be new
            run.unsent.append(Watch(number, True))
        run.unsent.append(AdmissionReply(number, connection, None if refusal is None else str(refusal)))

    def _on_disconnected(self, _: _Run, message: Disconnected) -> None:
        if capture := self._captures.get(message.capture):
            self._sinks.admission.release(capture.id)

    def _on_ended(self, run: _Run, message: Ended) -> None:
        run.formats.pop(message.capture, None)
        if capture := self._captures.pop(message.capture, None):
            self._put_frames()  # once the last source has ended, the board takes no more
            capture.failure = message.failure
            capture.end.set()

    def _on_packet_part(self, run: _Run, message: PacketPart) -> None:
        parts = run.parts.setdefault(message.capture, [])
        parts.append(message.data)
        if message.info is None:
            return
        del run.parts[message.capture]
        if capture := self._captures.get(message.capture):
            self._sinks.packets.put_packet(capture.id, message.session, message.info, b"".join(parts))

    def _on_new_memory(self, run: _Run, message: NewMemory, fd: int | None) -> None:
        if fd is None:
            raise ValueError("memory without a descriptor")
        try:
            mapper = self.mapper if message.device else self._host
            run.memories[message.number] = mapper.map(fd, message.size)
        finally:
            os.close(fd)

    def _on_memory_closed(self, run: _Run, message: MemoryClosed) -> None:
        run.memories.pop(message.number).close()

    def _on_heartbeat(self, _: _Run, message: Heartbeat) -> None:
        self.memory = message.memory

    def _on_failed(self, run: _Run, message: Failed) -> None:
        run.problem = message.reason


def _exit_message(code: int) -> str:
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
