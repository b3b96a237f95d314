"""The boards of several models as one: a frame goes to that of each model that looks at its source."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from msgspec.structs import replace

from daemon.pipeline.drop_causes import GiveUp
from daemon.pipeline.frame_board import FrameBoard
from daemon.pipeline.frames import Frame
from daemon.pipeline.ledger import Ledger

_Row = tuple[tuple[FrameBoard, str], ...]


class ModelBoards:
    """Takes the place of a `FrameBoard` for captures where there are several models.

    A capture that waits for room waits until every board has some, so a frame is on all boards or on none. In live mode
    a newer frame replaces an older one on each board by itself: a slow model takes nothing from a fast one.

    Args:
        boards: by model.
        ledger: knows the models of each source.
    """

    def __init__(self, boards: Mapping[str, FrameBoard], ledger: Ledger) -> None:
        self._boards, self._ledger = boards, ledger
        self._rows: dict[str, _Row] = {}  # by source: its boards, and its account at each
        for source in ledger.counts():
            self._rows[source] = self._row_of(source)

    @property
    def live(self) -> bool:
        return next(iter(self._boards.values())).live

    def add(self, source: str, *, patient: bool = False) -> None:
        """Accept frames of a source that the ledger has an account of."""
        row = self._row_of(source)
        own = [board for board, _ in row]
        for board in own:
            board.add(source, patient=patient)
            for former in self._boards.values():
                if former not in own:  # the last frames of a model that it had before come first
                    board.follow(source, former)
        self._rows[source] = row

    def remove(self, source: str) -> None:
        """Accept no more frames of a source, and drop those that wait."""
        for board, _ in self._rows.pop(source, ()):
            board.remove(source)

    def listen(self, source: str, wake: Callable[[], None]) -> None:
        for board, _ in self._rows[source]:
            board.listen(source, wake)

    def put(self, frame: Frame, *, give_up: GiveUp | None = None, hold_ns: int = 0) -> bool:
        """See `FrameBoard.put`."""
        row = self._rows.get(frame.info.source)
        if row is None:
            self._drop_removed(frame)
            return True
        if len(row) == 1:
            ((board, account),) = row
            return board.put(_as(frame, account), give_up=give_up, hold_ns=hold_ns)
        source = frame.info.source
        if give_up is None and not all(board.has_room(source, hold_ns) for board, _ in row):
            return False
        for board, account in row:  # its capture alone fills the board, so there still is room
            board.put(_as(frame, account), give_up=give_up)
        return True

    def put_all(self, frames: Iterable[Frame]) -> None:
        """Add several frames; frames without room are dropped."""
        found: dict[FrameBoard, list[Frame]] = {}
        for frame in frames:
            row = self._rows.get(frame.info.source)
            if row is None:
                self._drop_removed(frame)
            else:
                for board, account in row:
                    found.setdefault(board, []).append(_as(frame, account))
        for board, rows in found.items():
            board.put_all(rows)

    def is_settled(self, source: str) -> bool:
        """Whether all results of a source are in the outbox, those of all its models."""
        return all(board.is_settled(source) for board, _ in self._rows.get(source, ()))

    def _row_of(self, source: str) -> _Row:
        accounts = self._ledger.accounts_of(source)
        return tuple((self._boards[model], account) for model, account in accounts.items())

    def _drop_removed(self, frame: Frame) -> None:
        info = frame.info
        self._ledger.dropped(info.source, info.seq, "removed", info.captured_at, info.captured_ns, info.decode)


def _as(frame: Frame, account: str) -> Frame:
    """A frame in an account of its source. Both have the picture, which is free when nobody has it any more."""
    return Frame(replace(frame.info, account=account), frame.image)
