"""A publisher of made-up messages, with which the tests of a subscriber need no daemon.

with Publisher() as publisher, Subscriber(publisher.endpoint) as subscriber:
    publisher.send(detections("door", [Detection("person", 0, 0.9, (10.0, 20.0, 40.0, 90.0))]))
    assert subscriber.receive(5) is not None
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from types import TracebackType

import msgspec
import zmq

from lookoutd.messages import (
    Detection,
    Detections,
    Dropped,
    FrameClock,
    ImageSize,
    Latency,
    Message,
    Model,
    encoder,
    topic,
)

_INSTANCE, _SESSION = "run-1", "connection-1"
_FRAME_NS = 40_000_000


class Publisher:
    """Sends messages as a daemon does, to one subscriber.

    Args:
        timeout_s: a subscriber must have come by then.

    Attributes:
        endpoint: for the subscriber.
    """

    def __init__(self, *, timeout_s: float = 10.0) -> None:
        self._timeout_ms = round(timeout_s * 1000)
        self._encode = encoder("json")
        self._sent: Counter[bytes] = Counter()  # by topic
        self._has_subscriber = False
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.XPUB)
        self.endpoint = f"tcp://127.0.0.1:{self._socket.bind_to_random_port('tcp://127.0.0.1')}"

    def __enter__(self) -> Publisher:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def send(self, message: Message) -> None:
        """Send a message with the next index of its topic; the first one waits for a subscriber.

        Raises:
            TimeoutError: nobody has subscribed.
        """
        name = _topic_of(message)
        if not self._has_subscriber and not self._socket.poll(self._timeout_ms):
            raise TimeoutError("nobody has subscribed")
        self._has_subscriber = True
        self._socket.send_multipart([name, self._encode(msgspec.structs.replace(message, index=self._sent[name]))])
        self._sent[name] += 1

    def lose(self, message: Message) -> None:
        """Count a message as sent: the subscriber has lost it."""
        self._sent[_topic_of(message)] += 1

    def close(self) -> None:
        self._context.destroy(linger=0)


def detections(
    source: str, boxes: Sequence[Detection] = (), *, seq: int = 0, size: tuple[int, int] = (1280, 720)
) -> Detections:
    """The message of a frame, 40 ms after the one before.

    Args:
        seq: number of the frame.
        size: width and height of the picture, pixels.
    """
    return Detections(
        instance=_INSTANCE,
        source=source,
        session=_SESSION,
        seq=seq,
        index=0,
        pts=seq * _FRAME_NS,
        captured_at=seq * _FRAME_NS,
        clock=FrameClock("arrival"),
        image=ImageSize(*size),
        model=Model("model", "0" * 12, "fp32", "cpu"),
        detections=list(boxes),
        latency=Latency(0, 0, 0, 0, 0, 0),
        dropped=Dropped(),
    )


def _topic_of(message: Message) -> bytes:
    kind = message.schema.removeprefix("lookout.").partition("/")[0]
    return topic(kind, getattr(message, "source", ""))
