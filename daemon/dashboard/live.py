"""Live video: one muxer for each watched source, and any number of viewers. The event loop's thread alone uses it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

import structlog

from daemon.clock import Clock
from daemon.dashboard.hub import Hub
from daemon.dashboard.muxer import Fragment, Init, Lost, Output, Unplayable
from daemon.dashboard.packet_link import Made, PacketLink
from daemon.dashboard.viewer_queue import Key, ViewerQueue
from lookout.messages import Packets
from lookout.packets import reachable

log = structlog.get_logger(__name__)
MAX_SOURCES = 64  # watched at once
_MAX_GOP = 8 << 20  # bytes since the last key picture, so that the next viewer need not wait for one
_LINGER_S = 5.0  # after the last viewer


class _Stream:
    """A watched source.

    Attributes:
        key_interval_s: between two key pictures; None while it is not known.
        problem: why it is shown as stills; None if it is not.
    """

    def __init__(self) -> None:
        self.queues: dict[ViewerQueue, None] = {}
        self._behind: set[ViewerQueue] = set()  # they have not been told of the stream that runs
        self.init: Init | None = None
        self.gop: list[Fragment] = []
        self._gop_bytes = 0
        self.key_interval_s: float | None = None
        self.problem: str | None = None
        self._ending: asyncio.TimerHandle | None = None  # takes it away after the last viewer has gone

    def join(self, queue: ViewerQueue) -> None:
        """One more viewer."""
        if self._ending:
            self._ending.cancel()
            self._ending = None
        self.queues[queue] = None
        self._behind.add(queue)

    def leave(self, queue: ViewerQueue, end: Callable[[], None]) -> None:
        """One viewer fewer; `end` is called some time after the last one, unless another comes before."""
        del self.queues[queue]
        self._behind.discard(queue)
        if not self.queues and self._ending is None:
            self._ending = asyncio.get_running_loop().call_later(_LINGER_S, end)

    def put_all(self, outputs: Sequence[Output], key_interval_s: float | None) -> None:
        self.key_interval_s = key_interval_s
        for output in outputs:
            self.put(output)

    def put(self, output: Output) -> None:
        if isinstance(output, Fragment):
            self._keep(output)
            for queue in self.queues:
                if queue not in self._behind:
                    queue.show(output)
        elif isinstance(output, Init):
            self.init, self.problem = output, None
            self.gop.clear()
            self._behind.clear()
            for queue in self.queues:
                queue.begin(output)
        elif isinstance(output, Lost):
            self.gop.clear()
            for queue in self.queues:
                queue.lose(output.packets)
        else:
            self.fail(output)

    def fail(self, problem: Unplayable) -> None:
        self.problem, self.init = problem.reason, None
        self.forget()
        for queue in self.queues:
            queue.tell(kind="jpeg", reason=problem.reason)

    def forget(self) -> None:
        """The pictures of it are old. It may go on, or another begins."""
        self.gop.clear()

    def catch_up(self, session: object) -> None:
        """Give new viewers what there is since the last key picture, if it is of the source's present session.

        Else it is old, or the source's state has not come yet: they wait for what comes next, state or stream.
        """
        if self.init is None or self.init.session != session:
            return
        for queue in self._behind:
            queue.begin(self.init)
            for fragment in self.gop:
                queue.show(fragment)
        self._behind.clear()

    def _keep(self, fragment: Fragment) -> None:
        if fragment.key:
            self.gop, self._gop_bytes = [], 0
        elif not self.gop:
            return
        self.gop.append(fragment)
        self._gop_bytes += len(fragment.data)
        if self._gop_bytes > _MAX_GOP:
            self.gop = []


class Live:
    """All watched sources."""

    def __init__(self, hub: Hub, clock: Clock) -> None:
        self._hub, self._clock = hub, clock
        self._streams: dict[Key, _Stream] = {}
        self._links: dict[str, PacketLink] = {}
        self._endpoints: dict[str, str | None] = {}
        self._busy: set[str] = set()
        hub.listen(self)

    def join(self, daemon: str, source: str) -> ViewerQueue:
        """A queue for one more viewer."""
        key = (daemon, source)
        queue, row = ViewerQueue(key, self._clock), self._row(key)
        if row is None:
            queue.tell(kind="ended", reason="there is no such source")
            return queue
        if row["state"] == "up" and row["live"] == "jpeg":
            queue.tell(kind="jpeg", reason=f"{_named(row['type'])} gives no packets of H.264 or HEVC")
            return queue
        if key not in self._streams and len(self._streams) >= MAX_SOURCES:
            queue.tell(kind="jpeg", reason=f"{MAX_SOURCES} sources are watched already")
            return queue
        stream = self._streams.setdefault(key, _Stream())
        stream.join(queue)
        if stream.problem:
            queue.tell(kind="jpeg", reason=stream.problem)
        else:
            self._tell_waiting(queue, stream)
            stream.catch_up(row["session"])
        self._want(daemon)
        return queue

    def leave(self, queue: ViewerQueue) -> None:
        stream = self._streams.get(queue.key)
        if stream is not None and queue in stream.queues:
            stream.leave(queue, partial(self._end, queue.key))

    def close(self) -> None:
        """After the event loop has ended."""
        for link in self._links.values():
            link.close()

    def _end(self, key: Key) -> None:
        stream = self._streams.get(key)
        if stream is not None and not stream.queues:
            del self._streams[key]
            self._want(key[0])

    def _row(self, key: Key) -> dict[str, object] | None:
        daemon = self._hub.daemons.get(key[0])
        return daemon.source(key[1]) if daemon else None

    def _tell_waiting(self, queue: ViewerQueue, stream: _Stream) -> None:
        row, every = self._row(queue.key), stream.key_interval_s
        state = row["state"] if row else "away"
        if row and state != "up":
            why = f": {row['reason']}" if row["reason"] else ""
            queue.tell(kind="waiting", reason=f"the source, which is {state}{why}", interval_s=None)
            return
        rate = "" if every is None else f"; this camera sends one every {every:.1f} s"
        queue.tell(kind="waiting", reason=f"a key picture{rate}", interval_s=every)

    # --- which packets are wanted ----------------------------------------------------------------------------------

    def _want(self, daemon: str) -> None:
        """Ask the daemon where its packets are, and subscribe there to those of watched sources."""
        sources = [source for name, source in self._streams if name == daemon]
        self._hub.watch(daemon, sources)
        link = self._links.get(daemon)
        if link is None and not sources:
            return
        if link is None:
            address, admits = self._hub.daemons[daemon].address, partial(self._hub.admits, daemon)
            link = PacketLink(address, self._clock, partial(self._deliver, daemon), admits)
            self._links[daemon] = link
            link.start()
        link.want(self._endpoints.get(daemon), sources)

    def on_packets(self, daemon: str, message: Packets) -> None:
        if message.endpoint is None:
            if stream := self._streams.get((daemon, message.source)):
                stream.fail(Unplayable(message.reason or "the daemon publishes no packets"))
            return
        known = self._hub.endpoint_of(daemon)
        self._endpoints[daemon] = reachable(message.endpoint, known)
        self._want(daemon)

    def on_change(self, daemon: str, source: str | None) -> None:
        for key, stream in [*self._streams.items()]:
            if key[0] != daemon or source not in (None, key[1]):
                continue
            row = self._row(key)
            if row is None or row["state"] == "disabled":
                for queue in stream.queues:
                    queue.tell(kind="ended", reason="the source was removed" if row is None else "it is disabled")
                stream.forget()
            elif row["state"] != "up":
                stream.forget()
                for queue in stream.queues:
                    self._tell_waiting(queue, stream)
            elif row["live"] == "jpeg" and stream.problem is None:
                stream.fail(Unplayable(f"{_named(row['type'])} gives no packets of H.264 or HEVC"))
            else:
                stream.catch_up(row["session"])

    # --- what comes ------------------------------------------------------------------------------------------------

    def _deliver(self, daemon: str, made: Sequence[Made]) -> bool:
        """Called by the thread of a daemon's packets."""
        if daemon in self._busy or self._hub.loop is None:
            return False
        self._busy.add(daemon)
        with suppress(RuntimeError):  # the loop has ended
            self._hub.loop.call_soon_threadsafe(self._on_made, daemon, made)
        return True

    def _on_made(self, daemon: str, made: Sequence[Made]) -> None:
        try:
            for source, outputs, every in made:
                stream = self._streams.get((daemon, source))
                if stream is not None:
                    stream.put_all(outputs, every)
        finally:
            self._busy.discard(daemon)


def _named(kind: object) -> str:
    names = {"camera": "a camera of this machine", "synthetic": "a drawn source"}
    return names.get(str(kind), "this source")
