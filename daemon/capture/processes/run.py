"""In the daemon's process: one capture process from its start until its memory is free."""

from __future__ import annotations

import pickle
from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from daemon.capture.processes.channel import Channel, pair
from daemon.capture.processes.main import WorkerConfig
from daemon.capture.processes.protocol import FrameFormat, FromCapture, ProcessMessage, Record, Returned
from daemon.capture.processes.remote import RemoteCapture
from daemon.capture.sinks import RecordedPackets, SharedRing
from daemon.sources.buffers import RemoteLease, SharedMemory
from daemon.system.children import Child, spawn

PROGRAM = "daemon.capture.processes.main"
_MAX_SLOTS = 1024  # in one packet


class WithRing(NamedTuple):
    """A message that brings a ring, which exists until it is sent."""

    message: Record
    ring: SharedRing


def with_rings(capture: RemoteCapture, recorder: RecordedPackets) -> list[WithRing]:
    """The messages that bring the rings of a source; none if it is not recorded, or leaves: a ring has one writer, and
    another capture may have the source next."""
    rings = () if capture.is_leaving else recorder.rings.get(capture.id, ())
    if not rings:
        return []
    message = Record(capture.number, len(rings), pickle.dumps(recorder.make_tape))
    return [WithRing(message, ring) for ring in rings]


@dataclass
class ProcessRun:
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
    unsent: deque[ProcessMessage | WithRing] = field(default_factory=deque)
    parts: dict[int, list[bytes]] = field(default_factory=dict)
    problem: str | None = None
    closed_ns: int | None = None
    killed_ns: int | None = None
    is_reported: bool = False

    @staticmethod
    def begin(config: WorkerConfig, now_ns: int) -> ProcessRun:
        """Start a process.

        Raises:
            OSError: the system has no descriptor or no process left.
        """
        mine, theirs = pair()
        try:
            process = spawn(PROGRAM, config, [theirs.fileno()])
        except BaseException:
            mine.close()
            raise
        finally:
            theirs.close()
        captures = {task.capture for task in config.tasks}
        return ProcessRun(process, Channel(mine, FromCapture), captures, now_ns, now_ns)

    @property
    def all_free(self) -> bool:
        """Whether the daemon uses none of its memory."""
        return len(self.returned) == self.outstanding

    @property
    def has_spoken(self) -> bool:
        """Whether a message has come since its start."""
        return self.heard_ns > self.started_ns

    def note_sign_of_life(self, now_ns: int) -> None:
        self.heard_ns = now_ns

    def blame(self, problem: str) -> None:
        """Say why it will end."""
        self.problem = problem

    def lend(self, memory: int, offset: int) -> RemoteLease:
        """A slot of its memory, until the daemon does not use it any more."""
        self.outstanding += 1
        return RemoteLease(self.returned, memory, offset)

    def send(self) -> None:
        """Return slots, and send what is unsent, as far as the socket takes it."""
        if self.returned:
            slots = [self.returned.popleft() for _ in range(min(len(self.returned), _MAX_SLOTS))]
            self.outstanding -= len(slots)
            self.unsent.append(Returned(slots))
        try:
            while self.unsent and self._send(self.unsent[0]):
                self.unsent.popleft()
        except OSError:  # it has ended; its last messages are still to be read
            self.unsent.clear()

    def _send(self, item: ProcessMessage | WithRing) -> bool:
        if isinstance(item, WithRing):
            return self.channel.send([item.message], item.ring.fd)
        return self.channel.send([item])

    def close(self, now_ns: int) -> None:
        """Close the socket: it has ended, or will soon."""
        self.channel.close()
        self.closed_ns = now_ns

    def kill(self, now_ns: int) -> None:
        if self.killed_ns is None:
            self.killed_ns = now_ns
            self.process.kill()

    def report_once(self) -> bool:
        """Whether its sources are not reported yet; they are from now on."""
        is_first, self.is_reported = not self.is_reported, True
        return is_first

    def release(self) -> None:
        """Unmap its memory; it must have ended, and its memory must be free."""
        for memory in self.memories.values():
            memory.close()
        self.memories.clear()
