"""What is handed out: a source distribution, the wheel made from it, and what both of them hold."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.support.checkout import alone, copy_of_tree, environment, install
from tests.support.daemon import ROOT

PACKAGES = ("daemon", "detectors", "calibration", "lookout", "lookoutd")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with both, built as `make dist` does, with the tools that are here."""
    tree = copy_of_tree(tmp_path_factory.mktemp("tree"))
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(tree)]
    subprocess.run(command, check=True)
    return out


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    (found,) = built.glob("*.whl")
    return found


def test_both_are_what_an_index_takes(built: Path) -> None:
    files = sorted(built.iterdir())
    assert [path.suffix for path in files] == [".whl", ".gz"]
    subprocess.run([sys.executable, "-m", "twine", "check", "--strict", *map(str, files)], check=True)


def test_the_source_distribution_has_what_the_wheel_is_made_from_and_no_more(built: Path) -> None:
    (file,) = built.glob("*.tar.gz")
    with tarfile.open(file) as archive:
        names = {Path(*Path(member.name).parts[1:]).as_posix() for member in archive if member.isfile()}
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


def test_the_wheel_works_where_it_is_installed(wheel: Path, tmp_path: Path) -> None:
    """Without the tree: commands, files that come with it, the schemas that the documents show."""
    bin = environment(tmp_path / "venv")
    install(bin, str(wheel))

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
