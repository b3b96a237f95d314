"""`lookout bridge`: the bridge in a process of its own, and whether its targets can be told anything."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import structlog

from daemon.bridge.bridge import Bridge
from daemon.bridge.kit import check_can_run, open_account
from daemon.bridge.port import AwayError, GoneError
from daemon.bridge.samples import drawn_picture, samples
from daemon.bridge.targets.opening import Memory, TargetContext, open_target
from daemon.clock import SystemClock
from daemon.commands.signalled_reload import signal_to_reload
from daemon.config.load import load_bridge
from daemon.config.root import BridgeFile, Config, LogConfig
from daemon.config.targets import TargetConfig
from daemon.errors import ConfigError, LookoutError
from daemon.log import logging
from daemon.peers.addresses import bridged_addresses, given_token
from daemon.system.reload_answer import ReloadAnswer, write_answer
from daemon.system.signals import stopping_on_signals
from daemon.system.stop_token import StopToken
from daemon.system.tuning import disable_core_dumps, raise_nofile_limit

if TYPE_CHECKING:
    from daemon.bridge.http import BridgeServer

log = structlog.get_logger(__name__)


def run(path: Path, token: str | None) -> int:
    """Pass on until a signal; SIGHUP reads the targets again. The exit code.

    Args:
        token: for the daemons' HTTP APIs.
    """
    config = load_bridge(path)
    check_can_run(config.bridge)
    addresses = bridged_addresses(config, given_token(token))
    disable_core_dumps()
    raise_nofile_limit()
    stop, clock, asked, one_at_a_time = StopToken(), SystemClock(), StopToken(), threading.Lock()
    running: list[tuple[Bridge, BridgeServer | None]] = []

    def reload() -> None:
        asked.set()  # the bridge may not be there yet
        with one_at_a_time:
            for row in running:
                _reload(*row, config.log, path)

    with logging(config.log), stopping_on_signals(stop.set, reload):
        bridge = Bridge(config.bridge, addresses, clock)
        account = None
        try:
            account = open_account(config.bridge, config.http, bridge.report, clock)
            bridge.start()
            if account is not None:
                account.start()
            running.append((bridge, account))
            if asked.is_set:
                reload()
            log.info("the bridge runs", targets=[target.name for target in config.bridge.targets])
            stop.wait()
        finally:
            if account is not None:
                account.close()
            bridge.stop()
    return 0


def ask_to_reload(path: Path, process: int) -> str:
    """Have a running bridge read its targets again; returns what has changed, in words.

    Args:
        process: its id. Its answer is waited for where systemd has made a folder for both; elsewhere its log has it.

    Raises:
        ConfigError: the file has mistakes; nothing has changed.
        LookoutError: the bridge refuses it, cannot be signalled, or does not answer in time; says which.
    """
    config = load_bridge(path)
    _check_has_targets(config)
    targets = len(config.bridge.targets)
    return signal_to_reload(
        process, "bridge", f"the file is right, with {targets} targets, and the bridge reads it; its log has the answer"
    )


def check(path: Path) -> int:
    """Connect to each target, and say what was found: 0 if all can be told something, else 2."""
    config = load_bridge(path)
    _check_has_targets(config)
    bridged_addresses(config, None)
    failed = 0
    for target in config.bridge.targets:
        reason = _trial(target)
        failed += reason is not None
        click.echo(f"{target.name:20} {_type_of(target):9} {reason or 'ok'}")
    return 2 if failed else 0


def test(path: Path, name: str) -> int:
    """Send one of each to a target, whatever its `when` says: 0 if all were taken, else 2."""
    config = load_bridge(path)
    found = [target for target in config.bridge.targets if target.name == name]
    if not found:
        known = ", ".join(target.name for target in config.bridge.targets) or "none"
        raise ConfigError(f"bridge.targets: none is named {name!r}; there are: {known}")
    failed = 0
    for kind, reason in _tell(found[0]):
        failed += reason is not None
        click.echo(f"{kind:9} {reason or 'taken'}")
    return 2 if failed else 0


def _reload(bridge: Bridge, account: BridgeServer | None, started: LogConfig, path: Path) -> None:
    """Leave an answer for `ask_to_reload`, too, whatever happens.

    Args:
        started: section log of the start.
    """
    begun_ns = SystemClock().monotonic_ns()
    try:
        changed = _changed_by(bridge, account, started, path)
    except LookoutError as error:
        log.error("the reload is refused: the bridge goes on as it was", reason=str(error))
        write_answer(ReloadAnswer(begun_ns, None, str(error), getattr(error, "mistakes", ())))
    except Exception as error:
        log.exception("the reload failed half way")
        write_answer(ReloadAnswer(begun_ns, None, f"{type(error).__name__}: {error}", is_half=True))
    else:
        write_answer(ReloadAnswer(begun_ns, changed))


def _changed_by(bridge: Bridge, account: BridgeServer | None, started: LogConfig, path: Path) -> dict[str, Any]:
    """Reload; the changes, as an answer has them."""
    config = load_bridge(path)
    _check_has_targets(config)
    use_tokens = None if account is None else account.reload(config.http)
    found = bridge.reload(config.bridge)
    later = [*found.later, *([] if account is None else account.later(config.http))]
    if config.log != started:
        later.append("log")
    for key in later:
        log.warning(f"{key} takes effect after a restart")
    rows = {
        "targets": [*found.targets],
        "http.tokens": use_tokens is not None and use_tokens(),
        "takes effect after a restart": later,
    }
    return {name: row for name, row in rows.items() if row}


def _check_has_targets(config: Config | BridgeFile) -> None:
    if not config.bridge.targets:
        raise ConfigError("bridge.targets: is empty: write to whom events go, see docs/bridges.md")


def _type_of(target: TargetConfig) -> str:
    return str(target.__struct_config__.tag)


def _trial(target: TargetConfig) -> str | None:
    """Why it cannot be told anything."""
    try:
        open_target(target, _context()).close()
    except LookoutError as error:
        return str(error)
    return None


def _tell(target: TargetConfig) -> Iterator[tuple[str, str | None]]:
    """The kind of each sample, and why it was not taken."""
    try:
        connection = open_target(target, _context())
    except LookoutError as error:
        yield "connect", str(error)
        return
    try:
        now = SystemClock().utc_ns()
        for delivery in samples(target, drawn_picture if target.wants_pictures else None, now):
            kind = delivery.record.kind
            try:
                results = connection.deliver([delivery])
            except (AwayError, GoneError) as error:
                yield kind, str(error)
                return
            yield kind, results[0] if results else "it was not confirmed in time"
    finally:
        connection.close()


class _Nothing:
    """A memory that keeps nothing: a trial must not change what the bridge knows."""

    def read(self) -> dict[str, str]:
        return {}

    def write(self, key: str, value: str | None) -> None:
        """Not kept."""


def _context() -> TargetContext:
    memory: Memory = _Nothing()
    return TargetContext("trial", ("trial",), memory, SystemClock(), is_trial=True)
