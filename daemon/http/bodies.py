"""Reads the bodies of requests, within limits."""

from __future__ import annotations

from anyio import fail_after
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request

MAX_BODY = 64 << 10
_TIMEOUT_S = 10.0


async def read_body(request: Request) -> bytes:
    """The body of a request.

    Raises:
        HTTPException: 400, 408 or 413.
    """
    content = b""
    try:
        with fail_after(_TIMEOUT_S):
            async for chunk in request.stream():
                content += chunk
                if len(content) > MAX_BODY:
                    raise HTTPException(413, f"more than {MAX_BODY} bytes")
    except TimeoutError as error:
        raise HTTPException(408, f"the request was not complete within {_TIMEOUT_S:g} s") from error
    except ClientDisconnect as error:
        raise HTTPException(400, "the request broke off") from error
    return content
