"""System calls with the GIL held.

Python releases the GIL around each system call. A call that does not wait takes a microsecond or two; getting the GIL
back behind busy lanes takes many times that, and a wake-up.
"""

from __future__ import annotations

import ctypes
import os
from ctypes import c_char_p, c_int, c_long, c_size_t, c_ssize_t, c_void_p
from functools import cache


@cache
def libc() -> ctypes.PyDLL:
    """The C library. The caller makes sure that a call does not wait."""
    found = ctypes.PyDLL(None, use_errno=True)
    found.recv.argtypes, found.recv.restype = (c_int, c_void_p, c_size_t, c_int), c_ssize_t
    found.send.argtypes, found.send.restype = (c_int, c_char_p, c_size_t, c_int), c_ssize_t
    found.write.argtypes, found.write.restype = (c_int, c_char_p, c_size_t), c_ssize_t
    found.flock.argtypes = (c_int, c_int)
    found.pwrite.argtypes, found.pwrite.restype = (c_int, c_char_p, c_size_t, c_long), c_ssize_t
    return found


def last_error() -> OSError:
    """The failure of this thread's last call, of the class that Python raises."""
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))
