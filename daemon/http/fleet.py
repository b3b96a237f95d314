"""A member's fleet over HTTP: its status, and the commands of operators. They go to the coordinator."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import msgspec
import structlog
from anyio import CapacityLimiter, to_thread
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from daemon.config.sources import SourceConfig
from daemon.errors import ConfigError
from daemon.fleet import operations
from daemon.fleet.figures import FleetParts, OwnFigures, StatusCache
from daemon.fleet.port import Coordinator
from daemon.fleet.records import SourceRecord
from daemon.fleet.status import FleetStatus
from daemon.http.access import Caller, caller_of
from daemon.http.answers import json_answer
from daemon.http.bodies import read_body
from daemon.http.operation import OBJECT, Answer, Operation, Schema, Shape, record, reference
from daemon.redact import written_of

log = structlog.get_logger(__name__)
T = TypeVar("T")
Body = TypeVar("Body", bound=msgspec.Struct)
_MAX_COMMANDS = 2  # at once


class _Strict(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A body of a request."""


class DrainBody(_Strict, frozen=True, kw_only=True):
    member: str
    reason: str = "drained by an operator"


class UndrainBody(_Strict, frozen=True, kw_only=True):
    member: str


class MoveBody(_Strict, frozen=True, kw_only=True):
    sources: list[str]
    member: str
    pin: bool = True


class RebalanceBody(_Strict, frozen=True, kw_only=True):
    dry_run: bool = False


_FLEET = Schema(
    {
        "allOf": [
            reference(FleetStatus),
            {"type": "object", "properties": {"own": reference(OwnFigures)}, "required": ["own"]},
        ]
    },
    "Fleet",
    (FleetStatus, OwnFigures),
)
_MOVES = record(
    "Moves",
    {
        "moves": {"type": "array", "items": {"type": "object"}, "description": "source, before, after"},
        "before": {"type": "object", "description": "the fullest resource of each member"},
        "after": {"type": "object"},
    },
)


class FleetCommands:
    """Answers requests; each command has a connection of its own, and the time limits of that.

    Raises, as all of it: UnknownError, ConflictError, CoordinatorError, ConfigError, HTTPException.
    """

    def __init__(self, parts: FleetParts) -> None:
        self._parts, self._cache = parts, StatusCache(parts)
        self._limiter = CapacityLimiter(_MAX_COMMANDS)

    async def status(self) -> dict[str, Any]:
        """The records as this member sees them, and its own part."""
        found = await to_thread.run_sync(self._cache.get)
        if found is None:
            raise HTTPException(503, "the coordinator has not been reached yet", {"Retry-After": "1"})
        counts = self._parts.placer.counts
        placer = {"leads": self._parts.placer.leads, "failure": counts.failure}
        return {**msgspec.to_builtins(found), "own": {**msgspec.to_builtins(self._parts.own()), **placer}}

    async def drain(self, request: Request, caller: Caller) -> dict[str, Any]:
        body = _body(await read_body(request), DrainBody)
        waiting = await self._command(lambda fleet: operations.drain(fleet, body.member, body.reason))
        self._log("member drained", caller, member=body.member, without_room=len(waiting))
        return {"without_room": waiting}

    async def undrain(self, request: Request, caller: Caller) -> dict[str, Any]:
        body = _body(await read_body(request), UndrainBody)
        await self._command(lambda fleet: operations.undrain(fleet, body.member))
        self._log("member takes sources again", caller, member=body.member)
        return {}

    async def move(self, request: Request, caller: Caller) -> dict[str, Any]:
        body = _body(await read_body(request), MoveBody)
        await self._command(lambda fleet: operations.move(fleet, body.sources, body.member, pinned=body.pin))
        self._log("sources moved", caller, member=body.member, sources=body.sources[:10])
        return {}

    async def rebalance(self, request: Request, caller: Caller) -> dict[str, Any]:
        body = _body(await read_body(request), RebalanceBody)
        found = await self._command(lambda fleet: operations.rebalanced(fleet, dry_run=body.dry_run))
        if not body.dry_run:
            self._log("fleet rebalanced", caller, moves=len(found.moves))
        return {
            "moves": [{"source": row.source, "before": row.before, "after": row.after} for row in found.moves],
            "before": dict(found.before),
            "after": dict(found.after),
        }

    async def write(self, before: Sequence[SourceConfig], after: Sequence[SourceConfig]) -> None:
        """Write to the fleet how the sources of this member were changed."""
        old, new = ({row.id: row for row in rows} for rows in (before, after))
        changed = {id: row for id, row in new.items() if old.get(id) != row}
        await self._command(lambda fleet: _write(fleet, old, changed, sorted(old.keys() - new.keys())))

    async def _command(self, work: Callable[[Coordinator], T]) -> T:
        def run() -> T:
            with closing(self._parts.open()) as coordinator:
                return work(coordinator)

        return await to_thread.run_sync(run, limiter=self._limiter)

    @staticmethod
    def _log(event: str, caller: Caller, **details: object) -> None:
        log.info(f"fleet: {event}", by=caller.name, peer=caller.peer, **details)


def written_row(source: SourceConfig) -> dict[str, Any]:
    """A source as it stands in a configuration: ${NAME} stays, and keys with their default are left out, because a
    member of an older version may not know them."""
    row = msgspec.to_builtins(source, enc_hook=written_of)
    for field in msgspec.structs.fields(source):
        default = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
        if getattr(source, field.name) == default:
            row.pop(field.encode_name, None)
    return {"type": source.__struct_config__.tag, **row}


def _write(
    fleet: Coordinator, old: Mapping[str, SourceConfig], changed: Mapping[str, SourceConfig], removed: Sequence[str]
) -> None:
    there = fleet.view().sources
    added = {id: SourceRecord(config=written_row(row)) for id, row in changed.items() if id not in old}
    if known := sorted(added.keys() & there.keys()):
        raise operations.ConflictError(f"there is a source {known[0]!r} in the fleet already: its owner can change it")
    if added:
        operations.add(fleet, added, replace=False)
    records = {
        id: msgspec.structs.replace(there[id], config=written_row(row))
        for id, row in changed.items()
        if id in old and id in there
    }
    if records:
        fleet.put_sources(records, replace=True)
    if removed:
        fleet.remove_sources(removed)


def _body(content: bytes, kind: type[Body]) -> Body:
    try:
        return msgspec.json.decode(content or b"{}", type=kind)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ConfigError(f"the request: {error}") from error


@dataclass(frozen=True)
class _Command:
    """A command of operators, as the table has it."""

    run: Callable[[FleetCommands, Request, Caller], Awaitable[dict[str, Any]]]
    summary: str
    body: Shape
    answer: Shape


_COMMANDS = {
    "drain": _Command(FleetCommands.drain, "Take all sources from a member", DrainBody, OBJECT),
    "undrain": _Command(FleetCommands.undrain, "Let a member have sources again", UndrainBody, OBJECT),
    "move": _Command(FleetCommands.move, "Move sources to a member", MoveBody, OBJECT),
    "rebalance": _Command(
        FleetCommands.rebalance, "Move sources from full members to empty ones", RebalanceBody, _MOVES
    ),
}


class FleetOperations:
    """
    Args:
        commands: None for a daemon without a fleet.
    """

    def __init__(self, commands: FleetCommands | None) -> None:
        self._commands = commands

    def operations(self) -> list[Operation]:
        status = Operation("GET", "/api/v1/fleet", self._status, "view",
                           "The fleet, and this member", {200: Answer("It", _FLEET)},
                           errors=(404, 503))  # fmt: skip
        commands = [
            Operation("POST", f"/api/v1/fleet/{name}", partial(self._run, command), "operate",
                      command.summary, {200: Answer("Done", command.answer)},
                      errors=(404, 409, 422, 503), body=command.body)
            for name, command in _COMMANDS.items()
        ]  # fmt: skip
        other = Operation("POST", "/api/v1/fleet/{command}", self._refuse, "operate",
                          "Any other command is refused, with the names of those that there are", {},
                          errors=(404,), body=OBJECT)  # fmt: skip
        return [status, *commands, other]

    async def _status(self, _: Request) -> Response:
        return json_answer(await self._fleet().status())

    async def _run(self, command: _Command, request: Request) -> Response:
        return json_answer(await command.run(self._fleet(), request, caller_of(request)))

    async def _refuse(self, _: Request) -> Response:
        self._fleet()
        raise HTTPException(404, f"no such command of a fleet: there are {', '.join(_COMMANDS)}")

    def _fleet(self) -> FleetCommands:
        if self._commands is None:
            raise HTTPException(404, "this daemon is in no fleet: see `fleet` in its configuration")
        return self._commands
