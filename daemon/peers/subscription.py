"""A socket for the messages of a daemon."""

from __future__ import annotations

import zmq

from daemon.peers.addresses import DaemonAddress
from lookout.client import use_curve

# Of libzmq's own threads, which answer however busy the daemon is: a daemon that was stopped and a network that is gone
# are noticed within seven seconds.
_HEARTBEAT_MS, _NO_ANSWER_MS = 2000, 5000


def subscriber(context: zmq.Context[zmq.Socket[bytes]], address: DaemonAddress, high_water: int) -> zmq.Socket[bytes]:
    """A socket for messages of a daemon, with the keys of its address; it is not connected yet.

    Args:
        high_water: messages that wait in it.
    """
    socket = context.socket(zmq.SUB)
    socket.setsockopt(zmq.RCVHWM, high_water)
    socket.setsockopt(zmq.TCP_KEEPALIVE, 1)
    socket.setsockopt(zmq.HEARTBEAT_IVL, _HEARTBEAT_MS)
    socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, _NO_ANSWER_MS)
    socket.setsockopt(zmq.CONNECT_TIMEOUT, _NO_ANSWER_MS)
    socket.setsockopt(zmq.RECONNECT_IVL_MAX, 2000)
    try:
        use_curve(socket, address.server_key, address.secret_key)
    except Exception:
        socket.close(linger=0)
        raise
    return socket
