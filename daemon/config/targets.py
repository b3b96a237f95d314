"""Keys of the targets of the bridge."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal, get_args

import msgspec

from daemon.config.brokers import kafka_option_problems, kafka_place, nats_place, plaintext_problem, redis_place
from daemon.config.models import is_name
from daemon.config.mqtt_checks import mqtt_problems
from daemon.config.networks import networks_problem
from daemon.config.push_checks import (
    bot_problems,
    header_problems,
    secret_problems,
    token_problem,
    topic_problem,
    url_problems,
)  # fmt: skip
from daemon.config.section import Section, SourceId
from daemon.config.templates import CLICK_FIELDS, TEXT_FIELDS, template_problem
from daemon.redact import Secret
from daemon.schedule import schedule_problem

NoticeKind = Literal["event", "status", "clip"]
Format = Literal[
    "lookout", "cloudevents", "deepstream-minimal", "deepstream-full", "frigate", "onvif-ej", "onvif-mj"
]  # fmt: skip
PushFormat = Literal["lookout", "cloudevents"]
Topic = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
Fps = Annotated[float, msgspec.Meta(ge=0, le=1000)]


class WhenConfig(Section, frozen=True):
    """Which events and changes of state a target is told. A key that is null leaves nothing out."""

    kinds: list[NoticeKind] = msgspec.field(default_factory=lambda: ["event"])
    """event, status (a source, a store or a daemon is down or up again, recordings have gaps), clip (a video is
    ready)"""
    sources: list[SourceId] | None = None
    """ids"""
    rules: list[str] | None = None
    """of events: names of rules; events without a rule are left out"""
    labels: list[str] | None = None
    """of events: such as [person, car]"""
    events: list[str] | None = None
    """of events: such as [zone.entered, line.crossed], or [zone] for all of a kind"""
    attributes: list[str] | None = None
    """of events: NAME or NAME=VALUE; one of them is enough"""
    active: str | None = None
    """times of the week, such as "mon-fri 22:00-06:00; sat,sun"; null: always"""
    timezone: str | None = None
    """of these times, by its IANA name"""

    def problems(self) -> Iterator[str]:
        """Each with the key."""
        if not self.kinds:
            yield "kinds: is empty: nothing would be told"
        for key in ("rules", "labels", "events", "attributes"):
            if "event" not in self.kinds and getattr(self, key) is not None:
                yield f"{key}: is of events, which kinds leaves out"
        problem = schedule_problem(self.active, self.timezone)
        if problem is not None:
            yield problem


class TargetBase(Section, frozen=True, kw_only=True):
    name: SourceId
    """letters, digits, '_', '.', '-'; in figures and in the spool"""
    when: WhenConfig = WhenConfig()
    """which events: {kinds: [event, status], sources: [door], rules: [porch], labels: [person], events: [zone.entered],
    attributes: [colour=red], active: "22:00-06:00"}"""
    stale_s: Annotated[float, msgspec.Meta(ge=1, le=31_536_000)] | None = None
    """records that are older are not told any more, and counted as stale; null: however late"""

    @property
    def wants_pictures(self) -> bool:
        """Of events, with them."""
        return False

    @property
    def detections_fps(self) -> float:
        """Of each source; 0 for none."""
        return 0.0

    def problems(self) -> Iterator[str]:
        """What cannot be, each with the key and what to write instead; types say more of it."""
        if not is_name(self.name):
            yield f"name: {self.name!r} may hold letters, digits, '_', '.' and '-' only"
        yield from (f"when.{problem}" for problem in self.when.problems())


class WireBase(TargetBase, frozen=True, kw_only=True):
    """Keys of targets that programs read."""

    format: Format = "lookout"
    """lookout (as on the wire), cloudevents, deepstream-minimal, deepstream-full, frigate, onvif-ej, onvif-mj"""
    figures_fps: Fps = 0.0
    """messages of detections a second of each source, at most once and the newest first; 0: none; onvif-mj and
    deepstream-minimal are of detections alone"""

    @property
    def detections_fps(self) -> float:
        return self.figures_fps


class MqttTarget(WireBase, frozen=True, tag="mqtt", kw_only=True):
    """A broker of MQTT 5 or 3.1.1, and Home Assistant behind it."""

    url: Secret
    """mqtts://HOST:8883, mqtt://HOST:1883 or ws(s)://; without a password in it"""
    user: Secret | None = None
    """of the broker"""
    password: Secret | None = None
    """such as "${MQTT_PASSWORD}", which is taken from the environment"""
    password_file: Path | None = None
    """or the file that holds it, read at each connection"""
    ca_file: Path | None = None
    """PEM, of the broker's certificate; null: the system's"""
    certificate_file: Path | None = None
    """PEM, the bridge's own, with key_file"""
    key_file: Path | None = None
    """PEM"""
    allow_plaintext: bool = False
    """mqtt:// to another machine: password and events can be read on the way"""
    prefix: Topic = "lookout"
    """of all topics: PREFIX/events/SOURCE, PREFIX/sources/SOURCE/state and so on; two bridges need two"""
    qos: Literal[0, 1, 2] = 1
    """of events; 0: they may be lost on the way, and are counted as delivered"""
    homeassistant: bool = False
    """make devices and entities in Home Assistant, one device a source"""
    picture: bool = False
    """the picture of the last event of each source, retained at PREFIX/sources/SOURCE/picture, and in Home Assistant"""
    discovery_prefix: Topic = "homeassistant"
    """as Home Assistant has it"""

    @property
    def wants_pictures(self) -> bool:
        return self.picture

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        yield from mqtt_problems(self)


class KafkaTarget(WireBase, frozen=True, tag="kafka", kw_only=True):
    """Kafka, and what speaks its protocol."""

    brokers: Annotated[list[str], msgspec.Meta(min_length=1, max_length=32)]
    """such as ["k1:9093"]"""
    topic: Topic = "lookout.{kind}"
    """{kind}, {source} and {daemon} are replaced"""
    options: dict[str, Secret] = {}
    """librdkafka's own, such as {security.protocol: SASL_SSL, sasl.mechanism: SCRAM-SHA-512, sasl.username: lookout,
    sasl.password: "${KAFKA_PASSWORD}"}"""
    password_file: Path | None = None
    """or the file that holds sasl.password, read at each connection"""
    allow_plaintext: bool = False
    """to another machine without TLS"""

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        places = []
        for index, broker in enumerate(self.brokers):
            try:
                places.append(kafka_place(broker))
            except ValueError as error:
                yield f"brokers[{index}]: {error}"
        if self.password_file is not None and "sasl.password" in self.options:
            yield "password_file: options has sasl.password as well: leave one of them out"
        yield from kafka_option_problems(self.options, places, self.allow_plaintext)


class NatsTarget(WireBase, frozen=True, tag="nats", kw_only=True):
    """A stream of NATS JetStream."""

    servers: Annotated[list[Secret], msgspec.Meta(min_length=1, max_length=32)]
    """such as ["tls://n1:4222"]"""
    subject: Topic = "lookout.{kind}.{source}"
    """{kind}, {source} and {daemon} are replaced; a stream must be there that takes it"""
    user: Secret | None = None
    """of the server"""
    password: Secret | None = None
    """likewise"""
    password_file: Path | None = None
    """or the file that holds it, read at each connection"""
    credentials_file: Path | None = None
    """or a .creds file, read at each connection"""
    ca_file: Path | None = None
    """PEM; null: the system's"""
    certificate_file: Path | None = None
    """PEM, the bridge's own, with key_file"""
    key_file: Path | None = None
    """PEM"""
    allow_plaintext: bool = False
    """nats:// to another machine"""

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        for index, server in enumerate(self.servers):
            try:
                place = nats_place(server.reveal())
            except ValueError as error:
                yield f"servers[{index}]: {error}"
                continue
            refusal = plaintext_problem(place, f"servers[{index}]", "tls://")
            if refusal and not self.allow_plaintext:
                yield refusal
        yield from _login_problems(self)
        if self.credentials_file is not None and (self.user or self.password or self.password_file):
            yield "credentials_file: is given beside user and password: leave one of them out"
        for bad in (" ", "\t", "*", ">", ".."):
            if bad in self.subject or self.subject.startswith(".") or self.subject.endswith("."):
                yield f"subject: {self.subject!r} is no subject to publish to: write names between single dots"
                return


class RedisTarget(WireBase, frozen=True, tag="redis", kw_only=True):
    """A stream of Redis or Valkey."""

    url: Secret
    """rediss://HOST:6379/0, redis://, or unix:///PATH; without a password in it"""
    user: Secret | None = None
    """of the server"""
    password: Secret | None = None
    """likewise"""
    password_file: Path | None = None
    """or the file that holds it, read at each connection"""
    ca_file: Path | None = None
    """PEM; null: the system's"""
    certificate_file: Path | None = None
    """PEM, the bridge's own, with key_file"""
    key_file: Path | None = None
    """PEM"""
    allow_plaintext: bool = False
    """redis:// to another machine"""
    stream: Topic = "lookout:{kind}"
    """{kind}, {source} and {daemon} are replaced"""
    max_length: Annotated[int, msgspec.Meta(ge=1, le=1_000_000_000)] = 100_000
    """entries that a stream keeps, about"""

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        try:
            place = redis_place(self.url.reveal())
        except ValueError as error:
            yield f"url: {error}"
            return
        refusal = plaintext_problem(place, "url", "rediss://")
        if refusal and not self.allow_plaintext:
            yield refusal
        yield from _login_problems(self)
        if self.user is not None and self.password is None and self.password_file is None:
            yield "user: is given without password: set password or password_file"


def _login_problems(target: NatsTarget | RedisTarget) -> Iterator[str]:
    if target.password is not None and target.password_file is not None:
        yield "password_file: is given beside password: leave one of them out"
    if (target.certificate_file is None) != (target.key_file is None):
        missing = "key_file" if target.key_file is None else "certificate_file"
        yield f"{missing}: is missing: certificate_file and key_file belong together"


class PushBase(TargetBase, frozen=True, kw_only=True):
    """Keys of targets that people read, and of webhooks: one request, with the picture in it."""

    picture: bool = False
    """send the picture of the event; it is waited for a second at most"""
    cooldown_s: Annotated[float, msgspec.Meta(ge=0, le=86_400)] = 0.0
    """between two events of a source and rule; those that come sooner are left out, and counted as thinned"""
    timeout_s: Annotated[float, msgspec.Meta(ge=0.1, le=10)] = 10.0
    """of a record, with all that is asked and answered"""
    allow: list[str] = []
    """networks beside the public internet, such as [10.0.0.0/8]; loopback, private and link-local addresses are
    refused otherwise"""
    ca_file: Path | None = None
    """PEM; null: the system's"""
    allow_plaintext: bool = False
    """http:// beyond loopback"""

    @property
    def wants_pictures(self) -> bool:
        return self.picture

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        problem = networks_problem(self.allow)
        if problem is not None:
            yield problem


class NtfyTarget(PushBase, frozen=True, tag="ntfy", kw_only=True):
    """A topic of ntfy, on its own server or on ntfy.sh: a notification on the phone."""

    url: Secret
    """https://SERVER/TOPIC; everybody that knows the topic may read it"""
    token: Secret | None = None
    """such as "${NTFY_TOKEN}", which is taken from the environment"""
    token_file: Path | None = None
    """or the file that holds it, read for each request"""
    text: Annotated[str, msgspec.Meta(min_length=1, max_length=1000)] = "{label} at {source}, {time}"
    """{label}, {source}, {rule}, {event}, {time}, {daemon} and {reason} are replaced"""
    click: Annotated[str, msgspec.Meta(max_length=1000)] | None = None
    """a URL that a touch opens, such as "https://cams.example/recordings/hall/{source}?at={at}"; {source}, {id}, {at}
    and {daemon} are replaced"""
    priority: Annotated[int, msgspec.Meta(ge=1, le=5)] = 3
    """1 to 5"""

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        yield from url_problems("url", self.url.reveal(), self.allow, allow_plaintext=self.allow_plaintext)
        yield from filter(
            None,
            (
                topic_problem(self.url.reveal()),
                token_problem("token", self.token),
                template_problem("text", self.text, TEXT_FIELDS),
                template_problem("click", self.click or "", CLICK_FIELDS),
            ),
        )
        if self.token is not None and self.token_file is not None:
            yield "token: set one of token and token_file"


class TelegramTarget(PushBase, frozen=True, tag="telegram", kw_only=True):
    """A chat of Telegram, through a bot."""

    token: Secret
    """of the bot, such as "${BOT_TOKEN}", which is taken from the environment"""
    chat: str
    """its id"""
    text: Annotated[str, msgspec.Meta(min_length=1, max_length=1000)] = "{label} at {source}, {time}"
    """{label}, {source}, {rule}, {event}, {time}, {daemon} and {reason} are replaced"""
    api: str = "https://api.telegram.org"
    """of a Bot API server of your own"""

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        yield from url_problems("api", self.api, self.allow, allow_plaintext=self.allow_plaintext)
        yield from bot_problems(self.token, self.chat)
        problem = template_problem("text", self.text, TEXT_FIELDS)
        if problem is not None:
            yield problem


class WebhookTarget(PushBase, frozen=True, tag="webhook", kw_only=True):
    """A POST to a URL, signed as Standard Webhooks has it."""

    url: Secret
    """https://HOST/PATH"""
    secrets: Annotated[list[Secret], msgspec.Meta(max_length=4)] = []
    """whsec_... as Standard Webhooks has them: each signs, so that a new one can replace an old one"""
    secrets_file: Path | None = None
    """or a file that holds them, a line each, read for each request"""
    headers: dict[str, Secret] = {}
    """further headers, such as {Authorization: "Bearer ${HOOK}"}"""
    body: PushFormat = "lookout"
    """lookout (as on the wire) or cloudevents"""

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        yield from url_problems("url", self.url.reveal(), self.allow, allow_plaintext=self.allow_plaintext)
        yield from secret_problems(self.secrets)
        yield from header_problems(self.headers)
        if self.secrets and self.secrets_file is not None:
            yield "secrets: set one of secrets and secrets_file"


class FileTarget(WireBase, frozen=True, tag="file", kw_only=True):
    """A file of lines, for a collector that follows it."""

    path: Path
    """of lines of JSON; logrotate may move it away"""


TargetConfig = (
    MqttTarget | KafkaTarget | NatsTarget | RedisTarget | NtfyTarget | TelegramTarget | WebhookTarget | FileTarget
)
TARGET_KINDS = get_args(TargetConfig)
