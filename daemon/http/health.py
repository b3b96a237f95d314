"""Health for service managers: whether the daemon lives, has started, and is ready."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response

from daemon.control.sources import SourceManager
from daemon.http.access import Access
from daemon.http.answers import json_answer
from daemon.http.operation import Answer, Handler, Operation, record
from daemon.monitoring.health import Health

HEALTH = record("Health", {"ok": {"type": "boolean"}, "reasons": {"type": "array", "items": {"type": "string"}}})


class HealthOperations:
    """Health is public; its reasons name parts and sources, and are not."""

    def __init__(self, health: Health, sources: SourceManager, access: Access) -> None:
        self._health, self._sources, self._access = health, sources, access

    def operations(self) -> list[Operation]:
        return [
            _operation("/live", self._live, "Every part of the daemon works"),
            _operation("/ready", self._ready, "At least one source is up, and a model on a server gives results"),
            _operation("/startup", self._startup, "Started"),
        ]

    async def _live(self, request: Request) -> Response:
        return self._answer(request, self._health.problems(), self._health.warnings())

    async def _startup(self, request: Request) -> Response:
        reasons = [] if self._health.is_ready else ["the model is being opened, or the sources have not started"]
        return self._answer(request, reasons)

    async def _ready(self, request: Request) -> Response:
        """Started, alive, the model at hand, and at least one source up, if there are any."""
        reasons = [*self._health.problems(), *self._health.waits_for()]
        if not self._health.is_ready:
            reasons.append("not started, or stopping")
        captures = self._sources.captures
        if captures and not any(capture.state in ("up", "ended") for capture in captures):
            states = ", ".join(f"{capture.id} {capture.state}" for capture in captures[:10])
            reasons.append(f"no source is up: {states}")
        return self._answer(request, reasons)

    def _answer(self, request: Request, reasons: list[str], warnings: Sequence[str] = ()) -> Response:
        """Warnings do not change the status."""
        shown = [*reasons, *warnings] if self._access.may_view(request) else []
        return json_answer({"ok": not reasons, "reasons": shown}, 503 if reasons else 200)


def _operation(path: str, handler: Handler, summary: str) -> Operation:
    answers = {200: Answer("Yes", HEALTH), 503: Answer("No, and why", HEALTH)}
    return Operation("GET", path, handler, "public", summary, answers)
