"""`python3 deploy/debian/package.py TREE OUT`: a Debian package of what `make install` has put into a tree.

`make deb` runs it, with Debian's own Python and nothing else. The package holds a virtual environment for one version
of Python, so each release of Debian needs its own.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import os
import re
import shutil
import subprocess
import sys
from datetime import datetime, timezone
from email.utils import format_datetime
from pathlib import Path

_HERE = Path(__file__).parent
_SCRIPTS = ("postinst", "prerm", "postrm")
_UNITS_OF_THE_USER = ("lookout.service", "lookout@.service")
# Of wheels: tests of numpy and others, which nobody runs; and what installs packages, which here is apt.
_LEFT_OUT = (
    "pip",
    "pip-*",
    "setuptools",
    "setuptools-*",
    "_distutils_hack",
    "distutils-precedence.pth",
    "pkg_resources",
)
_DESCRIPTION = """real-time video analytics: cameras in, boxes, tracks and events out
 One service that watches many video streams, finds the objects in them, and
 publishes boxes, tracks and events over ZeroMQ, with a count of every frame
 that it had no time for. It records, and tells others by MQTT, Kafka, NATS,
 Redis and webhooks.
 .
 This package has all Python packages that it needs, in /usr/lib/lookout. It
 computes on the CPU."""


def _run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()  # noqa: S603


def _made_at() -> datetime:
    """SOURCE_DATE_EPOCH, or the time of the commit, so that one commit gives one package; else now."""
    seconds = os.environ.get("SOURCE_DATE_EPOCH", "")
    if not seconds:
        git = ["git", "-C", str(_HERE), "log", "-1", "--format=%ct"]
        done = subprocess.run(git, capture_output=True, text=True, check=False)  # noqa: S603
        seconds = done.stdout.strip()
    return datetime.fromtimestamp(int(seconds), timezone.utc) if seconds else datetime.now(timezone.utc)


def _release() -> str:
    """Such as +deb12, so that an upgrade of Debian brings the package of the new one."""
    known = dict(line.split("=", 1) for line in Path("/etc/os-release").read_text().splitlines() if "=" in line)
    system, number = (known.get(name, "").strip('"') for name in ("ID", "VERSION_ID"))
    return f"+{'deb' if system == 'debian' else system}{number}" if number else ""


def _tidy(home: Path) -> Path:
    """Leave out of the environment what a package has no use for; returns its site-packages."""
    (site,) = home.glob("lib/python3*/site-packages")
    for pattern in _LEFT_OUT:
        for path in site.glob(pattern):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    for folder in [*site.rglob("tests"), *home.rglob("__pycache__")]:
        if folder.is_dir():
            shutil.rmtree(folder)
    for path in site.glob("*.dist-info/direct_url.json"):  # names the checkout
        rows = (path.parent / "RECORD").read_text(encoding="utf-8").splitlines(keepends=True)
        kept = [row for row in rows if not row.startswith(f"{path.relative_to(site)},")]
        (path.parent / "RECORD").write_text("".join(kept), encoding="utf-8")
        path.unlink()
    for path in (home / "bin").iterdir():
        if path.name != "lookout" and not path.name.startswith("python"):
            path.unlink()
    return site


def _compile(tree: Path, home: Path) -> None:
    """As files that name where they will lie, and that hold whatever their times are."""
    place = ["-s", str(tree), "-p", "/", "--invalidation-mode", "unchecked-hash"]
    _run(str(home / "bin/python"), "-m", "compileall", "-q", "-j", "0", *place, str(home / "lib"))


def _compress(path: Path) -> None:
    with gzip.GzipFile(f"{path}.gz", "wb", compresslevel=9, mtime=0) as file:
        file.write(path.read_bytes())
    path.unlink()


def _write_documents(tree: Path, version: str, maintainer: str, made_at: datetime) -> None:
    documents = tree / "usr/share/doc/lookout"
    shutil.copy(_HERE / "copyright", documents)
    shutil.copy(_HERE.parents[1] / "requirements/cpu.lock", documents / "requirements.lock")
    (documents / "LICENSE").unlink(missing_ok=True)  # /usr/share/common-licenses has it
    changes = documents / "changelog"
    changes.write_text(
        f"lookout ({version}) stable; urgency=medium\n\n"
        f"  * {documents.relative_to(tree)}/CHANGELOG.md says what is new.\n\n"
        f" -- {maintainer}  {format_datetime(made_at)}\n"
    )
    _compress(changes)
    for page in (tree / "usr/share/man").rglob("*.[0-9]"):
        _compress(page)
    for name, place in (
        ("sysusers.conf", "usr/lib/sysusers.d/lookout.conf"),
        ("overrides", "usr/share/lintian/overrides/lookout"),
    ):
        (tree / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(_HERE / name, tree / place)
    for unit in _UNITS_OF_THE_USER:
        folder = tree / f"usr/lib/systemd/system/{unit}.d"
        folder.mkdir(exist_ok=True)
        shutil.copy(_HERE / "user.conf", folder / "10-user.conf")


def _write_control(tree: Path, python: str, version: str, maintainer: str) -> None:
    control = tree / "DEBIAN"
    control.mkdir()
    files = sorted(path for path in tree.rglob("*") if path.is_file() and not path.is_symlink())
    minor = int(python.partition(".")[2])
    needs = [f"python3 (>= 3.{minor})", f"python3 (<< 3.{minor + 1})", "libc6", "libgcc-s1", "libstdc++6",
             "systemd | systemd-standalone-sysusers | systemd-sysusers"]  # fmt: skip
    rows = {
        "Package": "lookout",
        "Version": version,
        "Architecture": _run("dpkg", "--print-architecture"),
        "Maintainer": maintainer,
        "Installed-Size": str(sum(path.stat().st_size for path in files) // 1024 + 1),
        "Depends": ", ".join(needs),
        "Suggests": "bash-completion, logrotate",
        "Section": "video",
        "Priority": "optional",
        "Description": _DESCRIPTION,
    }
    (control / "control").write_text("".join(f"{key}: {value}\n" for key, value in rows.items()))
    configured = [f"/{path.relative_to(tree)}" for path in files if path.is_relative_to(tree / "etc")]
    (control / "conffiles").write_text("".join(f"{path}\n" for path in configured))
    sums = (
        (hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest(), path.relative_to(tree)) for path in files
    )
    (control / "md5sums").write_text(
        "".join(f"{digest}  {path}\n" for digest, path in sums if f"/{path}" not in configured)
    )
    for name in _SCRIPTS:
        shutil.copy(_HERE / name, control)
        (control / name).chmod(0o755)


def _is_script(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(2) == b"#!"


def _set_modes(tree: Path) -> None:
    """Those of a package, whatever the umask of the user that builds it; links within /usr are relative."""
    for path in [tree, *tree.rglob("*")]:
        if path.is_symlink():
            if (target := path.readlink()).is_absolute():
                path.unlink()
                path.symlink_to(os.path.relpath(tree / target.relative_to("/"), path.parent))
            continue
        runs = path.is_dir() or (path.stat().st_mode & 0o100 and _is_script(path))
        path.chmod(0o755 if runs else 0o644)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tree", type=Path, help="what make install has made, by DESTDIR")
    parser.add_argument("out", type=Path, help="folder for the package")
    parser.add_argument("--compression", default="xz", help="of dpkg-deb; none is quick")
    parser.add_argument("--no-compile", action="store_true", help="without what Python makes of its files; for tests")
    args = parser.parse_args()
    home = args.tree / "usr/lib/lookout"
    (args.tree / "etc/lookout/environment").unlink(missing_ok=True)  # postinst makes it
    site = _tidy(home)
    (known,) = site.glob("lookoutd-*.dist-info")
    number = re.sub(r"^(\d+(?:\.\d+)*)\.?(a|b|rc|dev)", r"\1~\2", known.name.split("-")[1].removesuffix(".dist"))
    version = f"{number}{_release()}"
    name = os.environ.get("DEBFULLNAME", "Lookout's maintainers")
    maintainer = f"{name} <{os.environ.get('DEBEMAIL', 'maintainers@lookout.invalid')}>"
    if not args.no_compile:
        _compile(args.tree, home)
    made_at = _made_at()
    _write_documents(args.tree, version, maintainer, made_at)
    _write_control(args.tree, site.parent.name.removeprefix("python"), version, maintainer)
    _set_modes(args.tree)
    os.environ["SOURCE_DATE_EPOCH"] = str(int(made_at.timestamp()))
    build = ["dpkg-deb", "--root-owner-group", f"-Z{args.compression}", "--build", str(args.tree), str(args.out)]
    sys.stdout.write(f"{_run(*build)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
