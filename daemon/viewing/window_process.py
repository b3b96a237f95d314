"""The process that has the windows. It ends when the other end of its socket is closed, or a person closes a window."""

from __future__ import annotations

import os
import select
import socket
from typing import Protocol

import cv2
import numpy as np

from daemon.pipeline.drawing import Picture
from daemon.viewing.window import CLOSED, HEADER, READY

_POLL_S = 0.03  # between two looks at keys
_KEYS = (27, ord("q"))  # Escape
_FIRST = "Lookout"
_PLAIN = cv2.WINDOW_NORMAL | cv2.WINDOW_GUI_NORMAL  # without buttons


class Screen(Protocol):
    """Where windows are."""

    def show(self, name: str, picture: Picture) -> None:
        """Show a picture in the window of this name, which is opened if there is none."""

    def was_closed(self) -> bool:
        """Let the windows live for a moment; whether a person has closed one, or has pressed q or Escape."""
        ...


class OpenCvScreen:
    """Windows of OpenCV. Its libraries write to standard error, or end the process, where they cannot open one."""

    def __init__(self) -> None:
        self._open: set[str] = set()
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        cv2.namedWindow(_FIRST, _PLAIN)
        cv2.waitKey(1)

    def show(self, name: str, picture: Picture) -> None:
        if name not in self._open:
            if not self._open:
                cv2.destroyWindow(_FIRST)
            self._open.add(name)
            cv2.namedWindow(name, _PLAIN)
            cv2.resizeWindow(name, picture.shape[1], picture.shape[0])
        cv2.imshow(name, picture)

    def was_closed(self) -> bool:
        key = cv2.waitKey(1) & 0xFF
        return key in _KEYS or any(
            cv2.getWindowProperty(name, cv2.WND_PROP_VISIBLE) < 1 for name in self._open or (_FIRST,)
        )


def main(_order: object, end: int) -> int:
    """
    Args:
        end: socket to the daemon.
    """
    with socket.socket(fileno=end) as pictures:
        serve(pictures, OpenCvScreen())
    return 0


def serve(pictures: socket.socket, screen: Screen) -> None:
    """Show pictures until the other end is closed, or a person has closed a window."""
    pictures.sendall(READY)
    while True:
        readable, _, _ = select.select([pictures], [], [], _POLL_S)
        if readable:
            header = _exactly(pictures, HEADER.size)
            if header is None:
                return
            length, wide, high = HEADER.unpack(header)
            name, pixels = _exactly(pictures, length), _exactly(pictures, 3 * wide * high)
            if name is None or pixels is None:
                return
            screen.show(name.decode(), np.frombuffer(pixels, np.uint8).reshape(high, wide, 3))
        if screen.was_closed():
            pictures.sendall(CLOSED)
            return


def _exactly(pictures: socket.socket, count: int) -> bytearray | None:
    """So many bytes; None at the end."""
    found, have = bytearray(count), 0
    while have < count:
        read = pictures.recv_into(memoryview(found)[have:])
        if not read:
            return None
        have += read
    return found
