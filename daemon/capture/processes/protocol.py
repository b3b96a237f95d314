"""The messages between the daemon and a capture process."""

from __future__ import annotations

import msgspec

from daemon.capture.sinks import Quota
from daemon.pipeline.frames import FrameInfo
from daemon.sources.port import PacketInfo
from lookout.messages import FrameClock, State, VideoFormat

MAX_MESSAGES = 64  # in one packet


class ProcessMessage(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A message to or from a capture process."""


# --- from a capture process ----------------------------------------------------------------------------------------
# `capture` is the number that the daemon gave a source when it was added. Ids are not used: another source may have the
# same id by the time a message of a removed source arrives.


class FrameFormat(ProcessMessage, frozen=True, tag=13):
    """Values that all frames of a source have in common until its next format. It comes before the first of them.

    Attributes:
        session, clock, width, height, pixel_aspect: as in `daemon.pipeline.frames.FrameInfo`.
        chroma: bytes from luma to chroma; of frames on the GPU, like the rest.
        pitch, bt709, full_range, turns: as in `detectors.port.DeviceImage`.
    """

    capture: int
    session: str
    clock: FrameClock
    width: int
    height: int
    pixel_aspect: float
    chroma: int = 0
    pitch: int = 0
    bt709: bool = False
    full_range: bool = False
    turns: int = 0


class SharedFrame(ProcessMessage, frozen=True):
    """A frame in memory that the capture process shares. Its slot is leased until the daemon returns it.

    Attributes:
        seq, pts, captured_ns, captured_at, decode, lateness, corrupt: as in `daemon.pipeline.frames.FrameInfo`.
        memory, offset: address of the picture, on the GPU of luma.
    """

    capture: int
    seq: int
    pts: int | None
    captured_ns: int
    captured_at: int
    decode: int
    lateness: int
    corrupt: bool
    memory: int
    offset: int

    def info(self, source: str, form: FrameFormat) -> FrameInfo:
        """The whole metadata, with the id of the source and its format."""
        return FrameInfo(
            source, form.session, self.seq, self.pts, self.captured_ns, self.captured_at, form.clock, self.decode,
            form.width, form.height, self.lateness, form.pixel_aspect, self.corrupt,
        )  # fmt: skip


class DeviceFrame(SharedFrame, frozen=True, tag=1):
    """A frame on the GPU, NV12."""


class HostFrame(SharedFrame, frozen=True, tag=2):
    """A frame in host memory, BGR, as `detectors.port.HostImage`."""


class PictureSkipped(ProcessMessage, frozen=True, tag=3):
    """A picture that was dropped."""

    capture: int
    seq: int
    cause: str


class StateChanged(ProcessMessage, frozen=True, tag=4):
    """A source's state has changed; see `daemon.capture.sinks.Announce`."""

    capture: int
    session: str | None
    state: State
    reason: str | None
    retry_in_s: float | None
    format: VideoFormat | None


class Connected(ProcessMessage, frozen=True, tag=5):
    """A source has connected with this rate, and waits for `AdmissionReply`.

    Attributes:
        connection: number of the connection; replies to earlier ones are ignored.
    """

    capture: int
    connection: int
    fps: float | None
    format: VideoFormat


class Disconnected(ProcessMessage, frozen=True, tag=6):
    capture: int


class Ended(ProcessMessage, frozen=True, tag=7):
    """A source has ended.

    Attributes:
        failure: see `daemon.capture.capture.Capture`.
    """

    capture: int
    failure: str | None


class NewMemory(ProcessMessage, frozen=True, tag=8):
    """Memory for frames; alone in its packet, with its file descriptor."""

    number: int
    size: int
    device: bool


class MemoryClosed(ProcessMessage, frozen=True, tag=9):
    number: int


class Heartbeat(ProcessMessage, frozen=True, tag=10):
    """Sent every moment; `memory` is the GPU memory reserved for decoders, bytes."""

    memory: int


class Failed(ProcessMessage, frozen=True, tag=11):
    """The process cannot go on."""

    reason: str


class PacketPart(ProcessMessage, frozen=True, tag=12):
    """A part of a watched source's packet of video, alone in its packet of the channel.

    Attributes:
        info: with the last part; None with those before.
    """

    capture: int
    session: str
    info: PacketInfo | None
    data: bytes


class PassedOver(ProcessMessage, frozen=True, tag=14):
    """Packets that are no frames of the source, by kind."""

    capture: int
    counts: dict[str, int]


FromCapture = (
    FrameFormat
    | DeviceFrame
    | HostFrame
    | PictureSkipped
    | StateChanged
    | Connected
    | Disconnected
    | Ended
    | NewMemory
    | MemoryClosed
    | Heartbeat
    | Failed
    | PacketPart
    | PassedOver
)

# --- to a capture process ------------------------------------------------------------------------------------------


class Returned(ProcessMessage, frozen=True, tag=1):
    """Slots that the daemon has released: memory and offset."""

    slots: list[tuple[int, int]]


class AdmissionReply(ProcessMessage, frozen=True, tag=2):
    """The answer to `Connected`: None if the source is admitted, otherwise the reason."""

    capture: int
    connection: int
    refusal: str | None


class QuotaChanged(ProcessMessage, frozen=True, tag=3):
    """The quota of a connection."""

    capture: int
    connection: int
    quota: Quota


class StopAll(ProcessMessage, frozen=True, tag=4):
    """End all sources, then the process."""


class Add(ProcessMessage, frozen=True, tag=5):
    """Add a source.

    Attributes:
        task: a pickled `daemon.capture.processes.main.Task`.
    """

    task: bytes


class Remove(ProcessMessage, frozen=True, tag=6):
    """End a source; `Ended` is the answer."""

    capture: int


class Abandon(ProcessMessage, frozen=True, tag=7):
    """Abandon a source that was removed and has not ended."""

    capture: int


class Watch(ProcessMessage, frozen=True, tag=8):
    """Whether the packets of a source are wanted."""

    capture: int
    on: bool


class Retry(ProcessMessage, frozen=True, tag=9):
    """Connect a source that is down at once."""

    capture: int


class Record(ProcessMessage, frozen=True, tag=10):
    """A ring for the packets of a source; alone in its packet of the channel, with its descriptor.

    Attributes:
        rings: that come, of which this is one. With the last of them, all replace those before.
        make_tape: a pickled function; see `daemon.capture.sinks.RecordedPackets`.
    """

    capture: int
    rings: int
    make_tape: bytes


class NoRecord(ProcessMessage, frozen=True, tag=11):
    """The packets of a source are not recorded any more."""

    capture: int


ToCapture = (
    Returned | AdmissionReply | QuotaChanged | StopAll | Add | Remove | Abandon | Watch | Retry | Record | NoRecord
)
