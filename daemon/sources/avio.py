"""FFmpeg's own files, opened by URL. PyAV has no call for them."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Mapping
from functools import cache

from av.error import err_check
from av.packet import Packet

_READ = 1  # AVIO_FLAG_READ
_IN_CHILDREN = 1  # AV_OPT_SEARCH_CHILDREN
_END = -541478725  # AVERROR_EOF
_OnPoll = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)


class _InterruptCallback(ctypes.Structure):
    """AVIOInterruptCB."""

    _fields_ = (("callback", _OnPoll), ("opaque", ctypes.c_void_p))


class AvioFile:
    """A file that is being read; a file object for PyAV. One thread uses it.

    Args:
        options: FFmpeg's, of its protocols.
        is_over: whether to give up; polled while it waits.

    Raises:
        FFmpegError: it cannot be opened.
    """

    def __init__(self, url: str, options: Mapping[str, str], is_over: Callable[[], bool]) -> None:
        library = _library()
        self._context = ctypes.c_void_p()
        self._on_poll = _OnPoll(lambda _: int(is_over()))  # kept as long as FFmpeg may call it
        given = ctypes.c_void_p()
        for key, value in options.items():
            library.av_dict_set(ctypes.byref(given), key.encode(), value.encode(), 0)
        try:
            interrupt = ctypes.byref(_InterruptCallback(self._on_poll, None))
            context = ctypes.byref(self._context)
            err_check(library.avio_open2(context, url.encode(), _READ, interrupt, ctypes.byref(given)), url)
        finally:
            library.av_dict_free(ctypes.byref(given))

    @property
    def is_open(self) -> bool:
        return bool(self._context)

    def read(self, size: int) -> bytes:
        """The next bytes, up to a number; empty at the end.

        Raises:
            FFmpegError: the connection broke, or was given up.
        """
        if not self._context:
            return b""
        buffer = ctypes.create_string_buffer(size)
        count = _library().avio_read_partial(self._context, buffer, size)
        if count == _END:
            return b""
        err_check(count)
        return buffer.raw[:count]

    def option(self, name: str) -> str:
        """The value of an option, which the server may have changed; empty without one."""
        value = ctypes.c_void_p()
        library = _library()
        found = library.av_opt_get(self._context, name.encode(), _IN_CHILDREN, ctypes.byref(value))
        if found < 0 or not value:
            return ""
        try:
            return ctypes.string_at(value).decode(errors="replace")
        finally:
            library.av_free(value)

    def close(self) -> None:
        """A second call does nothing."""
        _library().avio_closep(ctypes.byref(self._context))


@cache
def _library() -> ctypes.CDLL:
    """FFmpeg, as PyAV brought it; its calls leave the GIL to others."""
    library = ctypes.CDLL(sys.modules[Packet.__module__].__file__)  # also finds symbols of its dependencies
    pointer, text, number = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int
    library.avio_open2.argtypes = (pointer, text, number, pointer, pointer)
    library.avio_read_partial.argtypes = (pointer, pointer, number)
    library.avio_closep.argtypes = (pointer,)
    library.av_dict_set.argtypes = (pointer, text, text, number)
    library.av_dict_free.argtypes = (pointer,)
    library.av_opt_get.argtypes = (pointer, text, number, pointer)
    library.av_free.argtypes = (pointer,)
    return library
