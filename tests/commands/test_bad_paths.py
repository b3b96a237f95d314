"""Every command with every kind of bad path, and with a standard output that takes nothing: one line, no traceback."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import click
import pytest
import yaml

from daemon.cli import cli
from daemon.commands.paths import InputName, OutputFile, OutputFolder
from tests.support import clips
from tests.support.daemon import DEMO_MODEL, ROOT
from tests.support.forked import Command, Done, Forker

pytestmark = pytest.mark.needs("ffmpeg")

_PATH = object()  # stands for the bad path
_HIDDEN = "hunter2"
_NOBODY = str((1 << 22) + 1)  # no process has this id: Linux gives none above 1 << 22
_FULL = "lookout: standard output cannot be written: No space left on device"
_INIT = "recordings init folder"
_EVIDENCE = ("recordings", "export", "door", "{folder}/new", "--evidence")
_TIME = ("--from", "2h", "--to", "1h")
_QUICK = ("--repeats", "1", "--sources", "1", "--seconds", "0.1", "--warm-up", "0")


def _commands(path: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            yield from _commands(f"{path} {name}".strip(), inner)
    else:
        yield path, command


@dataclass(frozen=True)
class _Place:
    """Files that the commands get.

    Attributes:
        kinds: of bad paths, by name.
    """

    folder: Path
    clip: Path
    config: Path
    kinds: dict[str, str]


@pytest.fixture(scope="module")
def forker() -> Iterator[Forker]:
    with Forker() as started:
        yield started


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, folder_of_all: Path) -> Iterator[_Place]:
    folder = tmp_path_factory.mktemp("paths")
    clip = clips.once(folder_of_all, "tiny.mkv", partial(clips.pattern, seconds=0.4, size="64x64"))
    source = {"id": "drawn", "type": "synthetic", "frames": 2, "width": 64, "height": 64, "pace": "fast"}
    config = folder / "config.yaml"
    config.write_text(
        yaml.safe_dump(
            {
                "model": {"path": str(DEMO_MODEL)},
                "sources": [source],
                "publisher": {"endpoint": "tcp://127.0.0.1:*"},
            }
        )
    )
    (folder / "photos").mkdir()
    (folder / "annotations.json").write_text('{"images": [], "annotations": [], "categories": []}')
    closed, sealed = folder / "closed", folder / "sealed"
    closed.mkdir()
    (closed / "x").touch()
    closed.chmod(0)
    sealed.mkdir(mode=0o555)
    sealed.chmod(0o555)
    (folder / "unreadable").touch(mode=0)
    (folder / "folder").mkdir()
    os.mkfifo(folder / "pipe")
    kinds = {
        "long": str(folder / ("x" * 300)),
        "deep": "/" + "a/" * 3000,
        "closed": str(closed / "x"),
        "unreadable": str(folder / "unreadable"),
        "folder": str(folder / "folder"),
        "pipe": str(folder / "pipe"),
        "odd": os.fsdecode(os.fsencode(sealed) + b"/\xff\xfe"),
        "signs": f"{sealed}/\x1b[31mred\nline",
        "variable": str(sealed / "${SECRET}"),
    }
    yield _Place(folder, clip, config, kinds)
    closed.chmod(stat.S_IRWXU)


# Each option and argument of each command that takes a path, and a command line that has it.
_CASES: dict[str, Sequence[object]] = {
    "run sources": ("run", _PATH, "--model", DEMO_MODEL),
    "run config": ("run", "-c", _PATH),
    "run model": ("run", "{clip}", "--model", _PATH),
    "run labels": ("run", "{clip}", "--model", DEMO_MODEL, "--labels", _PATH),
    "run save": ("run", "{clip}", "--model", DEMO_MODEL, "--save", _PATH),
    "run video": ("run", "{clip}", "--model", DEMO_MODEL, "--save-video", _PATH),
    "init sources": ("init", _PATH, "--model", DEMO_MODEL, "--out", "{folder}/new.yaml"),
    "init model": ("init", "{clip}", "--model", _PATH, "--out", "{folder}/new.yaml"),
    "init labels": ("init", "{clip}", "--model", DEMO_MODEL, "--labels", _PATH, "--out", "{folder}/new.yaml"),
    "init out": ("init", "{clip}", "--model", DEMO_MODEL, "--out", _PATH),
    "check config": ("check", "-c", _PATH),
    "check draw": ("check", "-c", "{config}", "--draw", _PATH),
    "status config": ("status", "-c", _PATH),
    "reload config": ("reload", "-c", _PATH),
    "log-level config": ("log-level", "-c", _PATH),
    "bridge check config": ("bridge", "check", "-c", _PATH),
    "bridge reload config": ("bridge", "reload", "--pid", _NOBODY, "-c", _PATH),
    "bridge test config": ("bridge", "test", "phone", "-c", _PATH),
    "health config": ("health", "-c", _PATH),
    "watch server_key": ("watch", "--once", "--server-key", _PATH),
    "watch secret_key": ("watch", "--once", "--server-key", "0" * 40, "--secret-key", _PATH),
    "watch fleet": ("watch", "--once", "--fleet", _PATH),
    "events server_key": ("events", "--server-key", _PATH),
    "events secret_key": ("events", "--server-key", "0" * 40, "--secret-key", _PATH),
    "events fleet": ("events", "--fleet", _PATH),
    "dashboard config": ("dashboard", "-c", _PATH),
    "batch clips": ("batch", _PATH, "--out", "{folder}/out", "--model", DEMO_MODEL),
    "batch out": ("batch", "{clip}", "--out", _PATH, "--model", DEMO_MODEL),
    "batch config": ("batch", "{clip}", "--out", "{folder}/out", "-c", _PATH),
    "batch model": ("batch", "{clip}", "--out", "{folder}/out", "--model", _PATH),
    "batch labels": ("batch", "{clip}", "--out", "{folder}/out", "--model", DEMO_MODEL, "--labels", _PATH),
    "model get out": ("model", "get", "yolox_nano", "--from", "http://127.0.0.1:1/x", "--out", _PATH),
    "model get mirror": ("model", "get", "yolox_nano", "--out", "{folder}/models", "--from", _PATH),
    "model info file": ("model", "info", _PATH),
    "model info labels": ("model", "info", DEMO_MODEL, "--labels", _PATH),
    "model export file": ("model", "export", _PATH),
    "evaluate model": ("evaluate", "--model", _PATH, "--classify", "{folder}/photos"),
    "evaluate images": ("evaluate", "--model", DEMO_MODEL, "--images", _PATH, "--annotations", "{folder}/none.json"),
    "evaluate annotations": ("evaluate", "--model", DEMO_MODEL, "--images", "{folder}", "--annotations", _PATH),
    "evaluate mot": ("evaluate", "--mot", _PATH),
    "evaluate classify": ("evaluate", "--model", DEMO_MODEL, "--classify", _PATH),
    "evaluate labels": ("evaluate", "--model", DEMO_MODEL, "--labels", _PATH, "--classify", "{folder}/photos"),
    "evaluate cache": ("evaluate", "--model", DEMO_MODEL, "--cache", _PATH, "--classify", "{folder}/photos"),
    "evaluate json_file": ("evaluate", "--mot", "{folder}/photos", "--json", _PATH),
    "calibrate model": ("calibrate", _PATH, "--from", "{folder}/none", "--out", "{folder}/out"),
    "calibrate origins": ("calibrate", DEMO_MODEL, "--from", _PATH, "--out", "{folder}/out"),
    "calibrate out": ("calibrate", DEMO_MODEL, "--from", "{folder}/none", "--out", _PATH),
    "calibrate images": ("calibrate", DEMO_MODEL, "--from", "{folder}/none", "--images", _PATH),
    "calibrate annotations": ("calibrate", DEMO_MODEL, "--from", "{folder}/none", "--annotations", _PATH),
    "calibrate classes": ("calibrate", DEMO_MODEL, "--from", "{folder}/none", "--classify", _PATH),
    "calibrate labels": ("calibrate", DEMO_MODEL, "--from", "{folder}/none", "--labels", _PATH),
    "calibrate cache": ("calibrate", DEMO_MODEL, "--from", "{folder}/none", "--cache", _PATH),
    "engine build model": ("engine", "build", _PATH),
    "engine build config": ("engine", "build", "-c", _PATH),
    "engine build cache": ("engine", "build", DEMO_MODEL, "--cache", _PATH),
    "engine build labels": ("engine", "build", DEMO_MODEL, "--labels", _PATH),
    "engine list cache": ("engine", "list", "--cache", _PATH),
    "engine compare model": ("engine", "compare", _PATH),
    "engine compare picture": ("engine", "compare", DEMO_MODEL, "--picture", _PATH),
    "engine compare labels": ("engine", "compare", DEMO_MODEL, "--labels", _PATH),
    "engine compare cache": ("engine", "compare", DEMO_MODEL, "--cache", _PATH),
    "engine profile target": ("engine", "profile", _PATH),
    "engine profile labels": ("engine", "profile", DEMO_MODEL, "--labels", _PATH),
    "engine profile svg": ("engine", "profile", "none", "--svg", _PATH),
    "engine profile html": ("engine", "profile", "none", "--html", _PATH),
    "engine profile cache": ("engine", "profile", "none", "--cache", _PATH),
    "engine show layers": ("engine", "show", "none", "--layers", _PATH),
    "engine show cache": ("engine", "show", "none", "--cache", _PATH),
    "engine prune cache": ("engine", "prune", "--dry-run", "--cache", _PATH),
    "keys new folder": ("keys", "new", _PATH),
    "fleet status config": ("fleet", "status", "-c", _PATH),
    "fleet add config": ("fleet", "add", "rtsp://192.0.2.1/", "-c", _PATH),
    "fleet add file": ("fleet", "add", "--from", _PATH, "--coordinator", "etcd://127.0.0.1:1"),
    "fleet remove config": ("fleet", "remove", "none", "-c", _PATH),
    "fleet drain config": ("fleet", "drain", "none", "-c", _PATH),
    "fleet undrain config": ("fleet", "undrain", "none", "-c", _PATH),
    "fleet move config": ("fleet", "move", "none", "none", "-c", _PATH),
    "fleet rebalance config": ("fleet", "rebalance", "-c", _PATH),
    "fleet backup config": ("fleet", "backup", "{folder}/kept", "-c", _PATH),
    "fleet backup file": ("fleet", "backup", _PATH, "--coordinator", "etcd://127.0.0.1:1"),
    "fleet restore config": ("fleet", "restore", "{config}", "-c", _PATH),
    "fleet restore file": ("fleet", "restore", _PATH, "--coordinator", "etcd://127.0.0.1:1"),
    "recordings list config": ("recordings", "list", "-c", _PATH),
    "recordings list store": ("recordings", "list", "-c", "{folder}/none.yaml", "--store", _PATH),
    "recordings export file": ("recordings", "export", "door", _PATH, "--store", "{folder}/none/", *_TIME),
    "recordings export key": (*_EVIDENCE, "--key", _PATH, "--store", "{folder}/none/", *_TIME),
    "recordings verify public_key": ("recordings", "verify", "{folder}", "--public-key", _PATH),
    "recordings keys file": ("recordings", "keys", _PATH),
    "recordings search rules": ("recordings", "search", "door", "--rule", _PATH, "--store", "{folder}/none/", *_TIME),
    _INIT: ("recordings", "init", _PATH),
    "bench part decode clip": ("bench", "part", "decode", _PATH),
    "bench part engine model": ("bench", "part", "engine", _PATH),
    "bench part engine labels": ("bench", "part", "engine", DEMO_MODEL, "--labels", _PATH),
    "bench part engine cache": ("bench", "part", "engine", DEMO_MODEL, "--cache", _PATH),
    "bench run clips": ("bench", "run", _PATH, *_QUICK),
    "bench run model": ("bench", "run", "{folder}/none", "--model", _PATH),
    "bench run labels": ("bench", "run", "{folder}/none", "--labels", _PATH),
    "bench run cache": ("bench", "run", "{folder}/none", "--cache", _PATH),
    "bench run snapshots": ("bench", "run", "{folder}/none", "--analytics", "--snapshots", _PATH),
    "bench run classifier": ("bench", "run", "{folder}/none", "--classify", "car", "--classifier", _PATH),
    "bench run images": ("bench", "run", "{folder}/none", "--annotations", "none", "--images", _PATH),
    "bench run annotations": ("bench", "run", "{folder}/none", "--images", "none", "--annotations", _PATH),
    "bench run frames_out": ("bench", "run", "{folder}/none", "--frames-out", _PATH),
    "bench run out": ("bench", "run", "{folder}/none", "--out", _PATH),
    "bench search clips": ("bench", "search", _PATH, "--over", "batch=1", *_QUICK),
    "bench search model": ("bench", "search", "{folder}/none", "--over", "batch=1", "--model", _PATH),
    "bench search labels": ("bench", "search", "{folder}/none", "--over", "batch=1", "--labels", _PATH),
    "bench search cache": ("bench", "search", "{folder}/none", "--over", "batch=1", "--cache", _PATH),
    "bench search snapshots": ("bench", "search", "{folder}/none", "--analytics", "--snapshots", _PATH),
    "bench search classifier": ("bench", "search", "{folder}/none", "--classify", "car", "--classifier", _PATH),
    "bench search out": ("bench", "search", "{folder}/none", "--over", "batch=1", "--out", _PATH),
    "bench compare old": ("bench", "compare", _PATH, "{config}"),
    "bench compare new": ("bench", "compare", "{config}", _PATH),
    "bench report files": ("bench", "report", _PATH),
    "bench report out": ("bench", "report", "{config}", "--out", _PATH),
}
# The same option with the same type, in one command for all: `--json FILE`, and those that name a store.
_SHARED = ("json_file",)
_SHARED_BY_RECORDINGS = ("config", "store")
# Names of kinds that such an option takes: a folder to write in may be there, and a list of engines may be empty.
_TAKEN = {
    "folder": (
        "batch out",
        "check draw",
        "keys new folder",
        "recordings init folder",
        "engine list cache",
        "engine prune cache",
    ),
    "odd": ("engine list cache", "engine prune cache"),
    "signs": ("engine list cache", "engine prune cache"),
    "unreadable": ("engine list cache", "engine prune cache"),
    "variable": ("engine list cache", "engine prune cache"),
}

_FAILED = {("batch clips", "unreadable"): 1}  # one of the clips has no result


@pytest.mark.share(4)
@pytest.mark.parametrize("case", _CASES)
def test_a_bad_path_is_one_line(case: str, place: _Place, forker: Forker) -> None:
    kinds = {kind: path for kind, path in place.kinds.items() if case not in _TAKEN.get(kind, ())}
    lines = [[path if part is _PATH else part for part in _CASES[case]] for path in kinds.values()]
    found = _run(forker, place, lines)
    assert len(found) == len(lines), f"{case}: {[*kinds][len(found) - 1]} ends or hangs: {found[-1]}"
    for kind, done in zip(kinds, found):
        said = f"{case}, {kind}: {done}"
        assert "Traceback" not in done.err, said
        assert done.code == _FAILED.get((case, kind), 2), said
        assert _HIDDEN not in done.out + done.err, said
        assert "\x1b" not in done.err, said
        if done.code == 2:
            last = [*done.out.splitlines(), *done.err.splitlines()][-1]
            assert last.startswith(("lookout: ", "correct ")) or case.startswith("check"), said


def _is_shared(command: str, parameter: click.Parameter) -> bool:
    of_recordings = command.startswith("recordings ") and parameter.name in _SHARED_BY_RECORDINGS
    return of_recordings or parameter.name in _SHARED


def test_every_option_that_takes_a_path_is_tried() -> None:
    found = {
        f"{name} {parameter.name}"
        for name, command in _commands("", cli)
        for parameter in command.params
        if isinstance(parameter.type, InputName | OutputFile | OutputFolder)
        and (not _is_shared(name, parameter) or f"{name} {parameter.name}" in _CASES)
    }
    assert found == set(_CASES)
    plain = [
        command for _, command in _commands("", cli) if any(isinstance(row.type, click.Path) for row in command.params)
    ]
    assert plain == []


@pytest.mark.share(4)
@pytest.mark.parametrize("name", [name for name, command in _commands("", cli) if not command.hidden])
def test_a_standard_output_that_takes_nothing(name: str, place: _Place, forker: Forker) -> None:
    """A full disk is one line and exit code 1; of what nobody reads, and of a closed one, the exit code stays."""
    args = [*name.split(), "--help"]
    full = _run_one(forker, place, args, "/dev/full")
    assert (full.code, full.err) == (1, f"{_FULL}\n")
    for stdout in ("unread", "closed"):
        assert _run_one(forker, place, args, stdout) == Done(0, "", "")
    assert _run_one(forker, place, [*name.split(), "--no-such-option"], "closed").code == 2


# What prints more than its help, and needs no daemon, no camera and no GPU.
_PRINTING: dict[str, Sequence[object]] = {
    "check": ("check", "-c", "{config}"),
    "engine list": ("engine", "list", "--cache", "{folder}"),
    "keys new": ("keys", "new", "{folder}/keys/{stdout}"),
    "model info": ("model", "info", DEMO_MODEL),
    "model list": ("model", "list"),
}


@pytest.mark.parametrize("name", _PRINTING)
def test_what_a_command_finds_is_said_or_it_fails(name: str, place: _Place, forker: Forker) -> None:
    def run(stdout: str, name_of_it: str) -> Done:
        return _run_one(forker, place, [str(part).replace("{stdout}", name_of_it) for part in _PRINTING[name]], stdout)

    full = run("/dev/full", "full")
    assert (full.code, full.err.splitlines()[-1:]) == (
        1,
        ["lookout: standard output cannot be written: No space left on device"],
    )
    assert [run(stdout, stdout).code for stdout in ("unread", "closed")] == [0, 0]


def test_a_check_that_nobody_reads_still_says_by_its_code_what_it_found(place: _Place, forker: Forker) -> None:
    bad = place.folder / "bad.yaml"
    bad.write_text(place.config.read_text().replace(str(DEMO_MODEL), "/none.onnx"))
    for stdout in ("unread", "closed"):
        assert _run_one(forker, place, ["check", "-c", str(bad)], stdout).code == 2


def test_check_says_what_is_wrong_with_each_store(place: _Place, forker: Forker) -> None:
    """A folder that is not there yet is made by the first recording; `~` is a home, and others are beside the file."""
    home, sealed, parent = (place.folder / name for name in ("home", "sealed", "parent"))
    home.mkdir()
    parent.mkdir(mode=0o555)
    stores: dict[str, tuple[str, str]] = {
        "file": (str(place.clip), "Not a directory"),
        "within": (f"{place.config}/x", "Not a directory"),
        "closed": (place.kinds["closed"], "Permission denied"),
        "sealed": (str(sealed), "Permission denied"),
        "parent": (f"{parent}/new/store", "Permission denied"),
        "used": (str(place.folder / "photos" / ".."), "has no lookout-store.json"),
        "long": (place.kinds["long"], "File name too long"),
        "tilde": ("~/new/store", ""),
        "beside": ("stores/beside", ""),
    }
    config = place.folder / "stores.yaml"
    record = {"stores": {name: {"path": path} for name, (path, _) in stores.items()}}
    config.write_text(yaml.safe_dump({**yaml.safe_load(place.config.read_text()), "record": record}))
    done = _run_one(forker, place, ["check", "-c", str(config)], home=home)
    assert (done.code, "Traceback" in done.err) == (2, False), done
    lines = done.out.splitlines()
    for name, (path, words) in stores.items():
        said = [line for line in lines if line.startswith((f"record.stores.{name}.path: ", f"store {name}: "))]
        if words:
            (line,) = said
            assert line.startswith(f"record.stores.{name}.path: {path}: {words}"), line
        else:
            whole = home / "new/store" if name == "tilde" else place.folder / path
            assert said[0].startswith(f"store {name}: {whole} writes "), said
            assert not whole.parent.exists()
    (left_out,) = [line for line in lines if line.startswith("not recorded: ")]
    assert left_out == "not recorded: drawn (drawn)"


def _run_one(
    forker: Forker, place: _Place, args: Sequence[object], stdout: str | None = None, home: Path | None = None
) -> Done:
    (done,) = _run(forker, place, [args], stdout, home)
    return done


def _run(
    forker: Forker,
    place: _Place,
    lines: Sequence[Sequence[object]],
    stdout: str | None = None,
    home: Path | None = None,
) -> list[Done]:
    names = {"{folder}": place.folder, "{clip}": place.clip, "{config}": place.config}

    def filled(part: object) -> str:
        text = str(part)
        for name, path in names.items():
            text = text.replace(name, str(path))
        return text

    environment = {"SECRET": _HIDDEN, "XDG_DATA_HOME": str(place.folder), "XDG_CACHE_HOME": str(place.folder)}
    environment |= {"HOME": str(home), "PYTHONPATH": str(ROOT)} if home else {}
    words = [[filled(part) for part in line] for line in lines]
    return forker.run(Command(words, powerless=True, stdout=stdout, environment=environment, folder=str(place.folder)))
