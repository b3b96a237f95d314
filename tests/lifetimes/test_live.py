"""Live video's side of the daemon: nothing without a viewer, and a viewer that does not read harms itself alone."""

from __future__ import annotations

from pathlib import Path

import pytest
import zmq

from daemon.clock import SystemClock
from daemon.config.publisher import PublisherConfig
from daemon.config.sources import AvConfig, SyntheticConfig
from daemon.daemon import Daemon
from daemon.publish.ownership_fence import NoFence
from daemon.publish.packets import PacketPublisher
from daemon.publish.zeromq import ZeroMqSink
from daemon.redact import Url
from daemon.sources.port import PacketInfo
from lookout.messages import Packets, decode, topic
from tests.lifetimes.gate import Gate
from tests.lifetimes.live_viewer import LiveViewer
from tests.lifetimes.parts import Maker
from tests.lifetimes.rig import Listener, wait_until
from tests.lifetimes.running import edit, running, wait_up
from tests.support.runtime import runtime_of

_HERE = SyntheticConfig(id="lib", fps=50, width=16, height=16)
_THERE = AvConfig(id="cam", url=Url("rtsp://192.0.2.1/cam"), decode="cpu")
_INFO = PacketInfo("h264", b"", (1, 90_000), 8, 8, 0, 1, 1, True)


def _packets(app: Daemon) -> PacketPublisher:
    return app.parts.publishing.packets


def test_packets_come_while_somebody_watches_and_no_longer(tmp_path: Path) -> None:
    """Of a source in this process and of one in a capture process; also over a new connection."""
    with running(tmp_path, _HERE, _THERE, make_source=Maker(tmp_path, library=Gate())) as app:
        wait_up(app, "lib", "cam")
        assert not _packets(app).is_alive()
        first, second = LiveViewer(app.endpoint, ("lib", "cam")), LiveViewer(app.endpoint, ("lib",))
        wait_until(lambda: all(first.seen.values()) and second.seen["lib"] > 0, "packets come")
        first.close()
        wait_until(lambda: not _packets(app).is_watched("cam"), "nobody watches cam")
        assert _packets(app).is_watched("lib")
        edit(app, lambda rows: [row for row in rows if row.id != "lib"]).result(60)
        edit(app, lambda rows: [*rows, _HERE]).result(60)
        before = second.seen["lib"]
        wait_until(lambda: second.seen["lib"] > before, "its packets come again")
        second.close()
        wait_until(lambda: not _packets(app).is_watched("lib"), "nobody watches")


def test_a_viewer_that_does_not_read_loses_packets_and_nobody_a_message(tmp_path: Path) -> None:
    with running(tmp_path, _HERE, make_source=Maker(tmp_path, library=Gate())) as app, zmq.Context() as context:
        listener = Listener(app.endpoint)
        wait_up(app, "lib")
        with context.socket(zmq.SUB) as main, context.socket(zmq.SUB) as slow:
            main.setsockopt(zmq.SUBSCRIBE, topic("packets", "lib"))
            main.connect(app.endpoint)
            assert main.poll(60_000)
            answer = decode(*main.recv_multipart())
            assert isinstance(answer, Packets)
            slow.setsockopt(zmq.RCVHWM, 1)
            slow.setsockopt(zmq.LINGER, 0)
            slow.setsockopt(zmq.SUBSCRIBE, topic("packets", "lib"))
            slow.connect(answer.endpoint or "")
            wait_until(lambda: _packets(app).is_watched("lib"), "it is watched")
            for _ in range(2000):  # 400 MB, which are nowhere
                _packets(app).put_packet("lib", "s", _INFO, bytes(200_000))
                if _packets(app)._bytes > 8 << 20:
                    wait_until(lambda: _packets(app)._bytes == 0, "they are sent")
            wait_up(app, "lib")
        app.request_stop()
        app.stop()
        assert listener.close() == {}


@pytest.mark.parametrize("packets", ["off", "tcp://192.0.2.1:5557"])
def test_where_packets_cannot_be_had_the_answer_says_why(packets: str) -> None:
    publisher = PublisherConfig(endpoint="tcp://127.0.0.1:*", packets=packets)
    sink = ZeroMqSink(publisher, SystemClock())
    answer = PacketPublisher(sink, publisher, "run", NoFence(), runtime_of(SystemClock())).answer("cam")
    sink.close()
    assert answer.endpoint is None
    assert answer.reason is not None
    assert "publisher.packets" in answer.reason
