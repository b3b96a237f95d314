"""Attaches the publisher of messages, and that of packets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from daemon.lifecycle import Phase, Steps

if TYPE_CHECKING:
    from daemon.config.root import Config
    from daemon.pipeline.core import Core
    from daemon.publish.build import BoxEncoder, Choose
    from daemon.publish.ownership_fence import Fence
    from daemon.publish.packets import PacketPublisher
    from daemon.publish.port import Sink
    from daemon.publish.publisher import Publisher
    from daemon.publish.zeromq import ZeroMqSink
    from daemon.system.stop_token import StopToken

log = structlog.get_logger(__name__)
_POLL_S = 0.05


@dataclass(frozen=True)
class Publishing:
    """Attributes:
    socket: that messages are published on.
    boxes: how boxes are written.
    sends_json: all sinks do.
    """

    socket: ZeroMqSink
    packets: PacketPublisher
    publisher: Publisher
    boxes: BoxEncoder
    sends_json: bool

    def reload(self, _: Config) -> Callable[[], None]:
        """Read the keys of subscribers again; see `ZeroMqSink.reload_clients`."""
        return self.socket.reload_clients()


def open_publishing(
    core: Core, fence: Fence | None, further_sinks: Sequence[Sink], choose: Choose | None
) -> Publishing:
    """
    Args:
        fence: None where no other daemon may have the sources.
        further_sinks: get all messages, besides subscribers; they take no JSON.
        choose: see `MessageBuilder`.

    Raises:
        ConfigError: see `ZeroMqSink`.
    """
    from daemon.publish.build import BoxEncoder, MessageBuilder
    from daemon.publish.masks import MaskEncoder
    from daemon.publish.ownership_fence import NoFence
    from daemon.publish.packets import PacketPublisher
    from daemon.publish.publisher import Publisher
    from daemon.publish.zeromq import ZeroMqSink

    config, life, runtime = core.config.publisher, core.life, core.runtime
    fence = fence or NoFence()
    socket = ZeroMqSink(config, runtime.clock)
    boxes = BoxEncoder(MaskEncoder(config.masks, config.max_masks, core.ledger))
    packets = PacketPublisher(socket, config, core.instance, fence, runtime)
    sinks = [socket, *further_sinks]
    build = MessageBuilder(core.instance, core.ledger, runtime.clock, choose)
    publisher = life.add(
        Publisher(sinks, core.outbox, core.ledger, boxes, build, fence, packets.answer, runtime),
        Phase.PUBLISHER,
    )
    life.add(packets, Phase.REPORTS)  # its socket is of the publisher's context
    life.add(Steps("messages", join=lambda seconds: _send_rest(core, publisher, seconds)), Phase.MESSAGES)
    return Publishing(socket, packets, publisher, boxes, config.encoding == "json" and not further_sinks)


def await_subscriber(core: Core, publisher: Publisher, stop: StopToken) -> None:
    """Attach the wait for the first subscriber, which the configuration may ask for."""
    clock, timeout_s = core.runtime.clock, core.config.publisher.wait_for_subscriber_s

    def wait() -> None:
        until = clock.monotonic_ns() + round(timeout_s * 1e9)
        while not publisher.has_subscribers.wait(_POLL_S) and not stop.is_set:
            if clock.monotonic_ns() >= until:
                log.warning("nobody subscribed in time: starting without", seconds=timeout_s)
                return

    if timeout_s:
        core.life.add(Steps("the first subscriber", start=wait), Phase.SOURCES)


def _send_rest(core: Core, publisher: Publisher, seconds: float) -> None:
    """Before the last report, so that it counts every frame; what cannot be sent is counted as dropped."""
    if publisher.is_alive():
        core.outbox.flush(seconds)
    core.outbox.abandon()
