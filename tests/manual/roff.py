"""Pieces of a man page."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import date

from daemon import __version__


def head(name: str, section: int, day: date) -> str:
    """The first lines of a page: the text is neither stretched nor hyphenated."""
    return f'.TH {name.upper()} {section} {day.isoformat()} "Lookout {__version__}" Lookout\n.ad l\n.nh'


def heading(text: str, level: int = 1) -> str:
    return f'.{"SH" if level == 1 else "SS"} "{escaped(text)}"'


def paragraphs(text: str) -> Iterator[str]:
    """Text below a heading, with paragraphs, each behind an empty line. Lines of one that begins with a backspace stay
    as they are, as click has it."""
    for number, piece in enumerate(re.split(r"\n\s*\n", text.strip())):
        if number:
            yield ".PP"
        if piece.lstrip(" ").startswith("\b\n"):
            yield example(piece.lstrip(" ").splitlines()[1:])
        else:
            yield prose(piece)


def item(name: str, text: str) -> str:
    """An item of a list: a name in bold, and its text."""
    return f".TP\n.B {escaped(name)}\n{prose(text)}"


def example(lines: Iterable[str]) -> str:
    """Lines as they are typed."""
    return "\n".join([".nf", ".RS 4", *(guarded(escaped(line)) for line in lines), ".RE", ".fi"])


def prose(text: str) -> str:
    """Words in one paragraph, with `code` in bold."""
    pieces = re.split(r"`([^`]*)`", " ".join(text.split()))
    return guarded("".join(rf"\fB{escaped(piece)}\fR" if at % 2 else escaped(piece) for at, piece in enumerate(pieces)))


def escaped(text: str) -> str:
    """Text that means nothing to troff: a backslash, a hyphen that is typed, quotes and signs beyond ASCII."""
    known = {"\\": r"\e", "-": r"\-", '"': r"\(dq", "'": r"\(aq", "`": r"\(ga", "^": r"\(ha", "~": r"\(ti"}
    return "".join(known.get(sign) or (sign if sign.isascii() else rf"\[u{ord(sign):04X}]") for sign in text)


def guarded(line: str) -> str:
    """A line that is no request."""
    return rf"\&{line}" if line.startswith((".", "'")) else line
