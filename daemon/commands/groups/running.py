"""Run a daemon, check its configuration, and see it work."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import cast

import click

from daemon.commands.groups.options import (
    CONFIG,
    ENDPOINT,
    FIRST_MODEL,
    FLEET,
    LABELS,
    MODEL,
    OWN_TOKEN,
    PID,
    URL,
    examples,
    keys_from,
)
from daemon.commands.numbers import Number
from daemon.commands.paths import InputName, InputPath, OutputFile
from daemon.errors import LookoutError


@click.command(
    epilog=examples(
        "lookout run rtsp://192.0.2.10/stream1 --dashboard  # a camera, and the page",
        "lookout run clips/ --model demo --track --save-video seen.mp4",
        "lookout run -c config.yaml",
    )
)
@click.argument("sources", nargs=-1, type=InputName(cameras=True), metavar="[SOURCE]...")
@CONFIG
@MODEL
@LABELS
@click.option("--confidence", type=Number(0, 1), help="Weaker boxes are left out.  [default: 0.25]")
@click.option("--track", is_flag=True, help="Give objects ids that they keep from frame to frame.")
@click.option("--show", is_flag=True, help="Open a window for each source; q or closing one ends Lookout.")
@click.option(
    "--save-video",
    "video",
    type=OutputFile(),
    metavar="FILE.mp4",
    help="Write the pictures with their boxes; of several sources FILE-SOURCE.mp4 each.",
)
@click.option("--endpoint", help=f"Where subscribers connect.  [default: {ENDPOINT}]")
@click.option("--save", type=OutputFile(), help="Write the configuration that SOURCEs make, commented.")
@click.option("--dashboard", is_flag=True, help="Also serve the page, in a process of its own: docs/dashboard.md.")
@click.option("--bridge", is_flag=True, help="Also run the bridge, in a process of its own: docs/bridges.md.")
@click.pass_context
def run(
    context: click.Context,
    sources: tuple[str, ...],
    config: Path,
    model: str | None,
    labels: str | None,
    confidence: float | None,
    track: bool,
    show: bool,
    video: Path | None,
    endpoint: str | None,
    save: Path | None,
    dashboard: bool,
    bridge: bool,
) -> int:
    """Start every source, detect, publish and monitor, until SIGTERM or SIGINT.

    Each SOURCE is a URL (rtsp://...), a file, a folder, a pattern, or the number of a USB camera. Without one, the
    configuration file says what there is.
    """
    if not sources:
        from daemon.commands.run import run_file

        rows: list[tuple[str, object]] = [("--model", model), ("--labels", labels), ("--confidence", confidence)]
        rows += [("--track", track or None), ("--show", show or None), ("--save-video", video)]
        rows += [("--endpoint", endpoint), ("--save", save)]
        if alone := [name for name, value in rows if value is not None]:
            raise LookoutError(f"{alone[0]} is for sources on the command line: lookout run rtsp://... {alone[0]} ...")
        return run_file(config, page=dashboard, bridge=bridge)
    if bridge:
        raise LookoutError("--bridge needs bridge.targets of a configuration: lookout run -c config.yaml --bridge")
    if context.get_parameter_source("config") != click.core.ParameterSource.DEFAULT:
        raise LookoutError("sources come from the command line or from -c, not from both")
    from daemon.commands.command_line_config import TypedConfig
    from daemon.commands.from_arguments import DEFAULT_CONFIDENCE
    from daemon.commands.run_sources import run_sources

    threshold = DEFAULT_CONFIDENCE if confidence is None else confidence
    typed = TypedConfig(sources, model or FIRST_MODEL, labels, endpoint, threshold, track)
    return run_sources(typed, save, page=dashboard, show=show, video=video)


@click.command(
    epilog=examples(
        "lookout check -c config.yaml",
        "lookout check -c config.yaml --dashboard --bridge  # before lookout run with the same",
        "lookout check -c config.yaml --draw pictures/",
    )
)
@CONFIG
@click.option("--running", is_flag=True, help="A daemon has this configuration's ports: do not try them.")
@click.option("--dashboard", is_flag=True, help="Also try what `run --dashboard` opens.")
@click.option("--bridge", is_flag=True, help="Also try what `run --bridge` opens; `bridge check` tries its targets.")
@click.option(
    "--draw",
    metavar="DIR",
    type=InputPath(),
    help="Write a picture of each source there, with its rules, region of interest and tiles.",
)
def check(config: Path, running: bool, dashboard: bool, bridge: bool, draw: Path | None) -> int:
    """Validate the configuration, open each source once, load the model, and print what was found."""
    from daemon.commands.check import check as run_check
    from daemon.config.root import LogConfig
    from daemon.control.source_store import load_effective, warn_if_overridden
    from daemon.log import logging

    with logging(LogConfig(format="console")):
        loaded = load_effective(config)
        warn_if_overridden(loaded)
        return run_check(loaded, ports=not running, page=dashboard, bridge=bridge, draw=draw)


@click.command(epilog=examples("lookout status -c config.yaml", "lookout status --url http://127.0.0.1:9105 --json"))
@CONFIG
@URL
@OWN_TOKEN
@click.option("--sources", "every_source", is_flag=True, help="All sources, however many there are.")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def status(config: Path, url: str | None, token: str | None, every_source: bool, as_json: bool) -> int:
    """Show a running daemon: sources, models, stores, bridge, and what is in trouble, since when and why.

    Exit code 0: all is well; 1: something is down, or works less well than it should; 2: the daemon cannot be asked.
    """
    from rich.console import Console

    from daemon.commands.running_daemon import running_daemon
    from daemon.commands.status import as_json as text_of
    from daemon.commands.status import show, status_of

    found = status_of(running_daemon(config, url, token, ("view", "operate")))
    if as_json:
        click.echo(text_of(found))
    else:
        show(found, Console(), every_source=every_source)
    return 0 if found.ok else 1


@click.command(epilog=examples("lookout reload -c config.yaml"))
@CONFIG
@URL
@OWN_TOKEN
@click.option("--pid", type=PID, help="Of the daemon, to signal it where http.enabled is not set.")
def reload(config: Path, url: str | None, token: str | None, pid: int | None) -> int:
    """Have the daemon that runs with this configuration read it again; 2 with the reason if it refuses."""
    from daemon.commands.reload import reload as ask

    click.echo(ask(config, url, token, pid))
    return 0


@click.command(epilog=examples("lookout log-level debug -c config.yaml"))
@click.argument("level", required=False, type=click.Choice(["debug", "info", "warning", "error"]))
@CONFIG
@URL
@OWN_TOKEN
def log_level(level: str | None, config: Path, url: str | None, token: str | None) -> int:
    """Have a running daemon log from LEVEL on, until it reloads or restarts; without LEVEL, print the present one."""
    from daemon.commands.running_daemon import log_level as ask
    from daemon.commands.running_daemon import running_daemon

    click.echo(ask(running_daemon(config, url, token, ("operate", "view")), level))
    return 0


@click.command(epilog=examples("lookout health -c config.yaml"))
@CONFIG
def health(config: Path) -> int:
    """Ask the daemon that runs with this configuration for a sign of life; 0 if there is one, 1 if not."""
    from daemon.commands.health import probe
    from daemon.config.load import load

    lives, words = probe(load(config))
    click.echo(words, err=not lives)
    return 0 if lives else 1


@click.command(
    epilog=examples(
        "lookout watch  # a live table, of a daemon on this machine",
        "lookout watch tcp://192.0.2.7:5556 --source door --json",
        "lookout watch --once --timeout 10",
    )
)
@click.argument("endpoint", default=ENDPOINT)
@click.option("--source", "sources", multiple=True, help="Only this source; may be given more than once.")
@click.option("--json", "as_json", is_flag=True, help="One message a line, as JSON.")
@click.option("--once", is_flag=True, help="End with the first detections: a health check.")
@click.option("--timeout", default=5.0, show_default=True, type=Number(min=0), help="Seconds --once waits.")
@click.option("--server-key", type=InputName(), help="The daemon's public CURVE key, or the file that holds it.")
@click.option("--secret-key", type=InputPath(), help="Your own .key_secret, where only some are let in.")
@FLEET
def watch(
    endpoint: str,
    sources: tuple[str, ...],
    as_json: bool,
    once: bool,
    timeout: float,
    server_key: str | None,
    secret_key: Path | None,
    fleet: str | None,
) -> int:
    """Show what a running Lookout publishes on ENDPOINT, or all members of a fleet."""
    from daemon.commands import watch as watching
    from lookout.client import Subscriber
    from lookout.messages import KINDS

    if not (once or as_json or sys.stdout.isatty()):
        raise LookoutError("the table is for terminals, and this is none: use --json")
    kinds = ("detections",) if once else KINDS
    keys = keys_from(server_key, secret_key, fleet)
    with Subscriber(endpoint, sources=sources, kinds=kinds, **keys) as subscriber:  # type: ignore[arg-type]
        if once:
            return watching.once(subscriber, fleet or endpoint, timeout, as_json)
        return watching.lines(subscriber) if as_json else watching.table(subscriber, fleet or endpoint)


@click.command(
    epilog=examples(
        "lookout events --json",
        "lookout events http://127.0.0.1:9105 --since 0  # those of the journal",
    )
)
@click.argument("endpoint", default=ENDPOINT)
@click.option("--source", "sources", multiple=True, help="Only this source; may be given more than once.")
@click.option("--json", "as_json", is_flag=True, help="One event a line, as JSON.")
@click.option("--since", type=click.IntRange(min=0), help="Those of the journal with a larger number, and end.")
@click.option("--token", envvar="LOOKOUT_TOKEN", help="Of the HTTP API; better from LOOKOUT_TOKEN.")
@click.option("--server-key", type=InputName(), help="The daemon's public CURVE key, or the file that holds it.")
@click.option("--secret-key", type=InputPath(), help="Your own .key_secret, where only some are let in.")
@FLEET
def events(
    endpoint: str,
    sources: tuple[str, ...],
    as_json: bool,
    since: int | None,
    token: str | None,
    server_key: str | None,
    secret_key: Path | None,
    fleet: str | None,
) -> int:
    """Show what tracks and rules find: as it happens on ENDPOINT, or the journal's where ENDPOINT is http://HOST:PORT."""
    from daemon.commands import events as listing
    from lookout.client import Subscriber

    if listing.is_url(endpoint):
        return listing.kept(endpoint, sources, since, token, as_json)
    if since is not None:
        raise LookoutError("--since is for the journal: give the address of the HTTP API, http://127.0.0.1:9105")
    keys = keys_from(server_key, secret_key, fleet)
    with Subscriber(endpoint, sources=sources, kinds=("events",), **keys) as subscriber:  # type: ignore[arg-type]
        return listing.live(subscriber, as_json)


@click.command(epilog=examples("lookout demo", "lookout demo --dashboard"))
@click.option("--seconds", default=20.0, show_default=True, type=Number(min=1), help="How long.")
@click.option("--backend", default="auto", show_default=True, type=click.Choice(["auto", "trt", "trt-rtx", "cpu"]))
@click.option("--dashboard", is_flag=True, help="Until Ctrl-C, with the page in a browser.")
def demo(seconds: float, backend: str, dashboard: bool) -> int:
    """Show Lookout at work on a drawn street, with the model that comes with it, and compare with the truth."""
    from daemon.commands.demo import demo as run_demo
    from detectors.factory import Backend

    return run_demo(seconds, cast("Backend", backend), page=dashboard)


@click.command(epilog=examples("lookout cameras --usb", "lookout cameras --at 192.0.2.10 --user viewer --yaml"))
@click.option("--seconds", default=3.0, show_default=True, type=Number(0, 60), help="To wait for answers.")
@click.option("--at", "addresses", multiple=True, metavar="HOST[:PORT]", help="A camera that discovery does not reach.")
@click.option("--user", default="", help="Of the cameras in the network.")
@click.option("--password", default="", envvar="CAMERA_PASSWORD", help="Better from CAMERA_PASSWORD.")
@click.option("--usb", is_flag=True, help="Those of this machine only.")
@click.option("--yaml", "as_yaml", is_flag=True, help="As the sources of a configuration.")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def cameras(
    seconds: float, addresses: tuple[str, ...], user: str, password: str, usb: bool, as_yaml: bool, as_json: bool
) -> int:
    """Show the cameras of this machine (V4L2) and of its network (ONVIF), with the address of each stream."""
    from rich.console import Console

    from daemon.commands import cameras as finding

    found = finding.usb_cameras()
    if not usb:
        try:
            found += finding.network_cameras(seconds, addresses, user, password)
        except finding.NoClientError as error:
            if not found or addresses:
                raise
            click.echo(f"those of this machine alone: {error}", err=True)
    if as_json:
        click.echo(finding.as_json(found))
    elif as_yaml:
        click.echo(finding.as_yaml(found, with_user=bool(user)), nl=False)
    else:
        finding.show(found, Console())
    return 0 if found else 1


@click.command(
    epilog=examples(
        "lookout init  # asks for all",
        "lookout init rtsp://192.0.2.10/stream1 0 --out mine.yaml",
    )
)
@click.argument("sources", nargs=-1, type=InputName(cameras=True), metavar="[SOURCE]...")
@MODEL
@LABELS
@click.option("--endpoint", help=f"Where subscribers connect.  [default: {ENDPOINT}]")
@click.option("--out", type=OutputFile(), default="config.yaml", show_default=True, help="The file.")
def init(sources: tuple[str, ...], model: str | None, labels: str | None, endpoint: str | None, out: Path) -> int:
    """Write a configuration for SOURCEs and try it; without SOURCEs, it asks."""
    from daemon.commands.command_line_config import TypedConfig
    from daemon.commands.init import init as run_init
    from daemon.config.root import LogConfig
    from daemon.log import logging

    with logging(LogConfig(format="console")):
        typed = TypedConfig(sources, model or FIRST_MODEL, labels, endpoint)
        return run_init(typed, out, asks_model=model is None)
