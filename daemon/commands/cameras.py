"""`lookout cameras`: finds cameras on this machine and in its network."""

from __future__ import annotations

import asyncio
import fcntl
import json
import logging
import shlex
import struct
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from rich.console import Console
from rich.table import Table
from rich.text import Text

from daemon.commands.from_arguments import sources_of
from daemon.commands.onvif_search import search
from daemon.errors import LookoutError

_V4L2 = Path("/sys/class/video4linux")
_QUERYCAP, _CAPABILITY = 0x80685600, struct.Struct("16s32s32sIII12x")  # VIDIOC_QUERYCAP, of linux/videodev2.h
_VIDEO_CAPTURE = 1
_ANSWER_TIMEOUT_S = 20.0  # for all requests to one camera; parsing the protocol's own description takes some of it


class NoClientError(LookoutError):
    """The client of cameras in the network is not installed."""


@dataclass(frozen=True)
class Stream:
    """One video stream of a camera.

    Attributes:
        profile: the camera's name for it.
        size: width and height in pixels; None if unknown.
    """

    profile: str
    url: str
    size: tuple[int, int] | None = None


@dataclass(frozen=True)
class Camera:
    """One camera.

    Attributes:
        where: a device of this machine, or a host in the network.
        streams: the largest first; empty for a USB camera.
        problem: why there are no streams; None if there are.
    """

    name: str
    where: str
    streams: Sequence[Stream] = field(default=())
    problem: str | None = None
    usb: bool = False

    @property
    def source(self) -> str | None:
        """The argument for `lookout run`."""
        if self.usb:
            return None if self.problem else self.where
        return self.streams[0].url if self.streams else None


def usb_cameras(folder: Path = _V4L2, devices: Path = Path("/dev")) -> list[Camera]:
    """V4L2 devices with video; a camera has others for controls and metadata."""
    found = []
    numbered = [path for path in folder.glob("video*") if path.name.removeprefix("video").isdecimal()]
    for entry in sorted(numbered, key=lambda path: int(path.name.removeprefix("video"))):
        device, name = devices / entry.name, entry.name
        try:
            name = _plain((entry / "name").read_text().strip())
            gives_pictures = _captures(device)
        except PermissionError:
            problem = f"{device} is not readable: add yourself to its group, such as `usermod -aG video $USER`"
            found.append(Camera(name, str(device), problem=problem, usb=True))
        except OSError:
            continue  # unplugged in the meantime
        else:
            if gives_pictures:
                found.append(Camera(name, str(device), usb=True))
    return found


def _captures(device: Path) -> bool:
    with device.open("rb", buffering=0) as file:
        answer = bytearray(_CAPABILITY.size)
        fcntl.ioctl(file, _QUERYCAP, answer)
    return bool(_CAPABILITY.unpack(answer)[-1] & _VIDEO_CAPTURE)


def network_cameras(seconds: float, addresses: Iterable[str] = (), user: str = "", password: str = "") -> list[Camera]:
    """ONVIF cameras that answer in the local network, and those at the given addresses.

    Args:
        seconds: to wait for answers.
        addresses: HOST or HOST:PORT, for other networks, which discovery does not reach.

    Raises:
        NoClientError: the ONVIF client is not installed.
    """
    try:
        import onvif
    except ImportError as error:
        raise NoClientError(
            "ONVIF cameras need another package: pip install 'lookoutd[onvif]'; or use --usb"
        ) from error
    logging.getLogger("onvif").setLevel(logging.CRITICAL)  # errors are shown as the camera's problem
    asked = [f"http://{address}/onvif/device_service" for address in addresses]
    places = dict.fromkeys([*asked, *(search(seconds) if seconds > 0 else ())])

    async def ask_all() -> list[Camera]:
        return await asyncio.gather(*(_probe(onvif.ONVIFCamera, place, user, password) for place in places))

    return asyncio.run(ask_all())


async def _probe(make: Any, place: str, user: str, password: str) -> Camera:
    """A camera's name and streams, or its problem."""
    try:
        parts = urlsplit(place)
        host, port = parts.hostname or place, parts.port or 80
    except ValueError as error:
        return Camera("", place, problem=f"is not an address: {error}")
    camera = make(host, port, user, password)
    try:
        return await asyncio.wait_for(_described(camera, host), _ANSWER_TIMEOUT_S)
    except asyncio.TimeoutError:
        return Camera("", host, problem=f"no answer within {_ANSWER_TIMEOUT_S:g} s")
    except Exception as error:  # noqa: BLE001 - one camera's answer must not hide the others
        return Camera("", host, problem=_message_of(error, user))
    finally:
        with suppress(Exception):
            await camera.close()


async def _described(camera: Any, host: str) -> Camera:
    await camera.update_xaddrs()
    device = await camera.create_devicemgmt_service()
    about = await device.GetDeviceInformation()
    media = await camera.create_media_service()
    streams = []
    for profile in await media.GetProfiles():
        answer = await media.GetStreamUri(
            {
                "StreamSetup": {"Stream": "RTP-Unicast", "Transport": {"Protocol": "RTSP"}},
                "ProfileToken": profile.token,
            }
        )
        encoder = profile.VideoEncoderConfiguration
        size = (encoder.Resolution.Width, encoder.Resolution.Height) if encoder else None
        streams.append(Stream(_plain(str(profile.Name)), _stream_url(str(answer.Uri)), size))
    streams.sort(key=lambda stream: -(stream.size[0] * stream.size[1] if stream.size else 0))
    return Camera(_plain(f"{about.Manufacturer} {about.Model}".strip()), host, streams)


def _plain(text: str) -> str:
    """Text without control characters, which could move the terminal's cursor."""
    return "".join(sign if sign.isprintable() else "?" for sign in text)


def _stream_url(url: str) -> str:
    """A stream's address, without the user and password that some cameras put into it.

    Raises:
        LookoutError: it contains `${NAME}`, which would send a secret of this machine to the camera.
    """
    if "${" in url or _plain(url) != url:
        raise LookoutError("the address of its stream contains invalid characters")
    scheme, separator, rest = url.partition("://")
    authority, slash, path = rest.partition("/")
    return f"{scheme}{separator}{authority.rpartition('@')[2]}{slash}{path}"


def _message_of(error: Exception, user: str) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    # That of a connection names its host and port, which may be 24401.
    if not isinstance(error, OSError) and any(
        sign in text.lower() for sign in ("authori", "401", "password", "sender not")
    ):
        return "it needs a user and a password" if not user else "it rejects this user or password"
    return _plain(text[:200])


def as_yaml(cameras: Iterable[Camera], *, with_user: bool) -> str:
    """The `sources:` of a configuration; passwords come from the environment.

    Args:
        with_user: network cameras need a user.
    """
    lines = sources_of([camera.source for camera in cameras if camera.source])
    if not with_user:
        return "\n".join(lines) + "\n"
    whole = []
    for line in lines:
        whole.append(line)
        if line.lstrip().startswith('url: "rtsp'):
            whole += ['    user: "${CAMERA_USER}"', '    password: "${CAMERA_PASSWORD}"']
    return "\n".join(whole) + "\n"


def show(cameras: Sequence[Camera], console: Console) -> None:
    """Print a row per stream, and a command that shows one."""
    if not cameras:
        console.print("no camera found; --at HOST asks one that discovery does not reach")
        return
    table = Table("camera", "where", "stream", "address")
    for camera in cameras:
        rows = [(f"{row.profile} {_size(row)}".strip(), row.url) for row in camera.streams]
        for number, (stream, url) in enumerate(rows or [("", camera.problem or camera.where)]):
            name, where = (camera.name, camera.where) if number == 0 else ("", "")
            table.add_row(*(Text(cell, overflow="fold") for cell in (name, where, stream, url)))
    console.print(table)
    if source := next((camera.source for camera in cameras if camera.source), None):
        console.print(f"lookout run {shlex.quote(source)}", highlight=False, markup=False, soft_wrap=True)


def _size(stream: Stream) -> str:
    return "{}x{}".format(*stream.size) if stream.size else ""


def as_json(cameras: Iterable[Camera]) -> str:
    return json.dumps([asdict(camera) for camera in cameras], indent=2)
