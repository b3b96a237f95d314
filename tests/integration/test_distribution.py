"""What is handed out, of the daemon and of the client: source distributions, wheels made from them, what they hold."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
import tarfile
from email.parser import Parser
from pathlib import Path
from zipfile import ZipFile

import pytest

from daemon import __version__
from lookout.testing import Publisher
from tests.support.checkout import alone, builds_here, copy_of_tree, environment, install
from tests.support.daemon import PATIENCE_S, ROOT

PACKAGES = ("daemon", "detectors", "calibration", "lookoutd")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all of them, built as `make dist` does, with the tools that are here."""
    tree = copy_of_tree(tmp_path_factory.mktemp("tree"))
    out = tmp_path_factory.mktemp("dist")
    for folder in (tree / "client", tree):
        command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(folder)]
        subprocess.run(command, check=True)
    return out


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    """The daemon's."""
    (found,) = built.glob("lookoutd-*.whl")
    return found


@pytest.fixture(scope="module")
def client(built: Path) -> Path:
    (found,) = built.glob("lookout_client-*.whl")
    return found


def _files(archive: Path) -> set[str]:
    """Of a source distribution."""
    with tarfile.open(archive) as opened:
        return {Path(*Path(member.name).parts[1:]).as_posix() for member in opened if member.isfile()}


def _metadata(wheel: Path) -> dict[str, list[str]]:
    with ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        message = Parser().parsestr(archive.read(name).decode())
    return {key: message.get_all(key, []) for key in message.keys()}  # noqa: SIM118 - one key may be there several times


@pytest.mark.long
def test_all_are_what_an_index_takes(built: Path) -> None:
    files = sorted(built.iterdir())
    assert [path.suffix for path in files] == [".whl", ".gz"] * 2
    subprocess.run([sys.executable, "-m", "twine", "check", "--strict", *map(str, files)], check=True)


def test_the_client_is_the_package_that_programs_import_and_no_more(client: Path, built: Path) -> None:
    """Typed, with its licence, and with the two packages that it needs."""
    package = {path.relative_to(ROOT).as_posix() for path in (ROOT / "lookout").iterdir() if path.is_file()}
    assert {"lookout/py.typed", "lookout/client.py"} <= package
    held = set(ZipFile(client).namelist())
    assert {name for name in held if ".dist-info/" not in name} == package
    assert {Path(name).name for name in held if "/licenses/" in name} == {"LICENSE"}
    (archive,) = built.glob("lookout_client-*.tar.gz")
    made = {name for name in _files(archive) if ".egg-info/" not in name}
    assert made == {*package, "LICENSE", "README.md", "pyproject.toml", "PKG-INFO", "setup.cfg"}
    needed = _metadata(client)["Requires-Dist"]
    assert {re.match(r"\w+", row)[0] for row in needed} == {"pyzmq", "msgspec"}  # type: ignore[index]
    assert set(needed) <= set(_metadata(next(built.glob("lookoutd-*.whl")))["Requires-Dist"])  # the same lower bounds


def test_the_daemon_asks_for_the_client_of_its_version(wheel: Path, client: Path) -> None:
    assert [_metadata(row)["Version"] for row in (wheel, client)] == [[__version__]] * 2
    assert f"lookout-client=={__version__}" in _metadata(wheel)["Requires-Dist"]


_LISTENS = """
import daemon, lookout.client
from importlib.metadata import version
print(daemon.__doc__, version("lookout-client"), lookout.client.__file__)
try:
    lookout.client.Subscriber(fleet="etcd://127.0.0.1:2379/x")
except lookout.errors.ConfigError as error:
    print(error)
"""


def test_the_client_works_beside_another_package_of_the_daemons_name(client: Path, tmp_path: Path) -> None:
    """In an environment with python-daemon and without Lookout, a program listens. A fleet is refused in one line."""
    bin = environment(tmp_path / "venv")
    install(bin, str(client))
    (site,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    (site / "packages-of-tests.pth").unlink()  # in which Lookout is
    (site / "daemon").mkdir()
    (site / "daemon" / "__init__.py").write_text('"""Of python-daemon."""\n')
    for name in ("zmq", "msgspec"):
        found = importlib.util.find_spec(name)
        assert found is not None
        assert found.origin is not None
        for path in Path(found.origin).parents[1].glob(f"{'pyzmq' if name == 'zmq' else name}.libs"):
            (site / path.name).symlink_to(path)
        (site / name).symlink_to(Path(found.origin).parent)
    done = subprocess.run([bin / "python", "-c", _LISTENS], capture_output=True, text=True, check=False, cwd=tmp_path,
                          env=alone())  # fmt: skip
    assert done.stderr == ""
    said, refused = done.stdout.splitlines()
    assert said == f"Of python-daemon. {__version__} {site / 'lookout' / 'client.py'}"
    assert (
        refused == "Subscriber(fleet=...) needs lookoutd: pip install lookoutd; in a checkout: pip install ./client ."
    )
    with Publisher(timeout_s=PATIENCE_S) as publisher:
        words = [str(bin / "python"), str(ROOT / "docs" / "examples" / "listen_asyncio.py"), publisher.endpoint]
        running = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=tmp_path, env=alone())
        try:
            publisher.source("door").detections()
            assert running.stdout is not None
            assert running.stdout.readline() == "door 0 []\n"
        finally:
            running.kill()
            running.communicate()


def test_the_source_distribution_has_what_the_wheel_is_made_from_and_no_more(built: Path) -> None:
    (file,) = built.glob("lookoutd-*.tar.gz")
    names = _files(file)
    assert {"pyproject.toml", "config.yaml", "models/demo.onnx", "README.md", "CHANGELOG.md"} <= names
    assert {"LICENSE", "THIRD_PARTY.md", "SECURITY.md", "CONTRIBUTING.md"} <= names
    folders = {name.partition("/")[0] for name in names if "/" in name}
    assert folders == {*PACKAGES, "models", "lookoutd.egg-info"}


def test_the_wheel_has_every_file_of_the_packages(wheel: Path) -> None:
    """Kernels, templates and labels as well, and nothing that is not in the tree."""
    held = set(ZipFile(wheel).namelist())
    wanted = {
        path.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {"detectors/trt/kernels/preprocess.cu", "daemon/commands/report/page.html.j2"} <= wanted
    assert {name for name in held if name.startswith(tuple(f"{package}/" for package in PACKAGES))} == wanted
    data = {name.partition(".data/data/")[2] for name in held}
    assert {"share/lookout/config.yaml", "share/lookout/models/demo.onnx"} <= data
    assert {Path(name).name for name in held if "/licenses/" in name} == {"LICENSE", "THIRD_PARTY.md"}


def test_the_wheel_works_where_it_is_installed(wheel: Path, client: Path, tmp_path: Path) -> None:
    """Without the tree: commands, files that come with it, the schemas that the documents show."""
    bin = environment(tmp_path / "venv")
    install(bin, str(client), str(wheel))

    def says(*command: str | Path) -> str:
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=alone())
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    assert says(bin / "lookout", "--version").split()[-1] == wheel.name.split("-")[1]
    assert "evaluate" in says(bin / "lookout", "--help")
    assert "yolox_nano" in says(bin / "lookout", "model", "list")
    where = says(bin / "python", "-c", "import daemon.system.paths as p; print(p.__file__, p.demo_model())").split()
    assert [Path(path).is_relative_to(tmp_path / "venv") for path in where] == [True, True]
    assert "320x320" in says(bin / "lookout", "model", "info", where[1])
    (tmp_path / "schema").mkdir()
    says(bin / "python", "-m", "lookout.messages", "schema")
    assert {path.name: path.read_bytes() for path in (tmp_path / "schema").iterdir()} == {
        path.name: path.read_bytes() for path in (ROOT / "docs" / "schema").iterdir()
    }


@pytest.mark.long
@pytest.mark.needs("debian's venv")
def test_an_upgrade_leaves_the_client_where_the_daemon_had_it_before(tmp_path: Path) -> None:
    """A lookoutd of before owns the client's files. pip removes it after the client has been put there."""
    tree = copy_of_tree(tmp_path / "tree")
    home = tmp_path / "root/opt/lookout"
    subprocess.run(["/usr/bin/python3", "-m", "venv", str(home)], check=True)
    (site,) = home.glob("lib/python3*/site-packages")
    shutil.copytree(ROOT / "lookout", site / "lookout", ignore=shutil.ignore_patterns("__pycache__"))
    facts = site / "lookoutd-0.0.9.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: lookoutd\nVersion: 0.0.9\n")
    (facts / "INSTALLER").write_text("pip\n")
    owned = [path.relative_to(site) for path in [*(site / "lookout").iterdir(), *facts.iterdir()]]
    (facts / "RECORD").write_text("".join(f"{path},,\n" for path in (*owned, f"{facts.name}/RECORD")))
    words = [f"DESTDIR={tmp_path / 'root'}", "PYTHON=/usr/bin/python3", f"MANUAL_PYTHON={sys.executable}", "install"]
    here = builds_here(tmp_path / "setuptools", has_dependencies=True)
    for _ in range(2):  # the second time nothing is left to mend
        subprocess.run(["make", "--silent", "-C", str(tree), *words], check=True, env=here)
        there = {path.name for path in (site / "lookout").iterdir() if path.name != "__pycache__"}
        assert there == {path.name for path in (ROOT / "lookout").iterdir() if path.name != "__pycache__"}
        assert [path.name for path in site.glob("lookoutd-*.dist-info")] == [f"lookoutd-{__version__}.dist-info"]
