"""Times, names and numbers of a request. A query that could mean two things is refused."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from starlette.exceptions import HTTPException
from starlette.requests import Request

from daemon.clock import utc_with_zone
from daemon.http.operation import Parameter

_EARLIEST, _LATEST = 10**17, 9_183_110_400 * 10**9  # ns: 1973, and a year before the last that SQLite holds
_NUMBER = re.compile(r"\d{1,19}", re.ASCII)
_ID = re.compile(r"[0-9a-f]{16}", re.ASCII)
_MAX_NAME = 64  # of a source
_TEXT: Final = {"type": "string"}
STORE: Final = Parameter("store", _TEXT)
STEP: Final = Parameter("step", {"type": "integer", "minimum": 1})
FROM, TO, AT = (Parameter(name, _TEXT) for name in ("from", "to", "at"))


class Times(NamedTuple):
    """UTC ns."""

    begin: int
    end: int


class Query:
    """The query of a request.

    Args:
        parameters: that there may be.

    Raises:
        HTTPException: 400: there is another one, or one of them twice.
    """

    def __init__(self, request: Request, *parameters: Parameter) -> None:
        known = [parameter.name for parameter in parameters]
        self._values: dict[str, str] = {}
        for name, value in request.query_params.multi_items():
            if name not in known:
                raise HTTPException(400, f"unknown parameter {_shown(name)}: there are {', '.join(known) or 'none'}")
            if name in self._values:
                raise HTTPException(400, f"{name} is given twice")
            self._values[name] = value

    def text(self, name: str) -> str | None:
        return self._values.get(name)

    def times(self, longest_ns: int) -> Times:
        """`from` and `to`.

        Raises:
            HTTPException: 400: one is missing or no time, or they are too far from each other.
        """
        return check_times(self.time("from"), self.time("to"), longest_ns)

    def time(self, name: str) -> int:
        """
        Raises:
            HTTPException: 400: it is missing, or no time.
        """
        if name not in self._values:
            raise HTTPException(400, f"{name} is missing: a time such as 2026-11-26T10:30:00Z, or UTC nanoseconds")
        return time_of(name, self._values[name])

    def whole(self, name: str, least: int, most: int) -> int | None:
        """A whole number; None if there is none.

        Raises:
            HTTPException: 400: it is another one.
        """
        value = self._values.get(name)
        if value is None:
            return None
        if not _NUMBER.fullmatch(value) or not least <= int(value) <= most:
            raise HTTPException(400, f"{name} is to be a whole number from {least} to {most}")
        return int(value)


def time_of(name: str, value: str | int) -> int:
    """UTC ns of a time as a client says it.

    Raises:
        HTTPException: 400: it could mean something else, or nothing.
    """
    if isinstance(value, str) and not _NUMBER.fullmatch(value):
        try:
            found = utc_with_zone(value)
        except ValueError as error:
            hint = "; a + in an address is written %2B" if " " in value else ""
            raise HTTPException(
                400, f"{name}: {_shown(value)} is {_why(error)}: write 2026-11-26T10:30:00Z, or UTC nanoseconds{hint}"
            ) from error
    else:
        found = int(value)
    if not _EARLIEST <= found <= _LATEST:
        raise HTTPException(400, f"{name}: {_shown(value)} is before 1974 or after 2260: numbers are UTC nanoseconds")
    return found


def check_times(begin: int, end: int, longest_ns: int) -> Times:
    """
    Raises:
        HTTPException: 400: they are no time, or a longer one.
    """
    if end <= begin:
        raise HTTPException(400, "to is not later than from")
    if end - begin > longest_ns:
        raise HTTPException(400, f"from and to are more than {longest_ns // 1_000_000_000} s apart: ask for less")
    return Times(begin, end)


def source_of(request: Request) -> str:
    """The source of a path.

    Raises:
        HTTPException: 404: there can be none of that name.
    """
    source: str = request.path_params["source"]
    if len(source) > _MAX_NAME or not source.isprintable():
        raise HTTPException(404, "there is no such source")
    return source


def id_of(request: Request) -> str:
    """The id of a path.

    Raises:
        HTTPException: 404: it is none.
    """
    id: str = request.path_params["id"]
    if not _ID.fullmatch(id):
        raise HTTPException(404, "there is nothing of this id: ids are 16 digits of 0-9 and a-f")
    return id


def _why(error: ValueError) -> str:
    return "no time" if "not a date" in str(error) else f"no time ({error})"


def _shown(value: str | int) -> str:
    return ascii(str(value)[:40])
