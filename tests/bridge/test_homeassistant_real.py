"""A real Home Assistant, a real daemon with four cameras, a real broker and the bridge as a process."""

from __future__ import annotations

import shutil
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import permutations
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
import yaml

from daemon.bridge.targets.opening import open_target
from daemon.clock import SystemClock
from daemon.config.targets import MqttTarget
from daemon.redact import Secret
from lookout.client import Subscriber
from lookout.messages import Counts, Event
from tests.bridge.mqtt_deaths import BridgeProcess
from tests.bridge.told import Kept, Shown, context, delivery, event, repeated, source, tended, tended_for
from tests.support.daemon import DEMO_MODEL, ROOT, Lookout, wait_until
from tests.support.homeassistant import Found, HomeAssistant
from tests.support.mosquitto import Mosquitto, Reader, retained
from tests.support.ports import free_port

pytestmark = [pytest.mark.long, pytest.mark.needs("mosquitto", "home assistant")]
CAMERAS = ("door", "yard", "gate", "hall")
_PATIENCE_S = 90.0
_OWN_S = 10.0  # from when all of them are up, and Home Assistant is connected: it may wait 10 s before it tries again
_WHOLE = [[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]]


class Watch:
    """What the daemon says of itself: tracks by label in the zone of each source, and all events."""

    def __init__(self, endpoint: str) -> None:
        self.inside: dict[str, dict[str, int]] = {}
        self.events: list[Event] = []
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(endpoint,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._ending.set()
        self._thread.join(30)

    def _run(self, endpoint: str) -> None:
        with Subscriber(endpoint, kinds=("counts", "events")) as subscriber:
            while not self._ending.is_set():
                message = subscriber.receive(0.2)
                if isinstance(message, Counts):
                    known = dict.fromkeys(self.inside.get(message.source, {}), 0)
                    rows = {row.label or "": row.count for row in message.occupancy if row.rule == "lawn"}
                    self.inside[message.source] = known | rows
                elif isinstance(message, Event):
                    self.events.append(message)


class World:
    """All four of them."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._http = folder, free_port()
        self.broker = Mosquitto(folder / "mosquitto")
        self.home = HomeAssistant(folder / "home", self.broker.port)
        (folder / "daemon").mkdir()
        self.daemon = Lookout(folder / "daemon", self._config(CAMERAS))
        self.watch = Watch(self.daemon.endpoint)
        self.bridge = BridgeProcess(self.daemon.config)

    def start(self) -> None:
        self.bridge.start()
        self.home.start()

    def rename(self, cameras: tuple[str, ...]) -> None:
        """Other cameras, in the configuration."""
        whole = yaml.safe_load(self.daemon.config.read_text())
        whole["sources"] = self._config(cameras)["sources"]
        self.daemon.config.write_text(yaml.safe_dump(whole))

    def verbs(self) -> dict[str, tuple[Callable[[], object], Callable[[], None]]]:
        """How each ends, and how it comes again."""
        return {
            "home": (self.home.stop, self.home.start),
            "bridge": (self.bridge.kill, self.bridge.start),
            "broker": (self.broker.stop, self.broker.start),
            "daemon": (self._stop_daemon, self._restart_daemon),
        }

    def is_right(self, found: Found, cameras: tuple[str, ...]) -> bool:
        """Every camera is connected, and has as many in its zone as the daemon says."""
        return all(self._is_camera_right(found, name) for name in cameras)

    def wait_right(self, cameras: tuple[str, ...] = CAMERAS) -> tuple[float, float]:
        """The seconds that it took: from now, and from when Home Assistant had connected as well."""
        begun = monotonic()
        try:
            found = self.home.wait(lambda found: self.is_right(found, cameras), _PATIENCE_S)
        except AssertionError:
            sys.stderr.write(f"the daemon says: {self.watch.inside}\n")
            raise
        ended = monotonic()
        return ended - begun, ended - max(begun, found.connected_at or begun)

    def close(self) -> None:
        self.bridge.kill()
        self.home.kill()
        self.watch.close()
        self.daemon.close()
        self.broker.__exit__()

    def _stop_daemon(self) -> None:
        self.daemon.stop()
        self.watch.inside.clear()

    def _restart_daemon(self) -> None:
        """Until it has told what each camera sees."""
        self.daemon.restart()
        wait_until(lambda: {*self.watch.inside} == {*CAMERAS}, "the daemon is up")

    def _is_camera_right(self, found: Found, name: str) -> bool:
        inside = self.watch.inside.get(name, {})
        return (
            found.state(f"binary_sensor.{name}_connection") == "on"
            and found.state(f"sensor.{name}_frame_rate") not in ("unavailable", "unknown", None)
            and bool(inside)
            and all(
                found.state(f"sensor.{name}_lawn_{label}_count") == str(count)
                and found.state(f"binary_sensor.{name}_lawn_{label}") == ("on" if count else "off")
                for label, count in inside.items()
            )
        )

    def _config(self, cameras: tuple[str, ...]) -> dict[str, Any]:
        folder, zone = self._folder, {"name": "lawn", "type": "zone", "points": _WHOLE}
        drawn = {"type": "synthetic", "fps": 2, "objects": 1, "width": 64, "height": 48, "rules": [zone]}
        target = {
            "name": "home", "type": "mqtt", "url": f"mqtt://127.0.0.1:{self.broker.port}", "homeassistant": True,
            "picture": True,
        }  # fmt: skip
        return {
            "model": {"path": str(DEMO_MODEL), "backend": "fake"},
            "sources": [{"id": name, **drawn} for name in cameras],
            "tracking": {"enabled": True},
            "http": {"enabled": True, "port": self._http, "token": "t0ken-of-this-test"},
            "events": {"journal": str(folder / "journal.sqlite"), "snapshots": {"folder": str(folder / "pictures")}},
            "monitor": {"interval_s": 1},
            "bridge": {"spool": str(folder / "spool.sqlite"), "targets": [target]},
        }


_AUTOMATION = """
script:
  note:
    sequence:
      - event: lookout_told
        event_data: {title: "{{ title }}", message: "{{ message }}", image: "{{ data.image }}"}
automation:
  - use_blueprint:
      path: lookout/notify_with_picture.yaml
      input: {event: event.door_event, picture: image.door_last_event, action: script.note, cooldown: 0,
              late: 86400, labels: [person]}
"""


@pytest.mark.timeout(600)
def test_the_blueprint_tells_of_each_event_once_and_not_when_things_come_back(tmp_path: Path) -> None:
    blueprints = tmp_path / "home" / "blueprints" / "automation" / "lookout"
    now = SystemClock().utc_ns()
    with Mosquitto(tmp_path / "mosquitto") as broker:
        home = HomeAssistant(tmp_path / "home", broker.port, _AUTOMATION)
        blueprints.mkdir(parents=True)
        shutil.copy(ROOT / "deploy" / "homeassistant" / "notify_with_picture.yaml", blueprints)
        target = MqttTarget(
            name="home", url=Secret(f"mqtt://127.0.0.1:{broker.port}"), homeassistant=True, picture=True
        )  # fmt: skip
        board, memory = Shown(), Kept()
        board.show([source()])
        with home, closing(open_target(target, context(memory))) as connection:
            tended(connection, board, lambda: home.wait(bool).state("event.door_event") == "unknown")
            home.wait(lambda found: found.state("automation.lookout_notify_with_the_picture_of_an_event") != "off")
            tended_for(connection, board, 100)  # it subscribes to the topic of events after the entity is there
            connection.deliver([delivery(event(1, at=now), jpeg=b"\xff\xd8")])
            connection.deliver([delivery(event(2, at=now, label="car"))])
            home.wait(lambda found: found.fired_in(found.changes, "event.door_event")[-1:] == ["5f0c2d1e-2"])
            connection.deliver(repeated([delivery(event(1, at=now)), delivery(event(2, at=now, label="car"))]))
            broker.restart()
        home.start()
        with closing(open_target(target, context(memory))) as connection:
            tended(connection, board, lambda: home.wait(bool).state("sensor.door_frame_rate") == "25.0")
            tended_for(connection, board, 100)
            connection.deliver([delivery(event(3, at=now))])
            found = home.wait(lambda found: len(found.told) > 0)
            assert [row["message"] for row in found.told] == ["person: zone entered yard"]
            assert found.told[0]["image"] == "/api/image_proxy/image.door_last_event"
        home.kill()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    found = World(tmp_path)
    try:
        found.start()
        yield found
    finally:
        found.close()


@pytest.mark.timeout(1800)
def test_states_are_right_after_restarts_in_each_order_and_each_event_fires_once(world: World) -> None:
    world.wait_right()
    verbs, took = world.verbs(), {}
    for pair in permutations(verbs, 2):
        for name in pair:
            verbs[name][0]()
        for name in pair:
            verbs[name][1]()
        whole, took[pair] = world.wait_right()
        sys.stdout.write(f"{' '.join(pair)}: {whole:.1f} s, {took[pair]:.1f} s from Home Assistant's connection on\n")
    assert max(took.values()) < _OWN_S, took
    calm = len(world.watch.events)
    verbs["daemon"][0]()
    verbs["daemon"][1]()  # its cameras see what stands there anew
    world.wait_right()
    events = world.watch.events[calm:]
    assert {event.source for event in events} == {*CAMERAS}
    last = events[-1].id
    found = world.home.wait(lambda found: any(row[3] == last for row in found.changes))
    changes = [*world.home.changes, *found.changes]
    fired = Counter(id for entity in {row[0] for row in changes} for id in Found.fired_in(changes, entity))
    assert {event.id: fired[event.id] for event in events} == dict.fromkeys((event.id for event in events), 1)
    assert [id for id, count in fired.items() if count > 1] == []
    assert all(found.pictures[f"image.{name}_last_event"] for name in CAMERAS)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("away", ["bridge", "home"])
def test_a_camera_that_was_removed_or_renamed_leaves_nothing(world: World, away: str) -> None:
    world.wait_right()
    end, begin = world.verbs()[away]
    end()
    world.daemon.stop()
    world.rename(("door", "yard", "side"))  # gate is removed, and hall is side from now on
    world.daemon.restart()
    if away == "home":
        with Reader(world.broker.port, "lookout/sources/+/state") as reader:
            reader.wait(lambda row: {"lookout/sources/gate/state", "lookout/sources/hall/state"} <= {
                message.topic for message in row.messages if not message.payload})  # fmt: skip
    begin()
    world.home.wait(lambda found: {row["name"] for row in found.devices} == {"Lookout", "door", "yard", "side"})
    world.wait_right(("door", "yard", "side"))
    found = world.home.wait(lambda found: not [name for name in found.entities if "gate" in name or "hall" in name])
    assert not [name for name in found.states if "gate" in name or "hall" in name]
    assert not [topic for topic in retained(world.broker.port, "#") if "gate" in topic or "hall" in topic]
