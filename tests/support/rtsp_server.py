"""A real RTSP server (GStreamer's) for tests; run by the system's Python, which has its bindings.

usage: rtsp_server.py PORT [--auth USER:PASSWORD] [--codec h264|h265] [--udp] NAME=CLIP.mkv ...     (in Matroska)
"""

import argparse
import signal
from collections.abc import Callable
from typing import Any

import gi

gi.require_version("Gst", "1.0")
gi.require_version("GstRtsp", "1.0")
gi.require_version("GstRtspServer", "1.0")
from gi.repository import GLib, Gst, GstRtsp, GstRtspServer  # noqa: E402

mutes: list[Callable[[], object]] = []  # for each client: drops its pictures, not its reports


def mutable(_factory: object, media: Any) -> None:
    pad = media.get_element().get_by_name("pay0").get_static_pad("src")
    mutes.append(lambda: pad.add_probe(Gst.PadProbeType.DATA_DOWNSTREAM, lambda *_: Gst.PadProbeReturn.DROP))


def mute() -> bool:
    while mutes:
        mutes.pop()()
    return True


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("port")
    parser.add_argument("--auth")
    parser.add_argument("--codec", default="h264", choices=["h264", "h265"])
    parser.add_argument("--udp", action="store_true", help="offer nothing else")
    parser.add_argument("mounts", nargs="+")
    args = parser.parse_args()
    Gst.init(None)
    server = GstRtspServer.RTSPServer()
    server.set_address("127.0.0.1")
    server.set_service(args.port)
    for mount in args.mounts:
        name, _, clip = mount.partition("=")
        factory = GstRtspServer.RTSPMediaFactory()
        factory.connect("media-configure", mutable)
        factory.set_launch(
            f'( filesrc location="{clip}" ! matroskademux ! rtp{args.codec}pay name=pay0 pt=96 config-interval=1 )'
        )
        if args.udp:
            factory.set_protocols(GstRtsp.RTSPLowerTrans.UDP)
        if args.auth:
            permissions = GstRtspServer.RTSPPermissions()
            for permission in ("access", "construct"):
                permissions.add_permission_for_role("user", f"media.factory.{permission}", True)
            factory.set_permissions(permissions)
        server.get_mount_points().add_factory(f"/{name}", factory)
    if args.auth:
        user, _, password = args.auth.partition(":")
        token = GstRtspServer.RTSPToken()
        token.set_string("media.factory.role", "user")
        auth = GstRtspServer.RTSPAuth()
        auth.add_basic(GstRtspServer.RTSPAuth.make_basic(user, password), token)
        server.set_auth(auth)
    server.attach(None)
    print("ready", flush=True)
    loop = GLib.MainLoop()
    GLib.unix_signal_add(GLib.PRIORITY_DEFAULT, signal.SIGTERM, loop.quit)
    GLib.unix_signal_add(GLib.PRIORITY_DEFAULT, signal.SIGUSR1, mute)
    loop.run()


main()
