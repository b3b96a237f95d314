"""Everything about states of one connection: what is retained, what Home Assistant is told, and what goes again."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import NamedTuple

import structlog

from daemon.bridge.mqtt.board import (
    Board,
    SourceView,
    about_of,
    daemon_topics,
    newest,
    owner_of,
    picture_topic,
    source_topics,
    unknown_topics,
)
from daemon.bridge.mqtt.broker import Message
from daemon.bridge.mqtt.claim import Claim
from daemon.bridge.mqtt.departed import Departed
from daemon.bridge.mqtt.former import Former, Left
from daemon.bridge.mqtt.homeassistant import BIRTH, SPREAD_S, Discovery, event_body, event_topic
from daemon.bridge.mqtt.link import Link
from daemon.bridge.mqtt.retained import About, Retained, Wanted
from daemon.bridge.mqtt.topics import Topics
from daemon.bridge.records import Delivery
from daemon.bridge.states import DaemonState, SourceState, States
from daemon.bridge.targets.opening import TargetContext
from daemon.config.targets import MqttTarget
from lookout.messages import Event

log = structlog.get_logger(__name__)
_ANSWER_S = 5.0
_QUIET_NS = 200_000_000
_ADOPTION = "adoption"  # of the memory, while what another bridge has left is not entered yet
_UNKNOWN_NS = 3_000_000_000  # from the connection on, until a source is unknown whose daemon is not there yet
_PAUSE_NS = 150_000_000  # between two looks at all states, which change with each event


class Beside(NamedTuple):
    """A message that goes before that of an event."""

    topic: str
    body: bytes
    is_retained: bool


class Told:
    """Used by the thread of the target."""

    def __init__(self, link: Link, topics: Topics, target: MqttTarget, context: TargetContext) -> None:
        self._link, self._topics, self._context = link, topics, context
        self._sources = target.when.sources
        self._has_pictures = target.picture
        self._retained = Retained(link, context.memory)
        self._board = Board(topics, context.memory)
        self._departed = Departed(link, context.memory)
        self._discovery = None
        if target.homeassistant:
            has_several = len(context.daemons) > 1
            self._discovery = Discovery(
                topics, target.discovery_prefix, has_several=has_several, has_pictures=target.picture
            )
        self._known: set[About] = set()
        self._views: dict[About, tuple[SourceView, dict[str, Wanted]]] = {}
        self._version, self._compared_ns = -1, -_PAUSE_NS
        self._again_ns: int | None = None
        self._unknown_ns: int | None = context.clock.monotonic_ns() + _UNKNOWN_NS

    def prepare(self, claim: Claim) -> None:
        """Before the prefix is taken: a connection that breaks afterwards must not hide that another bridge had it."""
        if claim.was_of_another:
            self._context.memory.write(_ADOPTION, "due")

    def begin(self, claim: Claim) -> None:
        """At the start of a connection, when the prefix is taken.

        Raises:
            AwayError: it is lost.
        """
        if self._discovery is not None:
            ticket = self._link.subscribe(self._discovery.birth)
            if not self._link.await_all([ticket], _ANSWER_S) or not ticket.is_taken:
                log.warning("Home Assistant's start cannot be seen", topic=self._discovery.birth, reason=ticket.text)
        if _ADOPTION in self._context.memory.read():
            self._adopt(claim)
        former = Former(self._link, self._context.memory, claim.id, claim.heed, self._context.clock)
        own = Left(self._topics.prefix, is_free=True)
        for left in former.leave(own.prefix):
            for topic, _ in self._retained:
                if left.has(topic) and not own.has(topic):
                    self._give_up(topic, is_free=left.is_free)

    def _give_up(self, topic: str, *, is_free: bool) -> None:
        if is_free:
            self._retained.clear(topic)
            self._departed.remove(topic)
        else:
            self._retained.leave(topic)
            self._departed.leave(topic)

    def heed(self, message: Message) -> None:
        """A message of the broker."""
        if self._discovery is not None and message.topic == self._discovery.birth and message.body == BIRTH:
            spread_ns = random.randrange(round(SPREAD_S * 1e9))  # noqa: S311 - jitter, not a secret
            self._again_ns = self._context.clock.monotonic_ns() + spread_ns

    def tend(self, states: States) -> None:
        """Tell what has changed."""
        now = self._context.clock.monotonic_ns()
        if self._unknown_ns is not None and now >= self._unknown_ns:
            self._unknown_ns, self._version = None, -1
        if states.version != self._version and now - self._compared_ns >= _PAUSE_NS:
            self._version, self._compared_ns = states.version, now
            self._compare(states)
        if self._again_ns is not None and self._context.clock.monotonic_ns() >= self._again_ns:
            self._again_ns = None
            self._departed.begin()
            self._retained.again()
        self._departed.tend()
        self._retained.tend()

    def beside(self, delivery: Delivery) -> Iterator[Beside]:
        """The messages before that of an event: its picture, which is there when it comes, and Home Assistant's."""
        event = delivery.record.message
        if not isinstance(event, Event):
            return
        base = self._topics.source(delivery.record.daemon, event.source, event.owner)
        picture = delivery.picture
        if picture is not None and picture.jpeg:
            topic = picture_topic(base)
            if self._context.is_trial:
                yield Beside(topic, picture.jpeg, is_retained=False)
            else:
                about = about_of(delivery.record.daemon, event.source, event.owner)
                self._retained.note(topic, about)
                if about not in self._known:
                    self._version = -1  # it is cleared again if the source was removed
                yield Beside(topic, picture.jpeg, is_retained=True)
        if self._discovery is not None:
            yield Beside(event_topic(base), event_body(delivery, event), is_retained=False)

    def _adopt(self, claim: Claim) -> None:
        """Enter what another bridge has left: it is cleared once every daemon has told what there is."""
        prefix = self._topics.prefix
        filters = [f"{prefix}/sources/#", f"{prefix}/daemons/#"]
        if self._discovery is not None:
            filters.append(self._discovery.all)
        is_heard = self._link.await_all([self._link.subscribe(topic) for topic in filters], _ANSWER_S)
        for topic in self._heard(claim):
            if topic.startswith(f"{prefix}/") or (self._discovery is not None and self._discovery.is_own(topic)):
                self._retained.note(topic, About(""))
        for topic in filters:
            self._link.unsubscribe(topic)
        if is_heard:
            self._context.memory.write(_ADOPTION, None)

    def _heard(self, claim: Claim) -> Iterator[str]:
        """Topics that come until the broker is quiet."""
        clock = self._context.clock
        quiet_ns = clock.monotonic_ns() + _QUIET_NS
        end_ns = clock.monotonic_ns() + round(_ANSWER_S * 1e9)
        while clock.monotonic_ns() < min(quiet_ns, end_ns):
            while self._link.inbox:
                message = self._link.inbox.popleft()
                if not claim.heed(message) and message.was_retained:
                    quiet_ns = clock.monotonic_ns() + _QUIET_NS
                    yield message.topic
            self._link.pump(0.05)

    def _compare(self, states: States) -> None:
        wanted: dict[str, Wanted] = {}
        for name in self._context.daemons:
            wanted |= self._of_daemon(states.daemons.get(name) or DaemonState(name))
        known: set[About] = set()
        for state in newest(states).values():
            known.add(about_of(state.daemon, state.source, owner_of(state)))
            if self._sources is None or state.source in self._sources:
                wanted |= self._of_source(state, states.daemons.get(state.daemon))
        if self._unknown_ns is None:
            wanted |= unknown_topics(self._topics, self._retained, states)
        for topic, about in self._retained:
            if topic not in wanted and self._is_over(about, states):
                self._give_up(topic, is_free=True)
        for about in self._board.sources:
            if about not in known and self._is_over(about, states):
                self._board.forget(about)
                self._views.pop(about, None)
        self._known = known
        self._retained.want(wanted)

    def _of_daemon(self, state: DaemonState) -> Iterator[tuple[str, Wanted]]:
        if self._discovery is not None:
            topic, body = self._discovery.daemon(state)
            yield topic, Wanted(About(state.daemon), body)
        yield from daemon_topics(self._topics, state)

    def _of_source(self, state: SourceState, daemon: DaemonState | None) -> dict[str, Wanted]:
        about, view = about_of(state.daemon, state.source, owner_of(state)), self._board.view(state, daemon)
        known = self._views.get(about)
        if known is None or not known[0].is_told_as(view):
            known = self._views[about] = view, dict(self._topics_of(about, view))
        return known[1]

    def _topics_of(self, about: About, view: SourceView) -> Iterator[tuple[str, Wanted]]:
        if self._discovery is not None:
            topic, body = self._discovery.source(view)
            self._departed.keep(topic, body)
            yield topic, Wanted(about, body)
        yield from source_topics(view)
        if self._has_pictures:
            yield picture_topic(view.base), Wanted(about, None)

    def _is_over(self, about: About, states: States) -> bool:
        """Nobody has it any more: its daemon is there and does not know it, or is not in the bridge."""
        if not about.daemon:
            return states.is_complete
        # A topic of a daemon itself is of an earlier configuration.
        return about.daemon not in self._context.daemons or not about.source or states.knows_all_of(about.daemon)
