"""The peers of the publisher's socket: their subscriptions, and limits on connections and requests.

libzmq bounds neither connections nor subscriptions: it queues every request of a peer for the application. So this file
reads a bounded number of events at a time, and cuts off a peer that sends more than any subscriber needs. At most a few
thousand events of such a peer are left to read.
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
_MAX_EVENTS = 1024  # in one poll: a few ms
_MAX_PER_PEER = 2000  # subscriptions at once; three kinds of 256 sources are 768
_PEER_RATE = 100  # more each second
_MAX_PER_ADDRESS = 50_000  # for all connections of an address: a peer that was cut off comes back
_ADDRESS_RATE = 1000
_MAX_ADDRESSES = 4096
_SHARE_OF_FILES = 4  # connections may take a fourth of the process's descriptors
_MAX_READS, _READ_BYTES = 1024, 1 << 16  # of data that a peer sent before it was cut off
_EVENTS = zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED
_WARN_EVERY_NS = 60_000_000_000


class _TokenBucket:
    """A token bucket: a number at once, and a rate."""

    __slots__ = ("_at", "_left", "_max", "_rate")

    def __init__(self, max_connections: int, rate: int, now: int) -> None:
        self._max, self._rate = max_connections, rate
        self._left, self._at = float(max_connections), now

    def spend(self, now: int) -> bool:
        self._left = min(self._max, self._left + (now - self._at) * self._rate / 1e9) - 1
        self._at = now
        return self._left >= 0


@dataclass
class _Peer:
    """A connection.

    Attributes:
        key: public CURVE key, as Z85; empty without CURVE.
    """

    fd: int
    bucket: _TokenBucket
    address: str = ""
    key: str = ""
    subscribed: bool = False
    cut: bool = False


class Subscribers:
    """The thread that owns the socket calls all methods.

    Args:
        xpub: bound, with XPUB_VERBOSER.
        max_connections: limit; lower if the process may have few descriptors.
    """

    def __init__(self, xpub: zmq.Socket[bytes], clock: Clock, max_connections: int) -> None:
        self._xpub, self._clock = xpub, clock
        self._max = min(max_connections, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // _SHARE_OF_FILES)
        self._here = _local_address(str(xpub.getsockopt_string(zmq.LAST_ENDPOINT)))
        self._subscriptions: Counter[bytes] = Counter()
        self._peers: dict[int, _Peer] = {}  # by descriptor, oldest connection first
        self._addresses: dict[str, _TokenBucket] = {}
        self._let_in: Collection[str] | None = None  # keys of the last reload
        self._warned_ns = -_WARN_EVERY_NS
        self._cut_count = 0
        name = f"inproc://peers-{id(self)}"
        xpub.monitor(name, _EVENTS)
        self._monitor = xpub.context.socket(zmq.PAIR)
        self._monitor.setsockopt(zmq.RCVHWM, 0)  # a full queue would block libzmq's own thread
        self._monitor.connect(name)

    def __len__(self) -> int:
        """Number of subscriptions."""
        return sum(self._subscriptions.values())

    @property
    def prefixes(self) -> Collection[bytes]:
        """The topic prefixes that are subscribed to now."""
        return self._subscriptions.keys()

    @property
    def connections(self) -> int:
        return len(self._peers)

    def poll(self) -> set[bytes]:
        """Process events of peers; returns the prefixes of new subscriptions."""
        self._note_connections()
        fresh = set()
        for _ in range(_MAX_EVENTS):
            try:
                frame = self._xpub.recv(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                break
            event = frame.bytes
            prefix = event[1:]
            may_ask = self._may_ask(frame)
            if event[:1] == b"\x01":  # counted for every peer: libzmq will report its end
                self._subscriptions[prefix] += 1
                if may_ask:
                    fresh.add(prefix)
            elif event[:1] == b"\x00":
                self._forget(prefix)
        self._warn()
        return fresh

    def cut_off_all_but(self, keys: Collection[str]) -> set[bytes]:
        """`poll`, and end the connections of peers with other keys, now and when such a peer subscribes.

        The key of a peer that has not subscribed is unknown. It is cut off, too, and comes back if it may: libzmq sends
        to a new subscription before its event is read here.
        """
        self._let_in = keys
        fresh = self.poll()  # whose keys are known from now on
        for peer in [*self._peers.values()]:
            if peer.key not in keys:
                self._cut_off(peer)
        return fresh

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
        """Beyond the limit, cut off the oldest peer without a subscription, or else the newest peer."""
        here = [peer for peer in self._peers.values() if not peer.cut]
        if len(here) > self._max:
            self._cut_off(next((peer for peer in here if not peer.subscribed), here[-1]))

    def _may_ask(self, frame: zmq.Frame) -> bool:
        """Whether a peer is within its limits and its key is allowed; otherwise it is cut off.

        libzmq ends the subscriptions of a lost peer with events that have no peer.
        """
        fd = _descriptor_of(frame)
        if fd is None:
            return True
        peer = self._peers.get(fd) or self._peers.setdefault(fd, self._new_peer(fd))
        if not peer.subscribed:
            peer.subscribed = True
            peer.address, peer.key = _property(frame, "Peer-Address"), _property(frame, "User-Id")
        now = self._clock.monotonic_ns()
        of_peer, of_address = peer.bucket.spend(now), self._of_address(peer.address, now).spend(now)
        is_let_in = self._let_in is None or peer.key in self._let_in
        if not (of_peer and of_address and is_let_in):
            self._cut_off(peer)
        return not peer.cut

    def _of_address(self, address: str, now: int) -> _TokenBucket:
        found = self._addresses.pop(address, None) or _TokenBucket(_MAX_PER_ADDRESS, _ADDRESS_RATE, now)
        self._addresses[address] = found  # most recently used last
        if len(self._addresses) > _MAX_ADDRESSES:
            del self._addresses[next(iter(self._addresses))]
        return found

    def _new_peer(self, fd: int) -> _Peer:
        return _Peer(fd, _TokenBucket(_MAX_PER_PEER, _PEER_RATE, self._clock.monotonic_ns()))

    def _forget(self, prefix: bytes) -> None:
        if self._subscriptions[prefix] <= 1:
            del self._subscriptions[prefix]
        else:
            self._subscriptions[prefix] -= 1

    def _cut_off(self, peer: _Peer) -> None:
        """End the connection; libzmq notices and closes the descriptor. If libzmq has closed it already, the number may
        be another connection's, and nothing happens."""
        if peer.cut:
            return
        peer.cut = True
        with suppress(OSError), _duplicated(peer.fd) as connection:
            if _local_address_of(connection.getsockname()) == self._here:
                self._cut_count += 1
                _abort(connection)

    def _warn(self) -> None:
        now = self._clock.monotonic_ns()
        if self._cut_count and now - self._warned_ns >= _WARN_EVERY_NS:
            log.warning(
                "subscribers were cut off",
                connections=self._cut_count,
                reason="too many connections or requests, or a key that is no longer allowed",
            )
            self._warned_ns, self._cut_count = now, 0


def in_use(endpoint: str) -> bool:
    """Whether a process listens on an ipc:// path: libzmq would take the path over silently."""
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
    """The names with one of the prefixes, in order."""
    for name in names:
        if any(name[:length] in prefixes for length in range(len(name) + 1)):
            yield name


@contextmanager
def _duplicated(fd: int) -> Iterator[socket.socket]:
    """A connection that libzmq owns.

    A second descriptor keeps the number from going to another connection if libzmq closes the first in between. If the
    table of descriptors is full, the first is used: this is when connections must be cut off.

    Raises:
        OSError: it is closed, or not a connection.
    """
    with ExitStack() as stack:
        with suppress(OSError):
            fd = os.dup(fd)
            stack.callback(os.close, fd)
        connection = socket.socket(fileno=fd)
        stack.callback(connection.detach)
        yield connection


def _abort(connection: socket.socket) -> None:
    """Shut down both directions, so that the peer sees a reset and does not wait for room. Unread data, megabytes in a
    flood, is thrown away: libzmq would hand it over bit by bit."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.shutdown(socket.SHUT_RDWR)
    for _ in range(_MAX_READS):
        if not connection.recv(_READ_BYTES, socket.MSG_DONTWAIT):
            return


def _local_address(endpoint: str) -> object:
    """The local address of connections to an endpoint."""
    scheme, _, address = endpoint.partition("://")
    if scheme == "tcp":
        return int(address.rpartition(":")[2])
    return b"\0" + address[1:].encode() if address.startswith("@") else address


def _local_address_of(name: object) -> object:
    """A port or a path."""
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
