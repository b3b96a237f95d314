"""In the daemon's process: one capture process, what comes from it, and the next one when it dies."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Any

import structlog

from daemon.errors import SourceError
from daemon.frames import Frame
from daemon.signals import held_back
from daemon.workers.channel import (
    Add,
    Answer,
    BlockGone,
    Captured,
    CapturedHere,
    Channel,
    Connected,
    Disconnected,
    Ended,
    Failed,
    FromCapture,
    LeftOut,
    NewBlock,
    Remove,
    Returned,
    Said,
    Share,
    Stop,
    Told,
    Uses,
    pair,
)
from daemon.workers.memory import Block, Borrowed, HostMapper, Mapper, view
from daemon.workers.process import Begin
from daemon.workers.remote import RemoteCapture, Surroundings
from detectors.port import DeviceImage, HostImage

log = structlog.get_logger(__name__)
_MOST_PLACES = 1024  # in one packet
_LAST_WORDS_S = 2.0  # between closing its socket and its end
_PACKETS = 16  # of one process before the others have their turn
_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 30.0
_SILENCE_S = 30.0  # after which a process is taken for stuck; opening a GPU takes seconds
_LIVED_S = 60.0  # after which a process that dies is replaced as fast as the first time


@dataclass
class _Run:
    """One process.

    Attributes:
        started, heard: monotonic time of its start, and of the last that came from it, s.
        blocks: its memory, by number.
        home: places that nobody looks at any more, and that it is to be told of.
        lent: how many are looked at, or at home.
        unsent: what is to be told.
        problem: why it will end, in its own words.
    """

    process: subprocess.Popen[bytes]
    channel: Channel
    started: float
    heard: float
    blocks: dict[int, Block] = field(default_factory=dict)
    home: deque[tuple[int, int]] = field(default_factory=deque)
    lent: int = 0
    unsent: deque[Told] = field(default_factory=deque)
    problem: str | None = None

    @property
    def is_home(self) -> bool:
        return len(self.home) == self.lent

    def release(self) -> None:
        """When nobody looks."""
        for block in self.blocks.values():
            block.close()
        self.blocks.clear()


class Member:
    """One capture process and, when it has died, the next one for the same sources; used by the fleet's thread.

    Attributes:
        on_gpu: it has sources that the GPU's decoder is for.
        mapper: of what it leaves on the GPU; to be set before it is started.
        memory: see `Fleet`.
        ended: all its sources have, and the process.
    """

    def __init__(
        self,
        number: int,
        captures: Sequence[RemoteCapture],
        begin: Begin,
        surroundings: Surroundings,
        *,
        on_gpu: bool,
    ) -> None:
        self.on_gpu = on_gpu
        self.mapper: Mapper = HostMapper()
        self.memory = 0
        self.ended = False
        self._number, self._captures = number, {capture.id: capture for capture in captures}
        self._begin, self._host, self._to = begin, HostMapper(), surroundings
        self._arrived: list[Frame] = []  # for the board
        self._now: _Run | None = None
        self._dead: list[_Run] = []  # whose pictures are still looked at
        self._stopping = False
        self._pause = _FIRST_PAUSE_S
        self._due: float | None = None  # monotonic time to start again
        self._handlers: Mapping[type[Told], Callable[[_Run, Any], None]] = {
            Captured: self._on_captured,
            CapturedHere: self._on_captured_here,
            LeftOut: self._on_left_out,
            Said: self._on_said,
            Connected: self._on_connected,
            Disconnected: self._on_disconnected,
            Ended: self._on_ended,
            BlockGone: self._on_block_gone,
            Uses: self._on_uses,
            Failed: self._on_failed,
        }

    @property
    def pid(self) -> int | None:
        now = self._now
        return now.process.pid if now else None

    @property
    def lends(self) -> bool:
        """Places of it are looked at, whose return it is to be told of."""
        return self._now is not None and self._now.lent > 0

    def fileno(self) -> int | None:
        """Of the socket, None where there is no process."""
        return self._now.channel.socket.fileno() if self._now else None

    def start(self) -> None:
        """A process for the sources that have not ended."""
        self._due = None
        going = [capture for capture in self._captures.values() if not capture.ended]
        task = pickle.dumps(replace(self._begin, sources=[(capture.config, capture.seq) for capture in going]))
        mine, theirs = pair()
        with theirs, held_back():
            command = [sys.executable, "-m", "daemon.workers.process", str(theirs.fileno())]
            process = subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=[theirs.fileno()])
        self._now = _Run(process, Channel(mine, FromCapture), monotonic(), monotonic())
        with suppress(BrokenPipeError), process.stdin as pipe:  # type: ignore[union-attr]
            pipe.write(task)  # where it is dead already, the socket will say so
        if self._stopping:
            self.stop()

    @property
    def sources(self) -> int:
        """That have not ended."""
        return sum(not capture.ended for capture in self._captures.values())

    def has(self, source: str) -> bool:
        return source in self._captures

    def add(self, capture: RemoteCapture) -> None:
        """Another source; its process must have some already."""
        self._captures[capture.id] = capture
        if self._now:
            self._now.unsent.append(Add(pickle.dumps((capture.config, capture.seq))))

    def remove(self, source: str) -> None:
        """Ask one source to end."""
        capture = self._captures[source]
        capture.leaving = True
        if self._now:
            self._now.unsent.append(Remove(source))
        else:
            self._end(capture, None)

    def stop(self) -> None:
        """Ask it to end."""
        self._stopping = True
        if self._now:
            self._now.unsent.append(Stop())
            return
        self._due = None
        for capture in self._captures.values():
            self._end(capture, capture.failure)
        self.ended = True

    def kill(self) -> None:
        """From any thread: end the process, whatever it does."""
        if run := self._now:
            run.process.kill()

    def close(self) -> None:
        """At the end of all."""
        for run in (*self._dead, *([self._now] if self._now else [])):
            run.channel.close()
            run.process.kill()
            run.release()

    def receive(self) -> None:
        """What has come, up to a number of packets."""
        for _ in range(_PACKETS):
            run = self._now
            if run is None:
                return
            received = run.channel.receive()
            if received is None:
                self._bury(run)
                return
            messages, fd = received
            if not messages:
                return
            run.heard = monotonic()
            for message in messages:
                if isinstance(message, NewBlock):
                    self._on_new_block(run, message, fd)
                else:
                    self._handlers[type(message)](run, message)
            self._hand_over()

    def give_back(self) -> None:
        """Tell it of the places that nobody looks at any more, and what else there is to tell."""
        for dead in [dead for dead in self._dead if dead.is_home]:
            self._dead.remove(dead)
            dead.release()
        run = self._now
        if run is None:
            return
        if run.home:
            places = [run.home.popleft() for _ in range(min(len(run.home), _MOST_PLACES))]
            run.lent -= len(places)
            run.unsent.append(Returned(places))
        try:
            while run.unsent and run.channel.send([run.unsent[0]]):
                run.unsent.popleft()
        except OSError:
            self._bury(run)

    def revive(self) -> None:
        """When it is time, end a process that is stuck, and start a new one in place of a dead one."""
        run = self._now
        if run and run.problem is None and monotonic() - run.heard > _SILENCE_S:
            run.problem = f"no sign of life for {_SILENCE_S:.0f} s"
            run.process.kill()
        if self._due is not None and monotonic() >= self._due:
            self.start()

    # --- messages --------------------------------------------------------------------------------------------------

    def _on_captured(self, run: _Run, message: Captured) -> None:
        info, luma = message.info, run.blocks[message.block].pointer + message.offset
        run.lent += 1
        image = DeviceImage(
            luma=luma,
            chroma=luma + message.chroma,
            pitch=message.pitch,
            width=info.width,
            height=info.height,
            bt709=message.bt709,
            full_range=message.full_range,
            lease=Borrowed(run.home, message.block, message.offset),
        )
        self._take_in(Frame(info, image))

    def _on_captured_here(self, run: _Run, message: CapturedHere) -> None:
        info, address = message.info, run.blocks[message.block].pointer + message.offset
        run.lent += 1
        lease = Borrowed(run.home, message.block, message.offset)
        self._take_in(Frame(info, HostImage(view(address, (info.height, info.width, 3), lease))))

    def _take_in(self, frame: Frame) -> None:
        source = frame.info.source
        self._captures[source].seq = frame.info.seq + 1
        self._to.ledger.captured(source)
        self._arrived.append(frame)

    def _hand_over(self) -> None:
        if self._arrived:
            self._to.board.put_all(self._arrived)
            self._arrived.clear()

    def _on_left_out(self, _: _Run, message: LeftOut) -> None:
        self._captures[message.source].seq = message.seq + 1
        self._to.ledger.captured(message.source)
        self._to.ledger.dropped(message.source, message.seq, message.cause)

    def _on_said(self, _: _Run, message: Said) -> None:
        capture = self._captures[message.source]
        capture.state = message.state
        if message.state not in ("up", "stalled"):
            capture.format = None
        elif message.format:
            capture.format = message.format
        self._to.announce(
            message.source, message.session, message.state, message.reason, message.retry_in_s, message.format
        )

    def _on_connected(self, run: _Run, message: Connected) -> None:
        source, refusal = message.source, None
        try:
            self._to.admission.enter(
                source, message.fps, lambda allowance: run.unsent.append(Share(source, allowance)), message.format
            )
        except SourceError as error:
            refusal = str(error)
        run.unsent.append(Answer(source, refusal))

    def _on_disconnected(self, _: _Run, message: Disconnected) -> None:
        self._to.admission.leave(message.source)

    def _on_ended(self, _: _Run, message: Ended) -> None:
        self._hand_over()  # once the last source has ended, the board takes no more
        capture = self._captures[message.source]
        capture.failure, capture.ended = message.failure, True

    def _on_new_block(self, run: _Run, message: NewBlock, fd: int | None) -> None:
        if fd is None:
            raise ValueError(f"memory {message.number} of capture process {self._number} came without a descriptor")
        try:
            mapper = self.mapper if message.device else self._host
            run.blocks[message.number] = mapper.map(fd, message.size)
        finally:
            os.close(fd)

    def _on_block_gone(self, run: _Run, message: BlockGone) -> None:
        run.blocks.pop(message.number).close()

    def _on_uses(self, _: _Run, message: Uses) -> None:
        self.memory = message.memory

    def _on_failed(self, run: _Run, message: Failed) -> None:
        run.problem = message.reason

    # --- the end ---------------------------------------------------------------------------------------------------

    def _bury(self, run: _Run) -> None:
        """It is gone: as it should be when all its sources have ended, or it died."""
        run.channel.close()
        try:
            code = run.process.wait(_LAST_WORDS_S)
        except subprocess.TimeoutExpired:
            run.process.kill()
            code = run.process.wait()
        self._now, self.memory = None, 0
        self._dead.append(run)
        going = [capture for capture in self._captures.values() if not capture.ended]
        if going:
            how = run.problem or (f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}")
            if monotonic() - run.started > _LIVED_S:
                self._pause = _FIRST_PAUSE_S
            log.error("capture process ended", process=self._number, reason=how)
            for capture in going:
                self._to.admission.leave(capture.id)
                self._mourn(capture, f"the process that read it ended ({how})")
        if all(capture.ended for capture in self._captures.values()):
            self.ended = True
            return
        self._due = monotonic() + self._pause
        self._pause = min(_LONGEST_PAUSE_S, self._pause * 2)

    def _mourn(self, capture: RemoteCapture, reason: str) -> None:
        if self._stopping or capture.leaving or (capture.once and capture.seq > capture.first):
            # Played in part: to start again would publish the same frames twice.
            self._end(capture, None if self._stopping or capture.leaving else reason)
            return
        capture.state, capture.format = "down", None
        self._to.announce(capture.id, None, "down", reason, self._pause, None)

    def _end(self, capture: RemoteCapture, failure: str | None) -> None:
        if capture.ended:
            return
        capture.state, capture.failure, capture.ended, capture.format = "ended", failure, True, None
        self._to.announce(capture.id, None, "ended", failure or "stopped", None, None)
