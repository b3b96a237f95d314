"""The repository as somebody else would have it: copied, cloned, installed into an environment of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from tests.support.daemon import ROOT

_MADE_HERE = (
    ".git", ".venv*", ".trt-*", ".triton", ".ort-*", ".hypothesis", ".*_cache", ".mypy_worker.*", ".coverage*",
    "__pycache__", "build", "bench-results", "*.egg-info", "*.log", "shared",
)  # fmt: skip


def copy_of_tree(to: Path, *names: str, compiled: bool = False) -> Path:
    """The working tree with all changes, without what was made in it.

    Args:
        names: of its folders and files, all if none is given.
        compiled: with what Python has compiled, which holds for files that are as they were.
    """
    left_out = shutil.ignore_patterns(*(name for name in _MADE_HERE if not compiled or name != "__pycache__"))
    for name in names or [path.name for path in ROOT.iterdir()]:
        if left_out(str(ROOT), [name]):
            continue
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, to / name, ignore=left_out, symlinks=True)
        else:
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, to / name)
    return to


def repository_of(tree: Path) -> Path:
    """A copied tree as a git repository with one commit, to be cloned."""
    git = ["git", "-C", str(tree), "-c", "user.name=test", "-c", "user.email=test@localhost", "-c", "commit.gpgsign=no"]
    for command in (["init", "--quiet"], ["add", "--all"], ["commit", "--quiet", "--message=all"]):
        subprocess.run([*git, *command], check=True, capture_output=True)
    return tree


def environment(folder: Path) -> Path:
    """A virtual environment without Lookout and without packages; returns its bin."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, capture_output=True)
    return folder / "bin"


def install(bin: Path, *words: str, cwd: Path | None = None) -> None:
    """Install what the words say, and then let the environment see the packages that these tests run with.

    Nothing is fetched: packages that it needs are those of the tests.
    """
    packages = [entry for entry in sys.path if entry.endswith("site-packages")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(packages)}  # what builds it
    pip = [sys.executable, "-m", "pip", "--python", str(bin / "python"), "install", "--quiet", "--no-index"]
    options = ["--ignore-installed", "--no-deps", "--no-build-isolation", "--disable-pip-version-check"]
    subprocess.run([*pip, *options, *words], check=True, cwd=cwd, env=environment)
    (site,) = bin.parent.glob("lib/python*/site-packages")
    (site / "packages-of-tests.pth").write_text("\n".join(packages) + "\n")


def builds_here(folder: Path, *, has_dependencies: bool = False) -> dict[str, str]:
    """An environment in which any pip builds with the setuptools of these tests, and fetches nothing.

    Args:
        folder: a new one, for links.
        has_dependencies: pip takes what these tests run with for installed; else it asks for no dependencies.
    """
    found = find_spec("setuptools")
    assert found is not None
    assert found.origin is not None
    folder.mkdir()
    for path in Path(found.origin).parents[1].iterdir():
        is_taken = has_dependencies and path.suffix == ".dist-info" and not path.name.startswith("lookout")
        if is_taken or path.name.startswith(("setuptools", "_distutils_hack", "pkg_resources", "wheel")):
            (folder / path.name).symlink_to(path)
    # Of a pip's variables this one is set to what the option makes of it.
    options = {"PIP_NO_BUILD_ISOLATION": "0", "PIP_NO_INDEX": "1"}
    return {**alone(), **options, **({} if has_dependencies else {"PIP_NO_DEPS": "1"}), "PYTHONPATH": str(folder)}


def alone() -> dict[str, str]:
    """Of the environment variables those that do not lead back to this tree."""
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
