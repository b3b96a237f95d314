"""Options of `python -m tests.bench engine`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from daemon.commands.groups.options import THREADS
from tests.bench.peers.names import PEERS, SERVED

if TYPE_CHECKING:
    from daemon.bench.engine import EngineOptions
    from tests.bench.peers.compare import PeerOptions

_EVERY = "all"


class _PeerPython(click.ParamType):  # type: ignore[type-arg]
    """An interpreter, of one engine or of all."""

    name = "[PEER=]PYTHON"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, Path]:
        name, given, path = value.partition("=")
        if not given:
            return _EVERY, Path(value)
        if name not in PEERS:
            self.fail(f"{name!r} is not an engine: choose from {', '.join(PEERS)}", param, ctx)
        return name, Path(path)


_PEERS = [
    click.option("--peer", "peers", multiple=True, type=click.Choice([*PEERS, _EVERY]),
                 help="Another engine to compare with. Repeat it."),
    click.option("--peer-python", "pythons", multiple=True, type=_PeerPython(),
                 help="Interpreter with the libraries of --peer, of all or of one. Repeat it.  [default: this one]"),
    click.option("--peer-timeout", "timeout_s", default=900.0, show_default=True, type=click.FloatRange(min=1),
                 help="Seconds for one engine, its build included."),
    click.option("--server", metavar="URL", help="The model on a server, for --peer triton: http://HOST:PORT/NAME."),
    THREADS,
]  # fmt: skip


def takes_peers(command: Callable[..., int]) -> Callable[..., int]:
    for option in reversed(_PEERS):
        command = option(command)
    return command


def peer_options(
    engine: EngineOptions,
    peers: tuple[str, ...],
    pythons: tuple[tuple[str, Path], ...],
    server: str | None,
    **more: Any,
) -> PeerOptions:
    """The options of a comparison.

    Raises:
        UsageError: no engine is named, or an option is of one that is not.
    """
    from tests.bench.peers.compare import PeerOptions

    found = [name for name in PEERS if name in peers or _EVERY in peers]
    given = dict(pythons)
    if unused := given.keys() - {*found, *([_EVERY] if found else [])}:
        raise click.UsageError(f"--peer-python goes with --peer {min(unused)}")
    if server and SERVED not in found:
        raise click.UsageError(f"--server goes with --peer {SERVED}")
    by_name = {name: given.get(name, given.get(_EVERY)) for name in found}
    if not found:
        raise click.UsageError(f"name another engine: --peer all, or one of {', '.join(PEERS)}")
    return PeerOptions(engine, found, by_name, server, **more)
