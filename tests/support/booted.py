"""A real systemd, booted beside the machine's own by systemd-nspawn.

Its root is this machine's or another one, with an overlay in memory: everything that is installed in it is lost at the
end. Mounts are in a namespace of its own. The network is this machine's, unless it is to have none.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

import psutil

from tests.support.daemon import PATIENCE_S, wait_until

_MOUNT = """
set -e
mount -t tmpfs tmpfs "$0"
mkdir "$0/upper" "$0/work" "$0/root"
mount -t overlay overlay -o "lowerdir=$1,upperdir=$0/upper,workdir=$0/work" "$0/root"
rm -f "$0/root/etc/machine-id"
touch "$0/root/etc/machine-id"
exec systemd-nspawn $2 --quiet --register=no --keep-unit --directory="$0/root" --machine="lookout-$$" --boot \
  --console=pipe systemd.unit=basic.target
"""


@cache
def can_mount() -> bool:
    """Whether this user may mount a file system in memory here, as root may where nothing contains it."""
    probe = ["unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    with suppress(OSError):
        return os.geteuid() == 0 and subprocess.run(probe, capture_output=True, check=False).returncode == 0
    return False


class Booted:
    """One booted systemd.

    Args:
        folder: an empty folder.
        root: what lies under the overlay.
        has_network: this machine's; else a loopback interface of its own, so that no port is taken.
    """

    def __init__(self, folder: Path, root: Path = Path("/"), has_network: bool = True) -> None:
        self._namespaces = ["--mount", "--uts", "--ipc", "--pid", "--cgroup", *([] if has_network else ["--net"])]
        words = [str(folder), str(root), "" if has_network else "--private-network"]
        command = ["unshare", "--mount", "--propagation", "private", "sh", "-c", _MOUNT, *words]
        self._nspawn = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
        self._process: psutil.Process | None = None
        try:
            wait_until(self._is_up, "systemd boots", 3 * PATIENCE_S)
        except BaseException:
            self.close()
            raise

    def _is_up(self) -> bool:
        assert self._nspawn.poll() is None, "systemd-nspawn has ended"
        for child in psutil.Process(self._nspawn.pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):  # nspawn's helpers end meanwhile
                if child.name() == "systemd":
                    self._process = child
                    return self.run("systemctl", "is-system-running", check=False).strip() in ("running", "degraded")
        return False

    @property
    def root(self) -> Path:
        """The root of its file system, as seen from the host."""
        assert self._process is not None
        return Path(f"/proc/{self._process.pid}/root")

    def run(self, *command: str, check: bool = True) -> str:
        """Run a program in it as root; returns its output.

        Raises:
            AssertionError: the program failed, and `check` is set.
        """
        assert self._process is not None
        enter = ["nsenter", "--target", str(self._process.pid), *self._namespaces]
        done = subprocess.run([*enter, *command], capture_output=True, text=True, check=False, timeout=600)
        assert not check or done.returncode == 0, f"{' '.join(command)} failed: {done.stdout}{done.stderr}"
        return done.stdout

    def show(self, unit: str, name: str) -> str:
        """One property of a unit."""
        return self.run("systemctl", "show", "--value", "--property", name, unit).strip()

    def journal(self, unit: str) -> str:
        return self.run("journalctl", "--no-pager", "--output=cat", "--unit", unit)

    def main_process(self, unit: str) -> psutil.Process:
        """A process of a service, by its pid inside."""
        inside = int(self.show(unit, "MainPID"))
        assert self._process is not None
        for process in self._process.children(recursive=True):
            status = Path(f"/proc/{process.pid}/status").read_text()
            if int(status.split("NSpid:")[1].splitlines()[0].split()[-1]) == inside:
                return process
        raise AssertionError(f"{unit} has no process {inside}")

    def close(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGRTMIN + 4)  # power off
            try:
                self._nspawn.wait(20)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._nspawn.kill()
        self._nspawn.wait()

    def __enter__(self) -> Booted:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def copy_sources(root: Path, to: Path) -> None:
    """The files that a clone has."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, check=True).stdout
    names: Sequence[str] = listed.decode().rstrip("\0").split("\0")
    for name in names:
        if (root / name).is_file() or (root / name).is_symlink():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, to / name, follow_symlinks=False)
