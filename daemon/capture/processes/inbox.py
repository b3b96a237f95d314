"""In the daemon's process: what the messages of a capture process do.

For a capture that is unknown by now frames are returned at once, and other messages are ignored.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from daemon.capture.processes.protocol import (
    AdmissionReply,
    Connected,
    DeviceFrame,
    Disconnected,
    Ended,
    Failed,
    FrameFormat,
    Heartbeat,
    HostFrame,
    MemoryClosed,
    NewMemory,
    PacketPart,
    PassedOver,
    PictureSkipped,
    ProcessMessage,
    QuotaChanged,
    StateChanged,
    Watch,
)
from daemon.capture.processes.remote import RemoteCapture
from daemon.capture.processes.run import ProcessRun
from daemon.capture.sinks import DaemonSinks
from daemon.errors import SourceError
from daemon.pipeline.frames import Frame
from daemon.sources.buffers import HostMapper, Mapper, view
from detectors.port import DeviceImage, HostImage


class Inbox:
    """
    Args:
        captures: that have not ended, by number; `Ended` removes one.
        mapper: maps the GPU's memory; None where no source is decoded there.

    Attributes:
        memory: bytes of the GPU that the process has reserved, by its last heartbeat.
    """

    def __init__(self, captures: dict[int, RemoteCapture], sinks: DaemonSinks, mapper: Mapper | None) -> None:
        self.memory = 0
        self._captures, self._sinks = captures, sinks
        self._host = HostMapper()
        self._mapper: Mapper = mapper or self._host
        self._frames: list[Frame] = []  # for the board
        self._handlers: Mapping[type[ProcessMessage], Callable[[ProcessRun, Any], None]] = {
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

    def take(self, run: ProcessRun, messages: list[ProcessMessage], fd: int | None) -> None:
        """Handle the messages of one packet.

        Args:
            fd: descriptor of new memory, which is closed here.
        """
        handlers = self._handlers
        for message in messages:
            if isinstance(message, NewMemory):
                self._on_new_memory(run, message, fd)
            else:
                handlers[type(message)](run, message)

    def put_frames(self) -> None:
        """Put the frames that have come on the board."""
        if self._frames:
            self._sinks.board.put_all(self._frames)
            self._frames.clear()

    def forget_memory(self) -> None:
        """The process has ended."""
        self.memory = 0

    def _on_frame_format(self, run: ProcessRun, message: FrameFormat) -> None:
        run.formats[message.capture] = message

    def _on_device_frame(self, run: ProcessRun, message: DeviceFrame) -> None:
        memory, offset = message.memory, message.offset
        lease = run.lend(memory, offset)
        if not (capture := self._captures.get(message.capture)):
            return
        form = run.formats[message.capture]
        luma = run.memories[memory].pointer + offset
        image = DeviceImage(
            luma, luma + form.chroma, form.pitch, form.width, form.height, form.bt709, form.full_range, 0, lease,
            form.turns,
        )  # fmt: skip
        self._accept(capture, Frame(message.info(capture.id, form), image))

    def _on_host_frame(self, run: ProcessRun, message: HostFrame) -> None:
        lease = run.lend(message.memory, message.offset)
        if not (capture := self._captures.get(message.capture)):
            return
        form, address = run.formats[message.capture], run.memories[message.memory].pointer + message.offset
        image = HostImage(view(address, (form.height, form.width, 3), lease))
        self._accept(capture, Frame(message.info(capture.id, form), image))

    def _accept(self, capture: RemoteCapture, frame: Frame) -> None:
        capture.note_captured(frame.info.seq)
        self._sinks.ledger.captured(capture.id)
        self._frames.append(frame)

    def _on_picture_skipped(self, _: ProcessRun, message: PictureSkipped) -> None:
        if capture := self._captures.get(message.capture):
            capture.note_captured(message.seq)
            self._sinks.ledger.captured(capture.id)
            self._sinks.ledger.dropped(capture.id, message.seq, message.cause)

    def _on_passed_over(self, _: ProcessRun, message: PassedOver) -> None:
        if capture := self._captures.get(message.capture):
            self._sinks.ledger.passed_over(capture.id, message.counts)

    def _on_state_changed(self, _: ProcessRun, message: StateChanged) -> None:
        if not (capture := self._captures.get(message.capture)):
            return
        capture.note_state(message.state, message.format)
        if message.state == "ended":
            self.put_frames()
        self._sinks.announce(
            capture.id, message.session, message.state, message.reason, message.retry_in_s, message.format
        )

    def _on_connected(self, run: ProcessRun, message: Connected) -> None:
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

    def _on_disconnected(self, _: ProcessRun, message: Disconnected) -> None:
        if capture := self._captures.get(message.capture):
            self._sinks.admission.release(capture.id)

    def _on_ended(self, run: ProcessRun, message: Ended) -> None:
        run.formats.pop(message.capture, None)
        if capture := self._captures.pop(message.capture, None):
            self.put_frames()  # once the last source has ended, the board takes no more
            capture.finish(message.failure)

    def _on_packet_part(self, run: ProcessRun, message: PacketPart) -> None:
        parts = run.parts.setdefault(message.capture, [])
        parts.append(message.data)
        if message.info is None:
            return
        del run.parts[message.capture]
        if capture := self._captures.get(message.capture):
            self._sinks.packets.put_packet(capture.id, message.session, message.info, b"".join(parts))

    def _on_new_memory(self, run: ProcessRun, message: NewMemory, fd: int | None) -> None:
        if fd is None:
            raise ValueError("memory without a descriptor")
        try:
            mapper = self._mapper if message.device else self._host
            run.memories[message.number] = mapper.map(fd, message.size)
        finally:
            os.close(fd)

    def _on_memory_closed(self, run: ProcessRun, message: MemoryClosed) -> None:
        run.memories.pop(message.number).close()

    def _on_heartbeat(self, _: ProcessRun, message: Heartbeat) -> None:
        self.memory = message.memory

    def _on_failed(self, run: ProcessRun, message: Failed) -> None:
        run.blame(message.reason)
