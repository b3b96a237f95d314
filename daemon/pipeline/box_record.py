"""Whether the boxes of models are possible: a model that was taken for one of another family gives impossible ones."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Set as AbstractSet

IMPOSSIBLE = (
    "impossible, with corners the wrong way round or classes without a label: the model is of another family, or has "
    "other labels"
)


class BoxRecord:
    """Accounts are indices of the ledger's; models are names. Safe to use from every thread.

    Attributes:
        bad: impossible boxes, by account.
        possible: accounts with a possible box.
    """

    def __init__(self) -> None:
        self.bad: Counter[int] = Counter()
        self.possible: set[int] = set()
        self._bad_of: Counter[str] = Counter()  # by model: those of the present file
        self._proven: set[str] = set()  # models of which the present file has given a possible box
        self._lock = threading.Lock()

    def begin_account(self, account: int) -> None:
        """Another source gets a place of the ledger."""
        with self._lock:
            self.bad.pop(account, None)
            self.possible.discard(account)

    def add_bad(self, account: int, model: str, count: int) -> None:
        """Count impossible boxes."""
        with self._lock:
            self.bad[account] += count
            self._bad_of[model] += count

    def note(self, accounts: AbstractSet[int], models: AbstractSet[str]) -> None:
        """Note possible boxes."""
        if not (accounts <= self.possible and models <= self._proven):
            with self._lock:
                self.possible |= accounts
                self._proven |= models

    def begin_model(self, model: str) -> None:
        """Note that another file gives the boxes of a model from now on."""
        with self._lock:
            self._bad_of.pop(model, None)
            self._proven.discard(model)

    def fault_of(self, model: str) -> str | None:
        """Why the present file of a model finds nothing, though it gives boxes; None if some are possible, or there are
        none."""
        bad = self._bad_of[model]
        if model in self._proven or not bad:
            return None
        return f"all {bad} boxes of the model so far are {IMPOSSIBLE}"
