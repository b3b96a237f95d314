"""`python -m tests.image.debian --release bookworm`: `make demo` and `make test` in a clone of HEAD on a bare Debian.

As root, with debootstrap. The root has Debian's base system, python3-venv, make and git, and nothing else. It is made
once, and each time lies under an overlay, in namespaces of its own. Prints what came of each time, and ends with 1 if
something failed. On a machine that reaches PyPI by a proxy:

python -m tests.image.debian --volume /etc/ssl/certs --env PIP_CERT=/etc/ssl/certs/ca-certificates.crt
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import monotonic

from tests.support.daemon import ROOT

MADE = ROOT / "build" / "debian"
PACKAGES = "python3-venv,make,git"
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_USER = "1000:1000"
_HOME = "/home/tester"
# In a mount namespace of its own. $1: the base, $2: a folder for what changes, $3: what to run in it, by chroot; then
# folders and files of this machine that it sees. There is no /sys: on that of another processor onnxruntime for ARM
# crashes.
_ENTER = """
set -e
base=$1 changes=$2 run=$3
shift 3
root=$changes/root
mkdir -p "$root" "$changes/upper" "$changes/work"
mount -t overlay overlay -o "lowerdir=$base,upperdir=$changes/upper,workdir=$changes/work" "$root"
mount -t proc proc "$root/proc"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
mkdir "$root/dev/shm" "$root/dev/pts"
mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
mount -t devpts -o ptmxmode=666 devpts "$root/dev/pts"
ln -s pts/ptmx "$root/dev/ptmx"
for device in {devices}; do touch "$root/dev/$device" && mount --bind "/dev/$device" "$root/dev/$device"; done
ln -s /proc/self/fd "$root/dev/fd"
cp -L /etc/resolv.conf "$root/etc/resolv.conf"
for path in "$@"; do
  if [ -d "$path" ]; then mkdir -p "$root$path"; else mkdir -p "$(dirname "$root$path")" && touch "$root$path"; fi
  mount --rbind "$path" "$root$path"
done
exec sh -c "$run" "$root"
""".replace("{devices}", " ".join(_DEVICES))


def mirror() -> str:
    """Of Debian's packages, where this machine has its own from."""
    command = ["apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE)", "Created-By: Packages"]
    rows = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    for address, release in (row.split() for row in rows):
        if address.rstrip("/").endswith("/debian") and "-" not in release:
            return address
    raise SystemExit("apt knows no mirror of Debian: name one by --mirror")


def base_of(release: str, address: str) -> Path:
    """The root as debootstrap makes it."""
    return _once(release, lambda begun: _bootstrap([f"--include={PACKAGES}"], release, begun, address))


def foreign_base_of(release: str, address: str, architecture: str, *packages: str) -> Path:
    """The same for another architecture, whose programs this machine can run.

    Args:
        packages: more of Debian's.
    """

    def make(begun: Path) -> None:
        include = ",".join([PACKAGES, *packages])
        _bootstrap(["--foreign", f"--arch={architecture}", f"--include={include}"], release, begun, address)
        _alone("chroot", str(begun), "/debootstrap/debootstrap", "--second-stage")

    return _once(f"{release}-{architecture}", make)


def _once(name: str, make: Callable[[Path], None]) -> Path:
    """A folder that is whole if it is there."""
    MADE.mkdir(parents=True, exist_ok=True)
    base = MADE / name
    if not base.exists():
        begun = base.with_name(f"{name}.begun")
        shutil.rmtree(begun, ignore_errors=True)
        make(begun)
        begun.rename(base)
    return base


def _bootstrap(options: Sequence[str], release: str, to: Path, address: str) -> None:
    _alone("debootstrap", *options, release, str(to), address)


def _alone(*command: str) -> None:
    """Run it where its mounts end with it, so that what it leaves unfinished can be removed."""
    private = ["unshare", "--mount", "--propagation", "private"]
    subprocess.run([*private, *command], check=True, stdout=subprocess.DEVNULL)


class Machine:
    """A bare Debian with a clone, for one try.

    Args:
        environment: variables of its user.
        volumes: folders and files of this machine that it sees.
    """

    def __init__(self, base: Path, log: Path, user: str, environment: Sequence[str], volumes: Sequence[str]) -> None:
        self._base, self._log, self._user = base, log, user
        self._environment = ["PATH=/usr/bin:/bin", f"HOME={_HOME}", "LANG=C.UTF-8", *environment]
        self._volumes = volumes
        self.changes = log.with_suffix("")
        shutil.rmtree(self.changes, ignore_errors=True)
        home = self.changes / "upper" / _HOME.lstrip("/")
        home.mkdir(parents=True)
        subprocess.run(["git", "bundle", "create", "--quiet", str(home / "origin"), "HEAD"], cwd=ROOT, check=True)
        for path in (home, home / "origin"):
            os.chown(path, *(int(number) for number in user.split(":")))
        users = self.changes / "upper/etc/passwd"
        users.parent.mkdir()
        users.write_text(f"{(base / 'etc/passwd').read_text()}tester:x:{_USER}::{_HOME}:/bin/sh\n")

    def run(self, command: str, has_network: bool = True) -> bool:
        """Whether a command succeeds, in the user's home; what it prints is added to the log.

        Args:
            has_network: this machine's; else nothing but a loopback interface of its own.
        """
        inner = f'exec chroot --userspec={self._user} "$0" env -i {" ".join(self._environment)} sh -ec "cd; {command}"'
        namespaces = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private"]
        enter = _ENTER
        if not has_network:
            namespaces, enter = [*namespaces, "--net"], f"ip link set lo up\n{_ENTER}"
        words = [*namespaces, "sh", "-c", enter, "-", str(self._base), str(self.changes), inner, *self._volumes]
        with self._log.open("a") as log:
            done = subprocess.run(words, check=False, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
        return done.returncode == 0

    def close(self) -> None:
        shutil.rmtree(self.changes, ignore_errors=True)


@contextmanager
def _busy(count: int) -> Iterator[None]:
    """Loops beside, each of which would have a core for itself."""
    loops = [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--release", default="bookworm", help="of Debian, such as trixie")
    parser.add_argument("--mirror", help="of Debian; left out: apt's")
    parser.add_argument("--volume", action="append", default=[], help="folder or file of this machine to be seen there")
    parser.add_argument("--env", action="append", default=[], help="NAME=VALUE for its user")
    parser.add_argument("--root", action="store_true", help="its user is root")
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--busy", type=int, default=0, help="loops that are busy beside it")
    parser.add_argument("--test", default="make test", help="the command after make demo")
    return parser.parse_args()


def main() -> int:
    args = _arguments()
    base = base_of(args.release, args.mirror or mirror())
    user = "0:0" if args.root else _USER
    failed = 0
    for number in range(args.times):
        log = MADE / f"{args.release}-{os.getpid()}-{number}.log"
        machine = Machine(base, log, user, args.env, args.volume)
        with _busy(args.busy):
            for command in (
                "git -c advice.detachedHead=false clone --quiet origin lookout",
                "cd lookout; make demo",
                f"cd lookout; {args.test}",
            ):
                began = monotonic()
                is_good = machine.run(command)
                failed += not is_good
                last = log.read_text().rstrip().rpartition("\n")[2]
                sys.stdout.write(f"{'good' if is_good else 'FAILED'}, {monotonic() - began:.0f} s: {command}: {last}\n")
                sys.stdout.flush()
        machine.close()
        sys.stdout.write(f"{log}\n")
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
