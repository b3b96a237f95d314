"""The peers of the publisher's socket: what they subscribe to, how many there may be, and who asks for too much.

libzmq bounds neither connections nor subscriptions: it queues for the application whatever a peer sends. So this
reads a bounded number of events at a time, and cuts off a peer that sends more than any subscriber needs. What a peer
sent before it was cut off is a few thousand events, and is soon read.
"""

from __future__ import annotations

import os
import resource
import socket
import struct
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass

import structlog
import zmq
from zmq.utils.monitor import parse_monitor_message

from daemon.clock import Clock

log = structlog.get_logger(__name__)
_MOST_AT_ONCE = 1024  # events a look: a few ms
_MOST_A_PEER = 2000  # subscriptions at once; three kinds of 256 sources are 768
_PEER_RATE = 100  # more a second
_MOST_AN_ADDRESS = 50_000  # of all connections of an address, for a peer that is cut off comes back
_ADDRESS_RATE = 1000
_MOST_ADDRESSES = 4096
_SHARE_OF_FILES = 4  # connections take one in so many of the descriptors that the process may have
_MOST_READS, _READ_BYTES = 1024, 1 << 16  # of what a peer has sent that is cut off
_EVENTS = zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED
_TELL_NS = 60_000_000_000


class _Allowance:
    """So many at once, and so many more a second."""

    __slots__ = ("_at", "_left", "_most", "_rate")

    def __init__(self, most: int, rate: int, now: int) -> None:
        self._most, self._rate = most, rate
        self._left, self._at = float(most), now

    def spend(self, now: int) -> bool:
        self._left = min(self._most, self._left + (now - self._at) * self._rate / 1e9) - 1
        self._at = now
        return self._left >= 0


@dataclass
class _Peer:
    """A connection.

    Attributes:
        key: of its CURVE pair, as Z85; empty without CURVE.
    """

    fd: int
    allowance: _Allowance
    address: str = ""
    key: str = ""
    subscribed: bool = False
    cut: bool = False


class Audience:
    """Belongs to the thread that owns the socket.

    Args:
        xpub: bound, with XPUB_VERBOSER.
        most: connections there may be; fewer where the process may have few descriptors.
    """

    def __init__(self, xpub: zmq.Socket[bytes], clock: Clock, most: int) -> None:
        self._xpub, self._clock = xpub, clock
        self._most = min(most, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // _SHARE_OF_FILES)
        self._here = _place_of(str(xpub.getsockopt_string(zmq.LAST_ENDPOINT)))
        self._subscriptions: Counter[bytes] = Counter()
        self._peers: dict[int, _Peer] = {}  # by descriptor, the longest connected first
        self._addresses: dict[str, _Allowance] = {}
        self._let_in: set[str] | None = None  # keys, since a reload
        self._told = -_TELL_NS
        self._cut = 0
        name = f"inproc://peers-{id(self)}"
        xpub.monitor(name, _EVENTS)
        self._monitor = xpub.context.socket(zmq.PAIR)
        self._monitor.setsockopt(zmq.RCVHWM, 0)  # libzmq's own thread waits where it is full
        self._monitor.connect(name)

    def __len__(self) -> int:
        """Subscriptions that are held."""
        return sum(self._subscriptions.values())

    @property
    def connections(self) -> int:
        return len(self._peers)

    def poll(self) -> set[bytes]:
        """Take note of who came, went and asked; the prefixes that were subscribed to."""
        self._note_connections()
        fresh = set()
        for _ in range(_MOST_AT_ONCE):
            try:
                frame = self._xpub.recv(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                break
            event = frame.bytes
            prefix = event[1:]
            may_ask = self._may_ask(frame)
            if event[:1] == b"\x01":  # counted whoever it is: libzmq will tell of its end
                self._subscriptions[prefix] += 1
                if may_ask:
                    fresh.add(prefix)
            elif event[:1] == b"\x00":
                self._forget(prefix)
        self._tell()
        return fresh

    def cut_off_all_but(self, keys: set[str]) -> None:
        """End the connections of those whose keys are not let in any more, and of those that subscribe later."""
        self._let_in = keys
        for peer in [*self._peers.values()]:
            if peer.key and peer.key not in keys:
                self._cut_off(peer)

    def close(self) -> None:
        self._xpub.disable_monitor()
        self._monitor.close(linger=0)

    def _note_connections(self) -> None:
        while True:
            try:
                event = parse_monitor_message(self._monitor.recv_multipart(zmq.NOBLOCK))
            except zmq.Again:
                return
            fd = int(event["value"])
            self._peers.pop(fd, None)
            if event["event"] == zmq.EVENT_ACCEPTED:
                self._peers[fd] = self._new_peer(fd)
                self._make_room()

    def _make_room(self) -> None:
        """Beyond what there may be, who is longest here without having subscribed goes; or else who has just come."""
        here = [peer for peer in self._peers.values() if not peer.cut]
        if len(here) > self._most:
            self._cut_off(next((peer for peer in here if not peer.subscribed), here[-1]))

    def _may_ask(self, frame: zmq.Frame) -> bool:
        """Whether a peer is within its limits, and its key still let in; it is cut off otherwise.

        Ends of subscriptions that libzmq makes up for a peer that is gone have no peer.
        """
        fd = _descriptor_of(frame)
        if fd is None:
            return True
        peer = self._peers.get(fd) or self._peers.setdefault(fd, self._new_peer(fd))
        if not peer.subscribed:
            peer.subscribed = True
            peer.address, peer.key = _property(frame, "Peer-Address"), _property(frame, "User-Id")
        now = self._clock.monotonic_ns()
        of_peer, of_address = peer.allowance.spend(now), self._of_address(peer.address, now).spend(now)
        is_let_in = self._let_in is None or peer.key in self._let_in
        if not (of_peer and of_address and is_let_in):
            self._cut_off(peer)
        return not peer.cut

    def _of_address(self, address: str, now: int) -> _Allowance:
        found = self._addresses.pop(address, None) or _Allowance(_MOST_AN_ADDRESS, _ADDRESS_RATE, now)
        self._addresses[address] = found  # the last that was used is last
        if len(self._addresses) > _MOST_ADDRESSES:
            del self._addresses[next(iter(self._addresses))]
        return found

    def _new_peer(self, fd: int) -> _Peer:
        return _Peer(fd, _Allowance(_MOST_A_PEER, _PEER_RATE, self._clock.monotonic_ns()))

    def _forget(self, prefix: bytes) -> None:
        if self._subscriptions[prefix] <= 1:
            del self._subscriptions[prefix]
        else:
            self._subscriptions[prefix] -= 1

    def _cut_off(self, peer: _Peer) -> None:
        """End the connection; libzmq notices, and closes the descriptor. Where libzmq has closed it already, and the
        number may be another's, nothing is left to end, and nothing is counted."""
        if peer.cut:
            return
        peer.cut = True
        with suppress(OSError), _borrowed(peer.fd) as connection:
            if _place(connection.getsockname()) == self._here:
                self._cut += 1
                _abort(connection)

    def _tell(self) -> None:
        now = self._clock.monotonic_ns()
        if self._cut and now - self._told >= _TELL_NS:
            log.warning(
                "subscribers were cut off",
                connections=self._cut,
                reason="too many, asking for too much, or no longer let in",
            )
            self._told, self._cut = now, 0


def in_use(endpoint: str) -> bool:
    """Somebody listens on an ipc:// path: libzmq would take it away from them without a word."""
    path = endpoint.removeprefix("ipc://")
    if path == endpoint or path.startswith("@"):
        return False
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(path)
        except OSError:
            return False
    return True


def matching(names: Sequence[bytes], prefixes: Collection[bytes]) -> Iterator[bytes]:
    """The names that begin with one of the prefixes, in order."""
    for name in names:
        if any(name[:length] in prefixes for length in range(len(name) + 1)):
            yield name


@contextmanager
def _borrowed(fd: int) -> Iterator[socket.socket]:
    """A connection that libzmq owns.

    A second descriptor keeps the connection from becoming another's if libzmq closes the first in between. Where the
    table of descriptors is full there is no second one, and that is when connections must be cut off: then the first
    is used, and stays libzmq's.

    Raises:
        OSError: it is closed, or no connection.
    """
    with ExitStack() as stack:
        with suppress(OSError):
            fd = os.dup(fd)
            stack.callback(os.close, fd)
        connection = socket.socket(fileno=fd)
        stack.callback(connection.detach)
        yield connection


def _abort(connection: socket.socket) -> None:
    """So that whoever sends is told when libzmq closes its side, and does not wait for room; and without what has come
    and nobody has read, megabytes of it in a flood, which libzmq would hand over bit by bit."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.shutdown(socket.SHUT_RDWR)
    for _ in range(_MOST_READS):
        if not connection.recv(_READ_BYTES, socket.MSG_DONTWAIT):
            return


def _place_of(endpoint: str) -> object:
    """What a connection to an endpoint has at this end."""
    scheme, _, address = endpoint.partition("://")
    if scheme == "tcp":
        return int(address.rpartition(":")[2])
    return b"\0" + address[1:].encode() if address.startswith("@") else address


def _place(name: object) -> object:
    """A port, or a path."""
    return name[1] if isinstance(name, tuple) else name


def _descriptor_of(frame: zmq.Frame) -> int | None:
    try:
        found = frame.get(zmq.SRCFD)
    except zmq.ZMQError:
        return None
    return found if isinstance(found, int) else None


def _property(frame: zmq.Frame, name: str) -> str:
    try:
        return str(frame.get(name))
    except zmq.ZMQError:
        return ""
