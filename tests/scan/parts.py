"""Short recordings of a moving test picture, of which the odd ones are made. Each is made once."""

from __future__ import annotations

from pathlib import Path

from tests.support import surgery
from tests.support.clips import ffmpeg, once

SIZE, FPS, SECONDS = "160x96", 15, 2
PICTURES = FPS * SECONDS
PID = 0x100
_ENCODERS = {
    "h264": ("libx264", "-preset", "ultrafast", "-tune", "zerolatency", "-pix_fmt", "yuv420p", "-x264-params",
             "aud=1:scenecut=0"),
    "h264b": ("libx264", "-preset", "veryfast", "-bf", "3", "-pix_fmt", "yuv420p", "-x264-params", "aud=1:scenecut=0"),
    "hevc": ("libx265", "-preset", "ultrafast", "-x265-params", "log-level=none:bframes=0:aud=1:repeat-headers=1"),
    "hevcb": ("libx265", "-preset", "ultrafast", "-x265-params", "log-level=none:bframes=3:b-adapt=0"),
    "mpeg2video": ("mpeg2video", "-b:v", "600k"),
    "mpeg4": ("mpeg4", "-b:v", "600k"),
    "mpeg4b": ("mpeg4", "-b:v", "600k", "-bf", "1"),
    "vp8": ("libvpx", "-deadline", "realtime", "-cpu-used", "8", "-b:v", "300k"),
    "vp9": ("libvpx-vp9", "-deadline", "realtime", "-cpu-used", "8", "-b:v", "300k"),
    "av1": ("libaom-av1", "-usage", "realtime", "-cpu-used", "8", "-b:v", "300k"),
    "mjpeg": ("mjpeg", "-pix_fmt", "yuvj420p"),
    "theora": ("libtheora",),
    "wmv2": ("wmv2",),
    "flv1": ("flv",),
}  # fmt: skip
_BARE = {"h264": "h264", "h264b": "h264", "hevc": "hevc", "hevcb": "hevc", "mpeg2video": "mpeg2video"}


def encoded(folder: Path, codec: str, *, size: str = SIZE, seconds: float = SECONDS) -> Path:
    """A recording in Matroska."""

    def make(path: Path) -> None:
        source = f"testsrc2=size={size}:rate={FPS}:duration={seconds}"
        encoder, *options = _ENCODERS[codec]
        ffmpeg("-threads", "1", "-f", "lavfi", "-i", source, "-c:v", encoder, "-g", str(FPS), *options,
               "-f", "matroska", path)  # fmt: skip

    return once(folder, f"{codec}-{size}-{seconds}.mkv", make)


def bare(folder: Path, codec: str) -> bytes:
    """A stream without a container, with start codes."""

    def make(path: Path) -> None:
        ffmpeg("-i", encoded(folder, codec), "-c", "copy", "-f", _BARE[codec], path)

    return once(folder, f"{codec}.bare", make).read_bytes()


def muxed(folder: Path, codec: str, extension: str, *options: str, size: str = SIZE, seconds: float = SECONDS) -> Path:
    """The same in another container."""
    source = encoded(folder, codec, size=size, seconds=seconds)
    name = "-".join((codec, size, str(seconds), *options)).replace("/", "_")
    return once(folder, f"{name}.{extension}", lambda path: ffmpeg("-i", source, "-c", "copy", *options, path))


def transport(
    folder: Path, codec: str, *, pid: int = PID, offset: float = 0, version: int = 0, size: str = SIZE, **more: int
) -> Path:
    """A transport stream of one video.

    Args:
        offset: its first time, seconds.
        version: of its table.
        more: further options of ffmpeg's multiplexer.
    """
    options = [word for name, value in more.items() for word in (f"-{name}", str(value))]
    options += ["-bsf:v", "dump_extra"] * (codec == "mpeg4")  # its parameters, which Matroska has in its header
    name = f"{codec}-{size}-{pid:x}-{offset}-{version}-{'-'.join(options)}.ts"

    def make(path: Path) -> None:
        plain = path.with_name(f"plain-{path.name}")
        ffmpeg("-i", encoded(folder, codec, size=size), "-c", "copy", "-muxdelay", "0", "-mpegts_start_pid", hex(pid),
               "-output_ts_offset", str(offset), *options, "-f", "mpegts", plain)  # fmt: skip
        path.write_bytes(surgery.with_version(plain.read_bytes(), version, more.get("mpegts_pmt_start_pid", 0x1000)))
        plain.unlink()

    return once(folder, name, make)


def with_sound(folder: Path, codec: str, extension: str, sound: str, *options: str, seconds: float = 6) -> Path:
    """A recording whose sound is longer than its video."""

    def make(path: Path) -> None:
        ffmpeg("-i", encoded(folder, codec), "-f", "lavfi", "-i", f"sine=duration={seconds}:sample_rate=48000",
               "-c:v", "copy", "-c:a", sound, "-strict", "-2", *options, path)  # fmt: skip

    return once(folder, f"{codec}-sound-{seconds}-{'-'.join(options).replace('/', '_')}.{extension}", make)


def of_extension(folder: Path, extension: str) -> Path:
    """A recording as files of an extension are, such as ".mp4"."""
    name = extension.removeprefix(".")
    if name in _BARE_OF:
        return once(folder, f"bare.{name}", lambda path: path.write_bytes(bare(folder, _BARE_OF[name])))
    if name in ("mts", "m2ts"):
        content = surgery.m2ts(transport(folder, "h264").read_bytes())
        return once(folder, f"camcorder.{name}", lambda path: path.write_bytes(content))
    if name == "dav":
        content = surgery.dav(bare(folder, "h264"), (160, 96), FPS)
        return once(folder, "recorder.dav", lambda path: path.write_bytes(content))
    if name == "gif":
        return once(folder, "animated.gif", lambda path: ffmpeg("-i", encoded(folder, "h264"), "-vf", "fps=10", path))
    if name == "mxf":
        rate = ("-r", "25", "-c:v", "mpeg2video")
        return once(folder, "camera.mxf", lambda path: ffmpeg("-i", encoded(folder, "h264"), *rate, path))
    return muxed(folder, _CODEC_OF.get(name, "h264"), name)


_BARE_OF = {"264": "h264", "h264": "h264", "265": "hevc", "h265": "hevc", "hevc": "hevc"}
_CODEC_OF = {
    "avi": "mpeg4",
    "mjpeg": "mjpeg",
    "mpeg": "mpeg2video",
    "mpg": "mpeg2video",
    "ogv": "theora",
    "webm": "vp8",
    "wmv": "wmv2",
}
