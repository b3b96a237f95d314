"""Rules on a picture: zones, lines and gates where they are, with their names."""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np
import numpy.typing as npt

from daemon.geometry import Point
from daemon.rule_config import GateConfig, LineConfig, ObjectConfig, PlacedRule, RuleConfig, ZoneConfig

Picture = npt.NDArray[np.uint8]
Colour = tuple[int, int, int]  # blue, green, red

_COLOURS: tuple[Colour, ...] = ((197, 103, 39), (43, 130, 217), (107, 158, 47), (75, 49, 196), (193, 88, 122))
_WHITE: Colour = (255, 255, 255)
_FILL = 0.3
_ARROW = 0.07  # of the picture's height


def drawn_on(picture: Picture, rules: Sequence[RuleConfig]) -> Picture:
    """A copy of a picture with rules."""
    drawn: Picture = picture.copy()
    height, width = picture.shape[:2]
    for number, rule in enumerate(rules):
        colour = _COLOURS[number % len(_COLOURS)]
        if isinstance(rule, ObjectConfig):
            cv2.rectangle(drawn, (1, 1), (width - 2, height - 2), colour, _thickness(drawn))
            _write(drawn, rule.name, (width / 2, _ARROW * height), colour)
        else:
            _draw_place(drawn, rule, colour)
    return drawn


def _draw_place(drawn: Picture, rule: ZoneConfig | LineConfig | GateConfig, colour: Colour) -> None:
    outlines = _outlines(rule, drawn)
    if isinstance(rule, ZoneConfig):
        filled = drawn.copy()
        for points in outlines:
            cv2.fillPoly(filled, [_pixels(points)], colour)
        cv2.addWeighted(filled, _FILL, drawn, 1 - _FILL, 0, drawn)
    for points in outlines:
        cv2.polylines(drawn, [_pixels(points)], isinstance(rule, ZoneConfig), colour, _thickness(drawn), cv2.LINE_AA)
    if isinstance(rule, ZoneConfig):
        _write(drawn, rule.name, _middle(outlines[0]), colour)
    elif isinstance(rule, LineConfig):
        (ax, ay), (bx, by) = outlines[0][:2]
        length = max(1e-9, float(np.hypot(bx - ax, by - ay))) / (_ARROW * drawn.shape[0])
        x, y = (ax + bx) / 2, (ay + by) / 2
        across = (ay - by) / length, (bx - ax) / length
        _arrow(drawn, (x - across[0], y - across[1]), (x + across[0], y + across[1]), colour)
        _write(drawn, rule.name, outlines[0][0], colour)
    else:
        first, second = map(_middle, outlines)
        _arrow(drawn, first, second, colour)
        for text, points in zip((f"{rule.name} 1", f"{rule.name} 2"), outlines):
            _write(drawn, text, points[0], colour)


def _outlines(rule: PlacedRule, drawn: Picture) -> list[list[Point]]:
    return rule.scaled(drawn.shape[1], drawn.shape[0])


def _pixels(points: list[Point]) -> npt.NDArray[np.int32]:
    pixels: npt.NDArray[np.int32] = np.array(points).round().astype(np.int32)
    return pixels


def _middle(points: list[Point]) -> Point:
    x, y = np.mean(points, axis=0).tolist()
    return x, y


def _thickness(drawn: Picture) -> int:
    return max(2, round(int(drawn.shape[1]) / 480))


def _arrow(drawn: Picture, start: Point, end: Point, colour: Colour) -> None:
    (ax, ay), (bx, by) = ((round(x), round(y)) for x, y in (start, end))
    cv2.arrowedLine(drawn, (ax, ay), (bx, by), colour, _thickness(drawn), cv2.LINE_AA, 0, 0.25)


def _write(drawn: Picture, text: str, at: Point, colour: Colour) -> None:
    """A name on a ground of its rule's colour, within the picture."""
    scale, thick = drawn.shape[1] / 1000, max(1, round(drawn.shape[1] / 800))
    (width, height), below = cv2.getTextSize(text, cv2.FONT_HERSHEY_SIMPLEX, scale, thick)
    left = max(0, min(round(at[0] - width / 2), drawn.shape[1] - width))
    bottom = max(height + below, min(round(at[1] + height / 2), drawn.shape[0] - below))
    cv2.rectangle(drawn, (left, bottom - height - below), (left + width, bottom + below), colour, cv2.FILLED)
    cv2.putText(drawn, text, (left, bottom), cv2.FONT_HERSHEY_SIMPLEX, scale, _WHITE, thick, cv2.LINE_AA)
