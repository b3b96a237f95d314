"""A subscriber of packets: it asks where they are, and takes them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import zmq

from lookout.messages import Packets, decode, decode_packet, topic

_POLL_MS = 20


class LiveViewer:
    """Watches sources until `close`, in a thread of its own.

    Attributes:
        seen: packets by source.
    """

    def __init__(self, endpoint: str, sources: Sequence[str]) -> None:
        self._sources = sources
        self.seen: dict[str, int] = dict.fromkeys(sources, 0)
        self._context = zmq.Context()
        self._asking = self._context.socket(zmq.SUB)
        for source in sources:
            self._asking.setsockopt(zmq.SUBSCRIBE, topic("packets", source))
        self._asking.connect(endpoint)
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="listener-live", daemon=True)
        self._thread.start()

    def wait_for_one(self, can_come: Callable[[], bool]) -> None:
        """Until a packet has come, or none can."""
        pause = threading.Event()
        for _ in range(3000):
            if any(self.seen.values()) or not can_come():
                return
            pause.wait(_POLL_MS / 1000)
        raise AssertionError("no packet comes")

    def close(self) -> None:
        self._ending.set()
        self._thread.join(60)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        with self._context.socket(zmq.SUB) as packets:
            packets.setsockopt(zmq.LINGER, 0)
            for source in self._sources:
                packets.setsockopt(zmq.SUBSCRIBE, topic("packets", source))
            connected = False
            while not self._ending.is_set():
                if not connected and self._asking.poll(_POLL_MS):
                    answer = decode(*self._asking.recv_multipart())
                    if isinstance(answer, Packets) and answer.endpoint:
                        packets.connect(answer.endpoint)
                        connected = True
                elif connected and packets.poll(_POLL_MS):
                    _, header, data = packets.recv_multipart()
                    assert data == b"picture"
                    self.seen[decode_packet(header).source] += 1
        self._asking.close(linger=0)
        self._context.term()
