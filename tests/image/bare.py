"""`python -m tests.image debian --suite bookworm`: README's commands, then the Debian package, on a bare Debian.

As root, with debootstrap and systemd-nspawn. The root has Debian's base system, python3-venv, make and git, and nothing
else. A user clones HEAD and types README's commands as they stand there, with a drawn street for the camera. The same
user builds the package. It is installed in another overlay over the bare root, which systemd boots without a network:
there it is started, asked, reloaded, installed again, removed, and purged. Prints what came of each step and how long
it took, then how long it took until there were boxes, and ends with 1 if a step failed. On a machine that reaches PyPI
by a proxy see `python -m tests.image.debian -h`.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from markdown_it import MarkdownIt

from tests.image.debian import MADE, Machine, base_of, mirror
from tests.image.steps import Steps, Way, add_options
from tests.support.booted import Booted
from tests.support.daemon import ROOT, wait_until

_UNIT = "lookout"
_CONFIG = "/etc/lookout/config.yaml"
_NOTHING, _INSTALLED = "with a network, from nothing", "without one, all installed"
_DEMO: Sequence[Way] = [("clone to boxes (make demo)", how) for how in (_NOTHING, _INSTALLED)]
_CAMERA: Sequence[Way] = [("own camera to boxes", _INSTALLED)]
_SERVICE: Sequence[Way] = [("service to boxes", how) for how in ("make deb, from nothing", "a package, no network")]
_PATIENCE = "timeout --kill-after=10 1800"
# A recording that the demo model knows, made by what make demo has installed: there is no FFmpeg.
_DRAW = """
from fractions import Fraction
import av
from daemon.sources.scene import Scene
scene = Scene(640, 360, seed=1001, fps=15)
with av.open("street.mkv", "w") as file:
    stream = file.add_stream("mpeg4", rate=15, width=640, height=360, pix_fmt="yuv420p")
    stream.codec_context.time_base = Fraction(1, 15)
    for number in range(300):
        picture = av.VideoFrame.from_ndarray(scene.draw(number), format="bgr24")
        picture.pts = number
        file.mux(stream.encode(picture))
    file.mux(stream.encode())
"""


def _commands() -> list[str]:
    """README's, without what it says beside them."""
    tokens = MarkdownIt().parse((ROOT / "README.md").read_text(encoding="utf-8"))
    text = next(token.content for token in tokens if token.type == "fence" and token.info == "sh")
    return [re.sub(r"\s+#.*", "", line) for line in text.splitlines()]


def _type_readme(machine: Machine, steps: Steps) -> None:
    """Each line, top to bottom. What goes on until Ctrl-C runs beside the line after it."""
    folder, beside = "", ""
    for line in _commands():
        words = line.replace("<this repository>", "origin").replace(
            "rtsp://192.0.2.10/stream1", "street.mkv --model demo"
        )
        if words.startswith("git clone"):
            words = words.replace("git clone", "git -c advice.detachedHead=false clone --quiet")
            steps.take(line, partial(machine.run, words), _DEMO[:1])
            folder = "cd lookout; "
            continue
        if " run " in words:
            beside = f"{words} & echo \\$! >../pid; "
            draw = f"{folder}[ -e street.mkv ] || .venv/bin/python -c '{_DRAW}'"
            steps.take("(a drawn street for the camera)", partial(machine.run, draw.replace('"', '\\"')))
            continue
        if " watch" in words:
            # The daemon needs seconds to come up; a recording that has ended ends it.
            watch = f"timeout 20 {words} --json | grep -q -m 1 lookout.detections"
            tries = f"sees=1; for n in 1 2 3 4 5 6; do if {watch}; then sees=0; break; fi; sleep 1; done"
            whole = f"{folder}{beside}{tries}; kill -INT \\$(cat ../pid) || true; exit \\$sees"
            # The recording and the model are there, and the port may be taken on this machine.
            step = partial(machine.run, whole, has_network=False)
            steps.take(f"{line} (beside the line before it, without a network)", step, _CAMERA)
            continue
        whole = f"{folder}{_PATIENCE} {words}"
        is_demo = words == "make demo"
        steps.take(line, partial(machine.run, whole), _DEMO[:1] if is_demo else ())
        if is_demo:
            step = partial(machine.run, whole, has_network=False)
            steps.take(f"{line} (once more, without a network)", step, _DEMO[1:])


def _build(machine: Machine, steps: Steps, to: Path, arguments: str) -> Path | None:
    """The package, copied out of the machine."""
    if not steps.take("make deb", lambda: machine.run(f"cd lookout; make deb {arguments}"), _SERVICE[:1]):
        return None
    (package,) = (machine.changes / "upper/home/tester/lookout/build/deb").glob("*.deb")
    return Path(shutil.move(package, to / package.name))


def _is_up(systemd: Booted) -> bool:
    return systemd.show(_UNIT, "StatusText").startswith("1 of 1 sources up")


def _reload(systemd: Booted, config: Path) -> None:
    config.write_text(config.read_text().replace("fps: 5", "fps: 4"))
    systemd.run("systemctl", "reload", _UNIT)
    systemd.run("lookout", "reload", "-c", _CONFIG)
    config.write_text(f"{config.read_text()}board: {{depth: -1}}\n")
    refused = systemd.run("sh", "-c", f"systemctl reload {_UNIT} 2>&1; echo rc=$?", check=False)
    config.write_text(config.read_text().replace("board: {depth: -1}\n", ""))
    assert "rc=0" not in refused, "a reload with a mistake is said to have succeeded"
    assert _is_up(systemd), "a refused reload has changed something"


def _try_package(systemd: Booted, package: Path, steps: Steps, ways: Sequence[Way]) -> None:
    config = systemd.root / _CONFIG.lstrip("/")
    state = systemd.root / "var/lib/lookout"

    def install() -> None:
        shutil.copy(package, systemd.root / "root")
        systemd.run("dpkg", "--install", f"/root/{package.name}")

    def once_more() -> None:
        before = systemd.main_process(_UNIT)
        config.write_text(f"# mine\n{config.read_text()}")
        (state / "mine").write_text("x")
        systemd.run("dpkg", "--install", f"/root/{package.name}")
        wait_until(lambda: _is_up(systemd), "the source is up again")
        assert not before.is_running(), "the daemon of before runs on"
        assert config.read_text().startswith("# mine"), "the configuration is another"

    def remove() -> None:
        systemd.run("dpkg", "--remove", "lookout")
        assert systemd.show(_UNIT, "ActiveState") != "active", "it still runs"
        assert config.exists(), "the configuration is gone"
        assert (state / "mine").exists(), "the state is gone"
        assert not (systemd.root / "usr/lib/lookout").exists(), "files of the package are left"

    def purge() -> None:
        systemd.run("dpkg", "--purge", "lookout")
        assert not config.exists(), "the configuration is left"
        assert (state / "mine").exists(), "the state is gone"

    if not steps.take(f"dpkg --install {package.name} ({package.stat().st_size / 1e6:.0f} MB)", install, ways):
        return
    steps.take(f"lookout check -c {_CONFIG}", lambda: systemd.run("lookout", "check", "-c", _CONFIG))
    steps.take("systemctl enable --now lookout", lambda: systemd.run("systemctl", "enable", "--now", _UNIT), ways)
    steps.take("its source is up", lambda: wait_until(lambda: _is_up(systemd), "the source is up"), ways)
    watch = ("lookout", "watch", "--once", "--timeout", "60")
    steps.take("lookout watch sees boxes", lambda: systemd.run(*watch), ways)
    steps.take("it runs as a user of its own", lambda: systemd.main_process(_UNIT).uids().real > 0)
    steps.take("lookout health", lambda: systemd.run("lookout", "health", "-c", _CONFIG))
    steps.take(f"lookout status -c {_CONFIG}", lambda: systemd.run("lookout", "status", "-c", _CONFIG))
    steps.take(
        "systemctl reload lookout, lookout reload, and a reload with a mistake", lambda: _reload(systemd, config)
    )
    steps.take("the same package once more, beside a configuration that was changed", once_more)
    steps.take("dpkg --remove keeps configuration and state", remove)
    steps.take("installed again", lambda: systemd.run("dpkg", "--install", f"/root/{package.name}"))
    steps.take("dpkg --purge takes the configuration, and keeps the state", purge)


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.image debian", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser)
    parser.add_argument("--deb", type=Path, help="a package that is there already: only install it")
    parser.add_argument("--deb-arguments", default="", help="for make deb, such as DEB_ARGS=--compression=none")
    args = parser.parse_args(words)
    steps = Steps()
    bases: list[Path] = []
    steps.take("debootstrap", lambda: bases.append(base_of(args.suite, args.mirror or mirror())))
    if not bases:
        return 1
    log = MADE / f"{args.suite}-{os.getpid()}.log"
    package = args.deb
    if package is None:
        machine = Machine(bases[0], log, "1000:1000", args.env, args.volume)
        try:
            _type_readme(machine, steps)
            package = _build(machine, steps, MADE, args.deb_arguments)
        finally:
            machine.close()
    if package is not None:
        with tempfile.TemporaryDirectory() as folder, Booted(Path(folder), bases[0], has_network=False) as systemd:
            _try_package(systemd, package, steps, _SERVICE[1:] if args.deb else _SERVICE)
            log.open("a").write(systemd.journal(_UNIT))
    sys.stdout.write("".join(f"{line}\n" for line in steps.stopwatch()))
    sys.stdout.write(f"{log}\n")
    return min(steps.failed, 1)
