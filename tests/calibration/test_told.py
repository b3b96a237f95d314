"""Whoever waits for a measurement hears how far it is."""

from __future__ import annotations

from calibration.coco import told


def test_each_picture_is_told_before_it_is_looked_at() -> None:
    heard = list[tuple[float, float]]()
    assert [*told([4, 7, 9], lambda *row: heard.append(row))] == [4, 7, 9]
    assert heard == [(0, 3), (1, 3), (2, 3)]
    assert [*told([4], None)] == [4]
