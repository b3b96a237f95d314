"""The bridge: a spool, a feed for each daemon, and a thread for each target."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import msgspec
import structlog

from daemon.bridge import account as accounts
from daemon.bridge.account import SpoolMemory
from daemon.bridge.feed import Feed
from daemon.bridge.notices import NoticeBook
from daemon.bridge.push.cooldown import Cooldown
from daemon.bridge.push.pictures import EventPictures
from daemon.bridge.records import Entry
from daemon.bridge.report import BridgeReport
from daemon.bridge.spool import Spool
from daemon.bridge.spool_file import Text
from daemon.bridge.states import StateBoard
from daemon.bridge.targets.opening import TargetContext, open_target
from daemon.bridge.worker import Helpers, Open, Target
from daemon.clock import Clock
from daemon.config.bridge import BridgeConfig
from daemon.config.targets import PushBase, TargetConfig
from daemon.errors import ConfigError, LookoutError
from daemon.files import state_folder
from daemon.peers.addresses import DaemonAddress
from daemon.peers.api import DaemonApi
from daemon.system.stop_token import StopToken
from lookout.epochs import Epochs

log = structlog.get_logger(__name__)
_TICK_S = 1.0
_OWNER, _ID, _NOTICES = "bridge", "id", "notices"
_STOP = {"targets": 1.2, "interrupted": 0.5, "feeds": 0.3, "spool": 0.8}  # seconds; a child has three
_RELOAD_S = 3.0  # for a target to end


@dataclass(frozen=True)
class Reloaded:
    """
    Attributes:
        targets: names of those that are new, are connected anew, or are gone.
        later: keys that take a restart, such as bridge.port.
    """

    targets: Sequence[str] = ()
    later: Sequence[str] = ()


@dataclass(frozen=True)
class _Running:
    target: Target
    config: TargetConfig


class Bridge:
    """
    Args:
        addresses: of the daemons.
        open_connection: connects a target; tests give another.

    Raises:
        ConfigError: the spool cannot be used.
    """

    def __init__(
        self,
        config: BridgeConfig,
        addresses: Sequence[DaemonAddress],
        clock: Clock,
        open_connection: Open = open_target,
    ) -> None:
        self._config, self._addresses, self._clock = config, addresses, clock
        self._open = open_connection
        self._guard = threading.Lock()  # of start, reload and stop
        self._ending = StopToken()
        names = [address.name for address in addresses]
        with ExitStack() as undo:
            spool = self._spool = Spool(spool_path(config), config.spool_mib, clock)
            undo.callback(spool.close, 1.0)
            self._id = self._known_id()
            self._states, self._epochs = StateBoard(names), Epochs()
            self._notices = NoticeBook(config.status, names, clock)
            self._restore_notices()
            self._feeds = [
                Feed(address, spool, self._states, self._notices, self._epochs, clock) for address in addresses
            ]
            self._pictures = EventPictures({address.name: DaemonApi(address) for address in addresses}, clock)
            self._running: dict[str, _Running] = {}
            self._forget_removed()
            for target in config.targets:
                self._add(target)
            undo.pop_all()
        self._ticker = threading.Thread(target=self._tick, name="feeds", daemon=True)

    def start(self) -> None:
        self._spool.start()
        self._show_figures()
        for running in self._running.values():
            running.target.start()
        for feed in self._feeds:
            feed.start()
        self._ticker.start()

    def reload(self, config: BridgeConfig) -> Reloaded:
        """Use other targets: those that have changed are connected anew, and go on where they were.

        Raises:
            LookoutError: it ends; nothing has changed.
        """
        with self._guard:
            if self._ending.is_set:
                raise LookoutError("the bridge ends")
            wanted = {target.name: target for target in config.targets}
            changed = [name for name, row in self._running.items() if wanted.get(name) != row.config]
            new = [name for name in wanted if name not in self._running]
            ending = [self._running.pop(name).target for name in changed]
            for target in ending:
                target.request_stop()
            for target in self._finished(ending, _RELOAD_S):
                target.interrupt()
            for target in ending:
                if not target.finish(0.0):
                    log.warning("a target does not end: it is left behind", target=target.config.name)
            self._config = msgspec.structs.replace(self._config, targets=config.targets)
            self._forget_removed()
            for wanted_target in config.targets:
                if wanted_target.name not in self._running:
                    self._add(wanted_target).start()
            self._show_figures()
            log.info("the bridge was reloaded", targets=[*self._running], changed=changed)
        later = [
            f"bridge.{name}"
            for name in ("daemons", "spool", "spool_mib", "status", "port")
            if getattr(config, name) != getattr(self._config, name)
        ]
        return Reloaded([*changed, *new], later)

    def stop(self) -> bool:
        """End within some five seconds: what is under way is confirmed or comes again. Whether all has ended in order;
        a second call does nothing."""
        with self._guard:
            if self._ending.is_set:
                return True
            self._ending.set()
        self._pictures.close()
        targets = [running.target for running in self._running.values()]
        for feed in self._feeds:
            feed.request_stop()
        for target in targets:
            target.request_stop()
        overdue = self._finished(targets, _STOP["targets"])
        for target in overdue:
            target.interrupt()
        overdue = self._finished(overdue, _STOP["interrupted"])
        until = self._clock.monotonic_ns() + round(_STOP["feeds"] * 1e9)
        for feed in self._feeds:
            feed.close(max(0.0, (until - self._clock.monotonic_ns()) / 1e9))
        if self._ticker.ident is not None:
            self._ticker.join(_STOP["feeds"])
        for target in overdue:
            log.warning("a target does not end: it is left behind", target=target.config.name)
        return self._spool.close(_STOP["spool"]) and not overdue

    def report(self) -> BridgeReport:
        """The accounts now; any thread."""
        return BridgeReport(
            id=self._id,
            at=self._clock.utc_ns(),
            targets=[running.target.report() for running in [*self._running.values()]],
            feeds=[feed.report() for feed in self._feeds],
            spool=self._spool.report(),
        )

    # ---------------------------------------------------------------------------------------------------------------

    def _finished(self, targets: Sequence[Target], seconds: float) -> list[Target]:
        """Wait so long for all of them; those that have not ended."""
        until = self._clock.monotonic_ns() + round(seconds * 1e9)
        for target in targets:
            if target.ident is not None:
                target.join(max(0.0, (until - self._clock.monotonic_ns()) / 1e9))
        return [target for target in targets if target.is_alive()]

    def _known_id(self) -> str:
        known = self._spool.texts.get(_OWNER, _ID)
        if known is None:
            known = secrets.token_hex(8)
            self._spool.keep(Text(_OWNER, _ID, known))
        return known

    def _add(self, config: TargetConfig) -> Target:
        names = tuple(address.name for address in self._addresses)
        memory = SpoolMemory(self._spool, config.name)
        context = TargetContext(self._id, names, memory, self._clock)
        helpers = Helpers(self._pictures if config.wants_pictures else None, _cooldown_of(config), self._open)
        target = Target(config, self._spool, self._states, context, helpers)
        self._running[config.name] = _Running(target, config)
        return target

    def _forget_removed(self) -> None:
        """Records that wait for targets which the configuration has no more are given up, and the log says how many."""
        wanted = {target.name for target in self._config.targets}
        for name in accounts.known_targets(self._spool):
            if name not in wanted:
                waited = accounts.forget(self._spool, name)
                log.warning("a target was removed: what waited for it is given up", target=name, records=waited)

    def _show_figures(self) -> None:
        boxes = [row.target.figures for row in self._running.values() if row.target.figures.is_wanted]
        for feed in self._feeds:
            feed.show_to(boxes)

    def _restore_notices(self) -> None:
        text = self._spool.texts.get(_OWNER, _NOTICES)
        if text is None:
            return
        try:
            self._notices.restore(msgspec.json.decode(text))
        except (ValueError, msgspec.MsgspecError) as error:
            log.warning("which troubles were told is not known any more", reason=str(error))

    def _tick(self) -> None:
        """A daemon whose API does not answer holds up no other one for longer than its time limit."""
        kept = self._spool.texts.get(_OWNER, _NOTICES)
        while not self._clock.wait(self._ending, _TICK_S):
            try:
                for feed in self._feeds:
                    feed.tick()
                kept = self._tell_notices(kept)
            except Exception:
                log.exception("a look at the daemons failed: it is done again")

    def _tell_notices(self, kept: str | None) -> str:
        notices = self._notices.tick()
        text = msgspec.json.encode(self._notices.export()).decode()
        entries = [
            Entry(
                "status", notice.daemon, notice.name if notice.about in ("source", "recording") else "", notice.id,
                notice.at, msgspec.json.encode(notice),
            )
            for notice in notices
        ]  # fmt: skip
        if entries or text != kept:
            self._spool.append(entries, [Text(_OWNER, _NOTICES, text)])
        for feed in self._feeds:
            feed.tell([entry for entry in entries if entry.daemon == feed.name])
        return text


def _cooldown_of(config: TargetConfig) -> Cooldown | None:
    return Cooldown(config.cooldown_s) if isinstance(config, PushBase) and config.cooldown_s else None


def spool_path(config: BridgeConfig) -> Path:
    """Where the spool is.

    Raises:
        ConfigError: nothing says where.
    """
    if config.spool != "auto":
        return Path(config.spool)
    folder = state_folder()
    if folder is None:
        raise ConfigError("bridge.spool: name a file, such as /var/lib/lookout/bridge.sqlite, or set $STATE_DIRECTORY")
    return folder / "bridge.sqlite"
