"""`python -m tests.image arm64`: the demo and contract tests on a Debian for ARM, emulated on this machine.

As root, with debootstrap and qemu-user-static. A user of a bare Debian clones HEAD, installs it with pip, and runs
`lookout demo` and the contracts of sources, detectors on the CPU, and sinks. The kernel is this machine's, and each
instruction is translated: this says that the packages for ARM work together, and nothing about speed. Prints what came
of each step, and ends with 1 if one failed. Where something is missing it says what in one line, and ends with 2. On a
machine that reaches PyPI by a proxy see `python -m tests.image.debian -h`.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from tests.image.debian import MADE, Machine, foreign_base_of, mirror
from tests.image.steps import Steps, add_options

_EMULATOR = "qemu-aarch64-static"
_HANDLER = "lookout-aarch64"
# By the head of an ELF file: 64 bits, lowest byte first, for AArch64 (183), and whatever kind of program.
_MAGIC = r"\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00"
_MASK = r"\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff"
_PYTHON = ".venv/bin/python"
# Triton has a server for x86 alone; OpenVINO is not installed.
_TESTS = "tests/contract/test_source.py tests/contract/test_detector.py tests/contract/test_sink.py -k not\\ triton"
_NEEDED = "pytest pytest-timeout pytest-xdist hypothesis"


def _missing() -> str:
    """What this machine lacks, and how it comes here; empty if nothing."""
    if os.geteuid() != 0:
        return "root: sudo .venv/bin/python -m tests.image arm64"
    needed = {"debootstrap": "debootstrap"} | ({} if _is_arm() else {_EMULATOR: "qemu-user-static"})
    packages = [package for program, package in needed.items() if shutil.which(program) is None]
    return f"apt install --no-install-recommends {' '.join(packages)}" if packages else ""


def _is_arm() -> bool:
    return platform.machine() == "aarch64"


@contextmanager
def _emulation() -> Iterator[None]:
    """The kernel runs programs for ARM meanwhile, unless it does already."""
    if _is_arm():
        yield
        return
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["mount", "-t", "binfmt_misc", "binfmt_misc", folder], check=True)
        handlers = Path(folder)
        is_here = any("aarch64" in path.name for path in handlers.iterdir())
        try:
            if not is_here:
                # F: opened now, so that a root without the emulator has it, too.
                row = f":{_HANDLER}:M::{_MAGIC}:{_MASK}:{shutil.which(_EMULATOR)}:F"
                (handlers / "register").write_text(row)
            yield
        finally:
            if not is_here:
                (handlers / _HANDLER).write_text("-1")
            subprocess.run(["umount", "--lazy", folder], check=True)


def _try(machine: Machine, steps: Steps, seconds: int) -> None:
    """Once all is installed nothing needs a network, and ports of this machine may be taken."""
    run = "cd lookout; "
    for what, command in (
        ("git clone", "git -c advice.detachedHead=false clone --quiet origin lookout"),
        ("what make demo installs, by pip", f"{run}make .venv/http"),
        ("what tests need, by pip", f"{run}{_PYTHON} -m pip install --quiet {_NEEDED}"),
    ):
        if not steps.take(what, partial(machine.run, command)):
            return
    for what, command in (
        ("lookout check", f"{run}.venv/bin/lookout check -c config.yaml"),
        (f"lookout demo --seconds {seconds}", f"{run}.venv/bin/lookout demo --seconds {seconds}"),
        ("contracts of sources, detectors, sinks", f"{run}LOOKOUT_FORBID_SKIP=1 {_PYTHON} -m pytest -q {_TESTS}"),
    ):
        steps.take(what, partial(machine.run, command, has_network=False))


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.image arm64", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser)
    parser.add_argument("--seconds", type=int, default=60, help="of the demo, which sees a frame in five of them or so")
    args = parser.parse_args(words)
    if missing := _missing():
        sys.stderr.write(f"missing: {missing}\n")
        return 2
    steps = Steps()
    bases: list[Path] = []
    log = MADE / f"{args.suite}-arm64-{os.getpid()}.log"
    with _emulation():
        make = partial(foreign_base_of, args.suite, args.mirror or mirror(), "arm64", "ffmpeg")
        steps.take("debootstrap, in two stages", lambda: bases.append(make()))
        if bases:
            machine = Machine(bases[0], log, "1000:1000", args.env, args.volume)
            try:
                _try(machine, steps, args.seconds)
            finally:
                machine.close()
    sys.stdout.write(f"{log}\n")
    return min(steps.failed, 1)
