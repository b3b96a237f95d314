"""Structs of libnvcuvid, field by field as in its headers.

Source: cuviddec.h and nvcuvid.h, Video Codec SDK 12. Fields that Lookout does not set have no names.
"""

from __future__ import annotations

import ctypes
from ctypes import c_int, c_longlong, c_short, c_ubyte, c_uint, c_ulong, c_ulonglong, c_ushort, c_void_p


class Caps(ctypes.Structure):
    """CUVIDDECODECAPS."""

    _fields_ = (
        ("codec", c_int),
        ("chroma", c_int),
        ("depth_minus_8", c_uint),
        ("_1", c_uint * 3),
        ("supported", c_ubyte),
        ("engines", c_ubyte),
        ("formats", c_ushort),
        ("width_max", c_uint),
        ("height_max", c_uint),
        ("blocks_max", c_uint),
        ("width_min", c_ushort),
        ("height_min", c_ushort),
        ("_2", c_uint * 11),
    )


class Area(ctypes.Structure):
    _fields_ = (("left", c_int), ("top", c_int), ("right", c_int), ("bottom", c_int))


class ShortArea(ctypes.Structure):
    _fields_ = (("left", c_short), ("top", c_short), ("right", c_short), ("bottom", c_short))


class Format(ctypes.Structure):
    """CUVIDEOFORMAT."""

    _fields_ = (
        ("codec", c_int),
        ("rate", c_uint * 2),
        ("progressive", c_ubyte),
        ("luma_depth_minus_8", c_ubyte),
        ("chroma_depth_minus_8", c_ubyte),
        ("surfaces_min", c_ubyte),
        ("coded_width", c_uint),
        ("coded_height", c_uint),
        ("area", Area),
        ("chroma", c_int),
        ("_1", c_uint * 3),
        ("_2", c_ubyte * 4),
        ("_3", c_uint),
    )

    @property
    def size(self) -> tuple[int, int]:
        """Display width and height, pixels; rounded up to even numbers for NV12."""
        width, height = self.area.right - self.area.left, self.area.bottom - self.area.top
        return width + width % 2, height + height % 2

    @property
    def layout(self) -> tuple[int, ...]:
        """The parameters that a decoder was made for, or changed to; the last is the number of pictures."""
        return self.coded_width, self.coded_height, self.area.left, self.area.top, *self.size, self.surfaces_min


class Packet(ctypes.Structure):
    """CUVIDSOURCEDATAPACKET."""

    _fields_ = (("flags", c_ulong), ("size", c_ulong), ("data", c_void_p), ("time", c_longlong))


class DisplayInfo(ctypes.Structure):
    """CUVIDPARSERDISPINFO."""

    _fields_ = (
        ("index", c_int),
        ("progressive", c_int),
        ("top_first", c_int),
        ("repeat", c_int),
        ("time", c_longlong),
    )


Callback = ctypes.CFUNCTYPE(c_int, c_void_p, c_void_p)


class ParserParameters(ctypes.Structure):
    """CUVIDPARSERPARAMS."""

    _fields_ = (
        ("codec", c_int),
        ("surfaces", c_uint),
        ("clock", c_uint),
        ("error_threshold", c_uint),
        ("delay", c_uint),
        ("_1", c_uint * 5),
        ("user", c_void_p),
        ("on_format", Callback),
        ("on_decode", Callback),
        ("on_display", Callback),
        ("_2", c_void_p * 8),
    )


class DecoderParameters(ctypes.Structure):
    """CUVIDDECODECREATEINFO."""

    _fields_ = (
        ("width", c_ulong),
        ("height", c_ulong),
        ("surfaces", c_ulong),
        ("codec", c_int),
        ("chroma", c_int),
        ("flags", c_ulong),
        ("depth_minus_8", c_ulong),
        ("intra_only", c_ulong),
        ("width_max", c_ulong),
        ("height_max", c_ulong),
        ("_1", c_ulong),
        ("area", ShortArea),
        ("format", c_int),
        ("deinterlace", c_int),
        ("target_width", c_ulong),
        ("target_height", c_ulong),
        ("mapped", c_ulong),
        ("lock", c_void_p),
        ("target", ShortArea),
        ("_2", c_ulong * 5),
    )


class ChangeParameters(ctypes.Structure):
    """CUVIDRECONFIGUREDECODERINFO."""

    _fields_ = (
        ("width", c_uint),
        ("height", c_uint),
        ("target_width", c_uint),
        ("target_height", c_uint),
        ("surfaces", c_uint),
        ("_1", c_uint * 12),
        ("area", ShortArea),
        ("target", ShortArea),
        ("_2", c_uint * 11),
    )


class Processing(ctypes.Structure):
    """CUVIDPROCPARAMS."""

    _fields_ = (
        ("progressive", c_int),
        ("second_field", c_int),
        ("top_first", c_int),
        ("unpaired", c_int),
        ("_1", c_uint * 2),
        ("_2", c_ulonglong),
        ("_3", c_uint * 2),
        ("_4", c_ulonglong),
        ("_5", c_uint * 2),
        ("stream", c_void_p),
        ("_6", c_uint * 46),
        ("_7", c_void_p * 2),
    )


class DecodeStatus(ctypes.Structure):
    """CUVIDGETDECODESTATUS."""

    _fields_ = (("status", c_int), ("_1", c_uint * 31), ("_2", c_void_p * 8))
