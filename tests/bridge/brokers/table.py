"""The targets that keep the contract; each adds a row."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.bridge.brokers.harness import BrokerHarness
from tests.bridge.brokers.kafka import KafkaHarness
from tests.bridge.brokers.mqtt import MqttHarness
from tests.bridge.brokers.nats import NatsHarness
from tests.bridge.brokers.redis import RedisHarness

BROKERS: dict[str, Callable[[Path], BrokerHarness]] = {
    "kafka": KafkaHarness,
    "mqtt": MqttHarness,
    "nats": NatsHarness,
    "redis": RedisHarness,
}
