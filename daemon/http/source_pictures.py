"""The next frame of a source as a JPEG, over HTTP."""

from __future__ import annotations

from functools import partial

from anyio import CapacityLimiter, to_thread
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from daemon.errors import LookoutError, StoppingError
from daemon.http.operation import JPEG, Operation, Parameter
from daemon.http.snapshots import Snapshots
from daemon.http.source_rows import SourceRows

_TIMEOUT_S = 5.0
_MAX_ENCODED = 4  # at once
_MAX_WAITING = 32  # requests
_TRUE = ("1", "true", "yes")


class PictureOperations:
    """Encoding costs a few requests at a time, and nothing else."""

    def __init__(self, rows: SourceRows, snapshots: Snapshots) -> None:
        self._rows, self._snapshots = rows, snapshots
        self._limiter, self._waiting = CapacityLimiter(_MAX_ENCODED), 0

    def operations(self) -> list[Operation]:
        return [
            Operation("GET", "/api/v1/sources/{id}/snapshot.jpg", self._snapshot, "view", "Its next frame", {200: JPEG},
                      errors=(404, 409, 503, 504), parameters=(Parameter("boxes", {"type": "boolean"}),))
        ]  # fmt: skip

    async def _snapshot(self, request: Request) -> Response:
        source = self._rows.find(request)
        state = self._rows.one(source)["state"]
        if state == "disabled":
            raise HTTPException(409, f"the source {source.id!r} is disabled: PATCH it with enabled: true")
        if state != "up":
            raise HTTPException(503, f"the source {source.id!r} is {state}", {"Retry-After": "5"})
        if self._waiting >= _MAX_WAITING:
            raise HTTPException(503, f"{_MAX_WAITING} snapshots are waited for already", {"Retry-After": "1"})
        boxes = request.query_params.get("boxes", "false").lower() in _TRUE
        render = partial(self._snapshots.jpeg, source.id, _TIMEOUT_S, boxes=boxes)
        self._waiting += 1
        try:
            picture, frame = await to_thread.run_sync(render, limiter=self._limiter)
        except StoppingError as error:
            raise HTTPException(503, str(error)) from error
        except LookoutError as error:
            raise HTTPException(504, str(error)) from error
        finally:
            self._waiting -= 1
        headers = {"Cache-Control": "no-store", "X-Seq": str(frame.seq), "X-Captured-At": str(frame.captured_at)}
        if frame.pts is not None:
            headers["X-Pts"] = str(frame.pts)
        return Response(picture, media_type="image/jpeg", headers=headers)
