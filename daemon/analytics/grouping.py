"""Groups of labels whose boxes may belong to one track, such as car, truck and bus."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt


class Grouping:
    """The labels of a model in groups. A label that no group names has a group of its own. A label that the model does
    not have is ignored.

    Attributes:
        labels: of the model, by class id.
        group_of: (classes,) group of each class.
        slot_of: (classes,) place of each class in its group.
        class_of: (groups, width) class id by group and place; -1 for no class.
        width: most labels in a group.
    """

    def __init__(self, labels: Sequence[str], groups: Sequence[Sequence[str]] = ()) -> None:
        self.labels = tuple(labels)
        grouped = {label for group in groups for label in group}
        rows = [[number for number, label in enumerate(labels) if label in group] for group in map(set, groups)]
        rows = [row for row in rows if row]
        rows += [[number] for number, label in enumerate(labels) if label not in grouped]
        self.width = max(map(len, rows), default=1)
        self.group_of = np.zeros(len(labels), np.int64)
        self.slot_of = np.zeros(len(labels), np.int64)
        self.class_of = np.full((len(rows), self.width), -1, np.int32)
        for group, row in enumerate(rows):
            self.group_of[row] = group
            self.slot_of[row] = range(len(row))
            self.class_of[group, : len(row)] = row

    def moved(
        self, groups: npt.NDArray[np.int64], votes: npt.NDArray[np.float64], new: Grouping
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
        """Tracks' groups (n,) and votes (width, n) in another grouping, by the names of labels.

        A track stays in the group of its label. The group is -1 where the other grouping has no such label.
        """
        moved = np.full(len(groups), -1, np.int64)
        carried = np.zeros((new.width, len(groups)))
        class_of = {label: number for number, label in enumerate(new.labels)}
        for track, group in enumerate(groups.tolist()):
            own = votes[:, track]
            label = self.labels[int(self.class_of[group, int(own.argmax())])]
            if label not in class_of:
                continue
            moved[track] = new.group_of[class_of[label]]
            for slot in np.flatnonzero(own).tolist():
                number = class_of.get(self.labels[int(self.class_of[group, slot])])
                if number is not None and new.group_of[number] == moved[track]:
                    carried[new.slot_of[number], track] += own[slot]
        return moved, carried
