"""A fleet to be hurt: etcd, daemons with the fake detector, each behind a proxy, and witnesses."""

from __future__ import annotations

import os
import random
import signal
import struct
import subprocess
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from time import monotonic, sleep

import psutil

from daemon.fleet.etcd_coordinator import EtcdCoordinator
from daemon.fleet.port import CoordinatorAwayError
from daemon.fleet.records import FleetView, SourceRecord, StreamFormat
from daemon.fleet_config import OnCoordinatorLoss
from lookout.client import Subscriber
from tests.fleet.etcd_server import EtcdCluster, EtcdServer
from tests.fleet.trials.observers import OwnersInOrder, Reader
from tests.support.daemon import ROOT, Lookout
from tests.support.ports import free_port
from tests.support.proxy import Proxy

FLEET = "trial"
PATIENCE_S = 120.0
_CLOCK = ROOT / "tests" / "support" / "stepped_clock.c"


class Host:
    """A member, and its way to the coordinator.

    Attributes:
        name: of the member.
        proxies: one for each server of etcd.
        endpoint: of its messages.
    """

    def __init__(self, folder: Path, name: str, servers: Sequence[EtcdServer], fleet: dict[str, object]) -> None:
        self.name, self.folder = name, folder
        folder.mkdir(parents=True)
        self.proxies = [Proxy(server.port) for server in servers]
        self._fleet = {
            "coordinator": "etcd://" + ",".join(f"127.0.0.1:{proxy.port}" for proxy in self.proxies),
            "name": FLEET,
            "member": name,
            "address": "127.0.0.1",
            **fleet,
        }
        self.endpoint = f"tcp://127.0.0.1:{free_port()}"
        self._clock = folder / "clock"
        self._clock.write_bytes(bytes(8))
        self.environment: dict[str, str] = {}
        self.daemon: Lookout | None = None
        self.runs = 0

    @property
    def is_running(self) -> bool:
        return self.daemon is not None and self.daemon.process.poll() is None

    def start(self) -> None:
        if self.is_running:
            return
        self.close_daemon()
        self.runs += 1
        folder = self.folder / str(self.runs)
        folder.mkdir()
        config: dict[str, object] = {
            "sources": [],
            "model": {"path": "none.onnx", "backend": "fake"},
            "publisher": {"endpoint": self.endpoint},
            "fleet": self._fleet,
            "capture_processes": 0,
        }
        self.daemon = Lookout(folder, config, {"STEPPED_CLOCK": str(self._clock), **self.environment})

    def processes(self) -> list[psutil.Process]:
        """The daemon and its children, the daemon first."""
        if self.daemon is None or not self.is_running:
            return []
        with suppress(psutil.NoSuchProcess):
            return [self.daemon.inspect, *self.daemon.inspect.children(recursive=True)]
        return []

    def kill(self, *, whole: bool = False) -> None:
        """Kill the daemon; `whole`: its children too, as a host that loses its power does."""
        for process in self.processes()[: None if whole else 1]:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        if self.daemon is not None:
            self.daemon.process.wait(PATIENCE_S)

    def keeper(self) -> psutil.Process | None:
        """The process that renews the lease."""
        for process in self.processes()[1:]:
            with suppress(psutil.NoSuchProcess):
                if "daemon.fleet.keeper" in process.cmdline():
                    return process
        return None

    def pause(self, *, whole: bool = True) -> None:
        self._signal(signal.SIGSTOP, whole=whole)

    def resume(self) -> None:
        self._signal(signal.SIGCONT, whole=True)

    def _signal(self, number: signal.Signals, *, whole: bool) -> None:
        for process in self.processes()[: None if whole else 1]:
            with suppress(psutil.NoSuchProcess, ProcessLookupError):
                os.kill(process.pid, number)

    def step_clock(self, seconds: int) -> None:
        with self._clock.open("r+b") as file:  # never empty: the processes have it in their memory
            file.write(struct.pack("q", seconds))

    def swallow(self, *, held: bool) -> None:
        for proxy in self.proxies:
            proxy.held = held

    def stop(self) -> None:
        """A clean stop."""
        if self.daemon is not None and self.is_running:
            self.resume()
            self.daemon.stop(PATIENCE_S)

    def close_daemon(self) -> None:
        if self.daemon is not None:
            self.resume()
            self.kill(whole=True)
            self.daemon.close()
            self.daemon = None

    def close(self) -> None:
        self.close_daemon()
        for proxy in self.proxies:
            proxy.close()


class World:
    """Attributes:
    hosts, guests: members that stay, and members that are added in the middle of a history; by name.
    chance: decides everything that is random.
    lives: what became of guests.
    """

    def __init__(
        self,
        folder: Path,
        *,
        members: int = 3,
        guests: int = 0,
        sources: int = 300,
        fps: float = 1.0,
        ttl_s: float = 2.0,
        on_loss: OnCoordinatorLoss = "stop",
        servers: int = 1,
        connects_per_s: float = 1000.0,
        seed: int = 0,
    ) -> None:
        self.folder, self.chance = folder, random.Random(seed)
        self.sources = [f"cam-{number:03}" for number in range(sources)]
        self._fps, self._servers = fps, servers
        self._fleet: dict[str, object] = {
            "ttl_s": ttl_s,
            "on_coordinator_loss": on_loss,
            "connects_per_s": connects_per_s,
        }
        self._stack = ExitStack()
        self.hosts: dict[str, Host] = {}
        self.guests: dict[str, Host] = {}
        self.lives: Counter[str] = Counter()
        self._names = [f"host{number}/gpu0" for number in range(members)]
        self._guest_names = [f"guest{number}/gpu0" for number in range(guests)]
        self._free_guests = [*self._guest_names]
        self.environment: dict[str, str] = {}

    def __enter__(self) -> World:
        try:
            self._build()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _build(self) -> None:
        if self._servers > 1:
            self.cluster = EtcdCluster(self.folder / "etcd")
            self._stack.callback(self.cluster.close)
            self.cluster.start()
            self.servers = self.cluster.servers
        else:
            self.servers = [EtcdServer(self.folder / "etcd")]
            self._stack.callback(self.servers[0].kill)
            self.servers[0].start()
        settings = self.cluster.settings() if self._servers > 1 else self.servers[0].settings()
        self.coordinator = self._stack.enter_context(closing(EtcdCoordinator(settings, FLEET)))
        preload = self.folder / "stepped_clock.so"
        subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "-o", str(preload), str(_CLOCK)], check=True)
        self.environment |= {"LD_PRELOAD": str(preload)}
        for name in self._names:
            self.hosts[name] = self._host(name)
        for name in self._guest_names:
            self.guests[name] = self._host(name)
        self.order = OwnersInOrder(settings, FLEET)
        self._stack.callback(self.order.close)
        self.order.start()
        endpoints = [host.endpoint for host in self.everyone.values()]
        self.reader = Reader(Subscriber(endpoints, kinds=("detections",), high_water_mark=1_000_000))
        self._stack.callback(self.reader.close)
        self.reader.start()
        self.coordinator.put_sources(self._records(), replace=True)

    def _records(self) -> dict[str, SourceRecord]:
        drawn = {"type": "synthetic", "fps": self._fps, "width": 32, "height": 24, "objects": 1}
        picture = StreamFormat(codec="drawn", width=32, height=24, fps=self._fps)
        return {
            source: SourceRecord(config={"id": source, "seed": number, **drawn}, expected=picture)
            for number, source in enumerate(self.sources)
        }

    def _host(self, name: str) -> Host:
        host = Host(self.folder / name.replace("/", "-"), name, self.servers, self._fleet)
        host.environment = self.environment
        self._stack.callback(host.close)
        return host

    @property
    def everyone(self) -> dict[str, Host]:
        return {**self.hosts, **self.guests}

    def take_guest(self) -> Host:
        """One that does not run, for one trouble alone."""
        name = self.chance.choice(self._free_guests)
        self._free_guests.remove(name)
        return self.guests[name]

    def give_back(self, guest: Host) -> None:
        self._free_guests.append(guest.name)

    def start(self) -> None:
        for host in self.hosts.values():
            host.start()
        self.settle()

    def view(self) -> FleetView | None:
        with suppress(CoordinatorAwayError):
            return self.coordinator.view()
        return None

    def settle(self, fresh_s: float = 0.0) -> float:
        """Wait until each source has a running owner and is heard from it; returns the seconds that it took."""
        begun = monotonic()
        self.wait(lambda: self._is_settled(begun - fresh_s), "each source is owned and heard")
        return monotonic() - begun

    def _is_settled(self, since: float) -> bool:
        view = self.view()
        if view is None:
            return False
        running = {name for name, host in self.everyone.items() if host.is_running}
        owners = {source: owned.member for source, owned in view.owned.items()}
        if {*owners} != {*self.sources} or not {*owners.values()} <= running:
            return False
        heard = {source: rows[-1] for source, rows in [*self.reader.heard.items()] if rows}
        return all(
            source in heard and heard[source].epoch == view.owned[source].epoch and heard[source].last >= since
            for source in self.sources
        )

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        until = monotonic() + PATIENCE_S
        while not condition():
            if monotonic() > until:
                raise AssertionError(f"{what}: not within {PATIENCE_S:g} s\n{self.describe()}")
            sleep(0.05)

    def describe(self) -> str:
        view = self.view()
        if view is None:
            return "etcd does not answer"
        owners: dict[str | None, int] = {}
        for source in self.sources:
            owned = view.owned.get(source)
            owners[owned.member if owned else None] = owners.get(owned.member if owned else None, 0) + 1
        reasons = sorted({want.reason for want in view.wants.values() if want.member is None})
        silent = sorted(source for source, seconds in self.reader.silence().items() if seconds > 10)
        return (
            f"members {sorted(view.members)}, owners {owners}, placer {view.placer}, drained {sorted(view.drained)}, "
            f"held {sorted(view.held)}, waiting because of {reasons[:3]}, silent {silent[:5]} of {len(silent)}"
        )

    @property
    def faults(self) -> list[str]:
        """Broken promises."""
        return [*self.order.faults, *self.reader.faults]
