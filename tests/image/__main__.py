"""`python -m tests.image`: builds an image and tries it as it would be run: read-only, not as root, healthy.
`python -m tests.image debian --suite bookworm`: README's commands and the Debian package on a bare Debian.
`python -m tests.image arm64`: the demo and contract tests on a Debian for ARM that is emulated.

As root, with Debian's buildah and runc; no container daemon is needed. Prints what it found and ends with 1 if that is
not what an operator may expect.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from time import monotonic
from typing import Any

import psutil
import yaml
from rich.console import Console
from rich.table import Table

from lookout.client import Subscriber
from lookout.messages import Detections
from tests.image import arm64, bare
from tests.support.daemon import ROOT, wait_until
from tests.support.ports import free_port

_MOST_BYTES = {"cpu": 500_000_000, "rtx": 6_000_000_000}  # on top of the base
_TO_STOP_S = 5.0
_NAME = "lookout-image-test"
_RUN = ("runc",)


def _say(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def _build(base: str, volumes: list[str], target: str) -> str:
    """The image's number."""
    with tempfile.NamedTemporaryFile() as file:
        mounts = [part for volume in volumes for part in ("--volume", volume)]
        command = ["buildah", "build", "--isolation=chroot", "--format=docker", f"--target={target}"]
        named = [f"--iidfile={file.name}", f"--build-arg=PYTHON_BASE={base}"]
        subprocess.run([*command, *named, *mounts, str(ROOT)], check=True)
        return Path(file.name).read_text()


@contextmanager
def _mounted(image: str) -> Iterator[Path]:
    """The image's files, in a container that nobody runs."""
    container = _say("buildah", "from", image)
    try:
        yield Path(_say("buildah", "mount", container))
    finally:
        _say("buildah", "rm", container)


def _bundle(folder: Path, root: Path, image: dict[str, Any], endpoint: str) -> None:
    """What `docker run --read-only --tmpfs /tmp --network host` makes of an image, without limits of this machine."""
    _say(*_RUN, "spec", "--bundle", str(folder))
    spec = json.loads((folder / "config.json").read_text())
    config = folder / "lookout.yaml"
    sources = [{"id": "street", "type": "synthetic", "fps": 10}]
    whole = {"sources": sources, "publisher": {"endpoint": endpoint}, "model": {"path": "models/demo.onnx"}}
    config.write_text(yaml.safe_dump(whole))
    user = int(image["User"])
    spec["process"] |= {
        "terminal": False,
        "user": {"uid": user, "gid": user},
        "args": [*image["Entrypoint"], *image["Cmd"]],
        "env": image["Env"],
        "cwd": image["WorkingDir"],
        "rlimits": [],
        "capabilities": {},
    }
    spec["root"] = {"path": str(root), "readonly": True}
    spec["linux"] |= {"namespaces": [{"type": kind} for kind in ("pid", "ipc", "uts", "mount")], "resources": {}}
    spec["mounts"] = [mount for mount in spec["mounts"] if mount["type"] != "cgroup"]
    owned = [f"uid={user}", f"gid={user}", "mode=700"]
    for place, options in (("/tmp", ["mode=1777"]), *((volume, owned) for volume in image["Volumes"])):  # noqa: S108
        spec["mounts"].append({"destination": place, "type": "tmpfs", "source": "tmpfs", "options": options})
    spec["mounts"].append(
        {"destination": "/etc/lookout/config.yaml", "type": "bind", "source": str(config), "options": ["bind", "ro"]}
    )
    (folder / "config.json").write_text(json.dumps(spec))


def _in_it(*command: str) -> bool:
    """Whether a command succeeds in the container."""
    return subprocess.run([*_RUN, "exec", _NAME, *command], capture_output=True, check=False).returncode == 0


def _try(folder: Path, root: Path, image: dict[str, Any]) -> dict[str, bool]:
    endpoint = f"tcp://127.0.0.1:{free_port()}"
    _bundle(folder, root, image, endpoint)
    found: dict[str, bool] = {}
    log = folder / "log"
    with log.open("w") as stderr, closing(Subscriber(endpoint)) as subscriber:
        running = subprocess.Popen([*_RUN, "run", "--bundle", str(folder), _NAME], stderr=stderr)
        try:
            wait_until(lambda: isinstance(subscriber.receive(0.2), Detections), "detections")
            found["detects"] = True
            found["its health check passes"] = _in_it(*image["Healthcheck"]["Test"][1:])
            first = psutil.Process(json.loads(_say(*_RUN, "state", _NAME))["pid"])
            found["runs as a user of its own"] = all(
                process.uids().real == int(image["User"]) for process in (first, *first.children(recursive=True))
            )
            found["its root is read-only"] = not _in_it("touch", "/etc/lookout/x") and not _in_it("touch", "/x")
            found["its cache can be written"] = _in_it("touch", "/var/cache/lookout/x")
            found["has no tools to build with"] = not _in_it("pip", "--version") and not _in_it("gcc", "--version")
            began = monotonic()
            first.terminate()
            found["stops cleanly in 5 s"] = running.wait(30) == 0 and monotonic() - began < _TO_STOP_S
        except AssertionError:
            sys.stderr.write(log.read_text())
            raise
        finally:
            subprocess.run([*_RUN, "delete", "--force", _NAME], capture_output=True, check=False)
            running.kill()
            running.wait()
    found["no traceback in its log"] = "Traceback" not in log.read_text()
    return found


def _size(image: str) -> int:
    """Of all its files, bytes."""
    with _mounted(image) as root:
        return sum(path.lstat().st_size for path in root.rglob("*") if path.is_file() and not path.is_symlink())


def main() -> int:
    if sys.argv[1:2] == ["debian"]:
        return bare.main(sys.argv[2:])
    if sys.argv[1:2] == ["arm64"]:
        return arm64.main(sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", default="docker.io/library/python:3.12-slim-bookworm", help="image to build on")
    parser.add_argument("--volume", action="append", default=[], help="for the build, such as pip's configuration")
    parser.add_argument(
        "--target", default="cpu", choices=_MOST_BYTES, help="rtx: for RTX cards; tried on the CPU as well"
    )
    parser.add_argument("--keep", action="store_true", help="the image, when done")
    args = parser.parse_args()
    console = Console()
    image = _build(args.base, args.volume, args.target)
    try:
        about = json.loads(_say("buildah", "inspect", "--type=image", image))
        size, under = _size(image), _size(args.base)
        what = f"{size / 1e6:.0f} MB, of which {under / 1e6:.0f} are its base"
        found = {what: size - under < _MOST_BYTES[args.target]}
        with tempfile.TemporaryDirectory() as folder, _mounted(image) as root:
            found |= _try(Path(folder), root, about["Docker"]["config"])
    finally:
        if not args.keep:
            _say("buildah", "rmi", image)
    table = Table("", "")
    for what, holds in found.items():
        table.add_row(what, "yes" if holds else "[red]no")
    console.print(table)
    return 0 if all(found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
