"""Home Assistant: one device a camera, found by itself.

The documents are those of its device discovery (homeassistant/components/mqtt/schemas.py). Values come from topics of
their own, so no name of a source, a rule or a label is ever part of a template.

The event and the picture have no availability. They tell of the past, which a broken connection does not change; and an
entity that comes back from `unavailable` would look to an automation like an event.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta, timezone
from typing import Any

import msgspec

from daemon import __version__
from daemon.bridge.mqtt.board import SourceView, line_topic, owner_of, picture_topic, zone_topic
from daemon.bridge.mqtt.topics import Topics, place
from daemon.bridge.records import Delivery
from daemon.bridge.states import DaemonState
from lookout.messages import Event

BIRTH = b"online"  # Home Assistant has started
SPREAD_S = 5.0  # all that is told after it, so that many bridges do not answer at once
EVENT_TYPES = (
    "object.appeared", "object.left", "zone.entered", "zone.dwell", "zone.left", "line.crossed", "gate.passed",
    "crowd.over", "crowd.under", "attribute.settled", "attribute.changed",
)  # fmt: skip
_PLAIN = re.compile(r"[A-Za-z0-9_]")
_NONE = "-z"  # no escape looks like it
_ORIGIN = {"name": "Lookout", "sw_version": __version__}
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
# An event that is told again after a broken connection is left out if the entity, `this`, has had it.
_ONCE = (
    "{% if value_json.is_repeated and this is defined and this.attributes.daemon | default('') == value_json.daemon"
    " and this.attributes.number | default(0) >= value_json.number %}{% else %}{{ value }}{% endif %}"
)


def ident(*names: str | None) -> str:
    """Names as one id of the letters that Home Assistant takes. Different names never give the same one."""
    return "--".join(_NONE if name is None else "".join(map(_sign, name)) for name in names)


class Discovery:
    """Makes the documents, and topics of them.

    Args:
        prefix: Home Assistant's own.
        has_pictures: pictures of events are told.
    """

    def __init__(self, topics: Topics, prefix: str, *, has_several: bool, has_pictures: bool) -> None:
        self._topics, self._prefix = topics, prefix
        self._has_several, self._has_pictures = has_several, has_pictures
        self.birth = f"{prefix}/status"

    def daemon(self, state: DaemonState) -> tuple[str, bytes]:
        """Topic and document of a daemon."""
        id, base = ident(self._topics.prefix, state.daemon), self._topics.daemon(state.daemon)
        name = f"Lookout {state.daemon}" if self._has_several else "Lookout"
        bridge = [{"topic": self._topics.bridge}]
        return self._document(
            id,
            {"name": name, "model": "daemon"},
            {
                "connectivity": _connectivity(f"{base}/state", "online", bridge),
                "fps": _fps(f"{base}/fps", [*bridge, {"topic": f"{base}/state"}]),
            },
        )

    def source(self, view: SourceView) -> tuple[str, bytes]:
        """Topic and document of a source."""
        state, base = view.state, view.base
        id = ident(self._topics.prefix, place(state.daemon, owner_of(state)), state.source)
        bridge = {"topic": self._topics.bridge}
        here = [bridge, {"topic": f"{base}/availability"}]
        daemon = [bridge, {"topic": f"{self._topics.daemon(state.daemon)}/state"}]
        device = {"name": state.source, "model": "camera", "via_device": ident(self._topics.prefix, state.daemon)}
        return self._document(id, device, dict(self._components(view, here, daemon)))

    @property
    def all(self) -> str:
        """A filter of the topics of all documents, other programs' too."""
        return f"{self._prefix}/device/+/config"

    def is_own(self, topic: str) -> bool:
        """Whether a topic is one of this prefix's documents."""
        return topic.startswith(f"{self._prefix}/device/{ident(self._topics.prefix)}--")

    def _components(self, view: SourceView, here: _Topics, daemon: _Topics) -> Iterator[tuple[str, dict[str, Any]]]:
        base = view.base
        yield "connectivity", _connectivity(f"{base}/state", "up", daemon)
        yield "fps", _fps(f"{base}/fps", here)
        event = {"name": "Event", "state_topic": event_topic(base), "event_types": EVENT_TYPES, "value_template": _ONCE}
        yield "event", _component("event", event, ())
        picture = {"name": "Last event", "image_topic": picture_topic(base), "content_type": "image/jpeg"}
        # A component of a platform alone removes what was there before.
        yield "picture", _component("image", picture, ()) if self._has_pictures else {"platform": "image"}
        for zone in view.rows.zones:
            topic, key = zone_topic(base, zone), ident(zone.rule, zone.label)
            name = " ".join(filter(None, zone)) or "Occupancy"
            occupied = {
                "name": name,
                "state_topic": topic,
                "device_class": "occupancy",
                "value_template": "{{ 'ON' if value | int(0) > 0 else 'OFF' }}",
            }
            yield f"occupancy--{key}", _component("binary_sensor", occupied, here)
            count = {"name": f"{name} count", "state_topic": topic, "state_class": "measurement"}
            yield f"count--{key}", _component("sensor", count, here)
        for line in view.rows.lines:
            name = " ".join(filter(None, (line.rule, line.direction, line.label)))
            total = {"name": name, "state_topic": line_topic(base, line), "state_class": "total_increasing"}
            yield f"total--{ident(*line)}", _component("sensor", total, here)

    def _document(self, id: str, device: Mapping[str, str], components: dict[str, dict[str, Any]]) -> tuple[str, bytes]:
        for key, component in components.items():
            if len(component) > 1:
                component["unique_id"] = f"{id}--{key}"
        document = {
            "device": {"identifiers": [id], "manufacturer": "Lookout", **device},
            "origin": _ORIGIN,
            "qos": 1,
            "components": components,
        }
        return f"{self._prefix}/device/{id}/config", msgspec.json.encode(document)


def event_topic(base: str) -> str:
    """Never retained: an entity fires when a message comes."""
    return f"{base}/event"


def event_body(delivery: Delivery, event: Event) -> bytes:
    """An event as Home Assistant's event entity has it: its type, and attributes."""
    found = {
        "event_type": f"{event.kind}.{event.phase}",
        "id": event.id,
        "number": event.number,
        "at": (_EPOCH + timedelta(microseconds=event.at // 1000)).isoformat(timespec="milliseconds"),
        "daemon": delivery.record.daemon,
        "source": event.source,
        "rule": event.rule,
        "label": event.label,
        "direction": event.direction,
        "track": event.track,
        "count": event.count,
        "dwell_s": None if event.dwell is None else round(event.dwell / 1e9, 3),
        "attribute": None if event.attribute is None else event.attribute.name,
        "value": None if event.attribute is None else event.attribute.value,
        "snapshot": event.snapshot,
        "clip": event.clip,
    }
    row = {key: value for key, value in found.items() if value is not None}
    return msgspec.json.encode({**row, "is_repeated": delivery.is_repeated})


_Topics = list[dict[str, str]]


def _component(platform: str, keys: Mapping[str, Any], availability: _Topics | tuple[()]) -> dict[str, Any]:
    found: dict[str, Any] = {"platform": platform, **keys}
    if availability:
        found |= {"availability": availability, "availability_mode": "all"}
    return found


def _connectivity(topic: str, up: str, availability: _Topics) -> dict[str, Any]:
    keys = {
        "name": "Connection",
        "state_topic": topic,
        "device_class": "connectivity",
        "entity_category": "diagnostic",
        "value_template": f"{{{{ 'ON' if value == '{up}' else 'OFF' }}}}",
    }
    return _component("binary_sensor", keys, availability)


def _fps(topic: str, availability: _Topics) -> dict[str, Any]:
    keys = {
        "name": "Frame rate",
        "state_topic": topic,
        "unit_of_measurement": "fps",
        "state_class": "measurement",
        "entity_category": "diagnostic",
    }
    return _component("sensor", keys, availability)


def _sign(sign: str) -> str:
    if _PLAIN.fullmatch(sign):
        return sign
    return "".join(f"-{byte:02x}" for byte in sign.encode(errors="surrogatepass"))
