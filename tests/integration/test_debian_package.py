"""The Debian package: what is in it, and what its scripts do to a machine.

Here it has no package but Lookout's own, so it is small and cannot detect. `python -m tests.image debian` builds it
whole on a bare Debian, boots a systemd over it, and runs the daemon.
"""

from __future__ import annotations

import configparser
import os
import re
import shutil
import stat
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from daemon.config.load import load
from tests.support.booted import Booted
from tests.support.checkout import builds_here, copy_of_tree

UNITS = ("lookout.service", "lookout@.service", "lookout-dashboard.service", "lookout-bridge.service")
_HOME = "usr/lib/lookout"
pytestmark = [pytest.mark.slow(4), pytest.mark.needs("dpkg-deb", "debian's venv")]


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As `make deb` makes it, of a tree in which another version was built; its folder may be written in any way."""
    folder = tmp_path_factory.mktemp("deb")
    tree = copy_of_tree(tmp_path_factory.mktemp("tree"))
    (tree / "build/lib/daemon").mkdir(parents=True)
    (tree / "build/lib/daemon/of_before.py").touch()
    words = [f"DEB_DIR={os.path.relpath(folder, tree)}/", "DEB_LOCK=", "DEB_ARGS=--compression=none --no-compile",
             f"MANUAL_PYTHON={sys.executable}"]  # fmt: skip
    here = builds_here(tmp_path_factory.mktemp("pip") / "setuptools")
    subprocess.run(["make", "--silent", "-C", str(tree), *words, "deb"], check=True, env=here)
    (found,) = folder.glob("lookout_*.deb")
    return found


@pytest.fixture(scope="module")
def unpacked(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unpacked")
    subprocess.run(["dpkg-deb", "--raw-extract", str(package), str(folder)], check=True)
    return folder


def _rows(package: Path) -> dict[str, str]:
    fields = subprocess.run(["dpkg-deb", "--field", str(package)], check=True, capture_output=True, text=True).stdout
    return dict(re.findall(r"^(\S+): (.*)$", fields, re.M))


def test_its_name_says_what_it_is_for(package: Path) -> None:
    rows = _rows(package)
    python = subprocess.run(["/usr/bin/python3", "-c", "import sys; print(sys.version_info[1])"],
                            check=True, capture_output=True, text=True).stdout.strip()  # fmt: skip
    assert re.fullmatch(r"lookout_\d+\.\d+\.\d+(~\w+)?(\+[\w.]+)?_\w+\.deb", package.name)
    assert package.name == f"{rows['Package']}_{rows['Version']}_{rows['Architecture']}.deb"
    # An environment is for one Python: apt says so before the service does.
    assert f"python3 (>= 3.{python}), python3 (<< 3.{int(python) + 1})" in rows["Depends"]


def test_what_is_in_it(package: Path, unpacked: Path) -> None:
    listed = subprocess.run(["dpkg-deb", "--fsys-tarfile", str(package)], check=True, capture_output=True).stdout
    (unpacked.parent / "files.tar").write_bytes(listed)
    with tarfile.open(unpacked.parent / "files.tar") as files:
        members = files.getmembers()
    assert {(row.uid, row.gid) for row in members} == {(0, 0)}
    assert [row.name for row in members if not row.issym() and row.mode & 0o022] == []
    tops = {name for name in (row.name.removeprefix("./") for row in members) if name.count("/") == 1}
    assert {name.partition("/")[0] for name in tops} == {"etc", "usr"}  # nothing in /opt, /usr/local, /var
    assert (unpacked / "usr/bin/lookout").readlink() == Path("../lib/lookout/bin/lookout")
    for name in ("lib/sysusers.d/lookout.conf", "share/doc/lookout/copyright", "share/doc/lookout/changelog.gz",
                 "share/doc/lookout/docs/runbooks.md", "lib/lookout/share/lookout/backup.py"):  # fmt: skip
        assert (unpacked / "usr" / name).is_file(), name
    for name in ("man/man1/lookout.1.gz", "bash-completion/completions/lookout"):
        assert (unpacked / "usr/share" / name).is_file(), name
    (licences,) = (unpacked / _HOME / "lib").glob("python*/site-packages/lookoutd-*.dist-info/licenses")
    assert {path.name for path in licences.iterdir()} == {"LICENSE", "THIRD_PARTY.md"}
    assert (licences.parents[1] / "daemon/cli.py").is_file()
    assert not (licences.parents[1] / "daemon/of_before.py").exists()
    assert (licences.parents[1] / "lookout/client.py").is_file()


def test_nothing_names_where_it_was_built(unpacked: Path, package: Path) -> None:
    home = unpacked / _HOME
    assert (home / "bin/lookout").read_text().startswith(f"#!/{_HOME}/bin/python")
    assert f"/{_HOME}" in (home / "pyvenv.cfg").read_text()
    assert {path.name.rstrip("0123456789.") for path in (home / "bin").iterdir()} == {"lookout", "python"}
    built_at = str(package.parent.parent).encode()  # pytest's folder, in which the tree and the package are
    files = [path for path in unpacked.rglob("*") if path.is_file() and not path.is_symlink()]
    assert [str(path) for path in files if built_at in path.read_bytes()] == []
    assert [row for path in home.rglob("RECORD") for row in path.read_text().splitlines() if "direct_url" in row] == []
    assert not list(home.glob("lib/python*/site-packages/pip"))  # apt installs here


def test_what_somebody_may_change_stays_at_an_upgrade(unpacked: Path) -> None:
    conffiles = set((unpacked / "DEBIAN/conffiles").read_text().splitlines())
    there = {f"/{path.relative_to(unpacked)}" for path in (unpacked / "etc").rglob("*") if path.is_file()}
    assert (
        conffiles == there == {"/etc/lookout/config.yaml", "/etc/lookout/models/demo.onnx", "/etc/logrotate.d/lookout"}
    )


@pytest.mark.parametrize("name", UNITS)
def test_units_run_what_is_in_it(unpacked: Path, name: str) -> None:
    text = (unpacked / "usr/lib/systemd/system" / name).read_text()
    assert re.findall(r"^Exec\w+=(/\S+/lookout)", text, re.M)[0] == f"/{_HOME}/bin/lookout"
    assert "/opt/" not in text


@pytest.mark.parametrize("name", UNITS[:2])
def test_what_is_recorded_has_an_owner_that_stays(unpacked: Path, name: str) -> None:
    drop_in = configparser.ConfigParser()
    drop_in.read(unpacked / "usr/lib/systemd/system" / f"{name}.d/10-user.conf")
    user = drop_in["Service"]["User"]
    assert drop_in["Service"]["DynamicUser"] == "no"
    assert re.search(rf"^u {user} ", (unpacked / "usr/lib/sysusers.d/lookout.conf").read_text(), re.M)


def test_its_configuration_is_one(unpacked: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOOKOUT_TOKEN", "0" * 64)
    config = load(unpacked / "etc/lookout/config.yaml")
    assert config.http.enabled
    assert config.sources
    assert config.model is not None


@pytest.mark.needs("systemd-container", "mounts")
def test_installed_upgraded_removed_and_purged(package: Path, tmp_path: Path) -> None:
    """On a machine that a systemd has booted. Every script comes twice, and keeps what it must."""
    with Booted(tmp_path) as systemd:
        for name in ("etc/lookout", "opt/lookout", "var/lib/lookout"):  # of this machine, if it has any
            systemd.run("rm", "-rf", f"/{name}")
        shutil.copy(package, systemd.root / "root/lookout.deb")
        for step in _lives(systemd):
            step()


def _lives(systemd: Booted) -> Iterator[Callable[[], None]]:
    root = systemd.root
    config, secrets, state = (
        root / "etc/lookout/config.yaml",
        root / "etc/lookout/environment",
        root / "var/lib/lookout",
    )
    install = ("dpkg", "--force-depends", "--install", "/root/lookout.deb")

    def installed() -> None:
        systemd.run(*install)
        assert "lookout" in systemd.run("getent", "passwd", "lookout")
        assert stat.S_IMODE(secrets.stat().st_mode) == 0o600
        assert re.search(r"^LOOKOUT_TOKEN=[0-9a-f]{64}$", secrets.read_text(), re.M)
        assert systemd.show("lookout", "LoadState") == "loaded"
        assert systemd.show("lookout", "ActiveState") == "inactive"  # before somebody has named cameras

    def upgraded() -> None:
        kept = secrets.read_text()
        config.write_text("sources: mine\n")
        state.mkdir()
        (state / "events.sqlite").write_text("events")
        systemd.run(*install)
        systemd.run("dpkg", "--configure", "--force-depends", "lookout", check=False)
        assert (config.read_text(), secrets.read_text()) == ("sources: mine\n", kept)

    def removed() -> None:
        (root / "usr/lib/lookout/made-by-python").write_text("x")
        systemd.run("dpkg", "--remove", "lookout")
        assert not (root / "usr/lib/lookout").exists()
        assert systemd.show("lookout", "LoadState") == "not-found"
        assert config.read_text() == "sources: mine\n"
        assert (state / "events.sqlite").exists()

    def purged() -> None:
        (root / "etc/lookout/door.key").write_text("mine")
        for name in ("log/lookout-hall", "log/private/lookout-hall", "cache/private/lookout-hall"):
            (root / "var" / name).mkdir(parents=True)
        said = systemd.run("dpkg", "--purge", "lookout")
        assert "kept, because nothing brings it back: /var/lib/lookout" in said
        assert sorted(path.name for path in (root / "etc/lookout").iterdir()) == ["door.key"]
        assert [str(path) for name in ("log", "cache") for path in (root / "var" / name).rglob("lookout*")] == []
        assert (state / "events.sqlite").exists()
        systemd.run(*install)  # as if for the first time
        assert re.search(r"^LOOKOUT_TOKEN=", secrets.read_text(), re.M)

    yield from (installed, upgraded, removed, purged)
