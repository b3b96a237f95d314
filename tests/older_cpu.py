"""`python -m tests.older_cpu [--left avx2] COMMAND ...`: runs a command as on a processor that knows less.

numpy, OpenCV, glibc and OpenBLAS are told by their variables; numpy's names of features differ from version to version,
so each .venv* that is there is asked for its own. onnxruntime asks the processor alone: in copies of it, one for each
.venv*, each such question becomes an illegal instruction, which support/older_cpu.c answers. An environment that the
command makes itself knows all. Results may differ in their last bits, and no test may mind. It needs gcc and binutils.
"""

from __future__ import annotations

import filecmp
import os
import re
import shutil
import subprocess
from pathlib import Path

import click

_ROOT = Path(__file__).resolve().parents[1]
_MADE = _ROOT / "build" / "older-cpu"
_LIBRARY = "older_cpu.so"
_VERSION = "__init__.py"  # has it
_SITE = """import os, sys
from pathlib import Path
own = Path(__file__).with_name("python%d.%d" % sys.version_info[:2])
sys.path.insert(0, str(own))
if (names := own / "numpy.txt").exists():
    os.environ["NPY_DISABLE_CPU_FEATURES"] = names.read_text()
"""
# What an environment's numpy has code for, and this processor can do.
_FEATURES = """
try:
    from numpy._core import _multiarray_umath as found
except ImportError:
    from numpy.core import _multiarray_umath as found
print(*(name for name in found.__cpu_dispatch__ if found.__cpu_features__.get(name)))
"""
_ASKS, _ILLEGAL = b"\x0f\xa2", b"\x0f\x0b"  # cpuid, ud2
_AVX512 = "-AVX512F,-AVX512VL,-AVX512BW,-AVX512DQ"
# For what is left: features that numpy (as their names begin), OpenCV and glibc are to leave alone, and OpenBLAS's name
# of a processor.
_VARIABLES = {
    "avx2": (("X86_V4", "AVX512"), "AVX512-SKX", _AVX512, "Haswell"),
    "avx": (
        ("X86_V3", "X86_V4", "AVX512", "AVX2", "FMA", "F16C"),
        "AVX512-SKX,AVX2,FP16",
        f"{_AVX512},-AVX2,-FMA,-FMA4",
        "Sandybridge",
    ),
    "sse4": (
        ("X86_V3", "X86_V4", "AVX", "FMA", "F16C"),
        "AVX512-SKX,AVX2,FP16,AVX",
        f"{_AVX512},-AVX2,-FMA,-FMA4,-AVX",
        "Nehalem",
    ),
}


def environment(left: str) -> dict[str, str]:
    """Variables for child processes, with what they load."""
    _, opencv, glibc, openblas = _VARIABLES[left]
    paths = [str(_MADE), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        **os.environ,
        "OPENCV_CPU_DISABLE": opencv,
        "GLIBC_TUNABLES": f"glibc.cpu.hwcaps={glibc}",
        "OPENBLAS_CORETYPE": openblas,
        "LOOKOUT_OLDER_CPU": left,
        "LD_PRELOAD": str(_MADE / _LIBRARY),
        "PYTHONPATH": os.pathsep.join(paths),
    }


def make(left: str) -> None:
    """The library that answers, and for each version of Python, which finds them at its start, a copy of onnxruntime
    and the features that its numpy is to leave alone."""
    _MADE.mkdir(parents=True, exist_ok=True)
    source = _ROOT / "tests" / "support" / "older_cpu.c"
    options = ["-O2", "-Wall", "-Werror", "-shared", "-fPIC"]
    subprocess.run(["gcc", *options, "-o", str(_MADE / _LIBRARY), str(source), "-ldl"], check=True)
    (_MADE / "sitecustomize.py").write_text(_SITE)
    packages = [*_ROOT.glob(".venv*/lib/python3*/site-packages/onnxruntime")]
    if not packages:
        raise click.ClickException("no environment is here whose libraries could know less: run `make .venv/dev` first")
    for package in packages:
        copy = _MADE / package.parents[1].name / "onnxruntime"
        copy.parent.mkdir(exist_ok=True)
        (copy.parent / "numpy.txt").write_text(_features(package.parents[3] / "bin" / "python", left))
        if copy.exists() and filecmp.cmp(package / _VERSION, copy / _VERSION, shallow=False):
            continue
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(package, begun := copy.with_name("begun"), dirs_exist_ok=True)
        for library in (begun / "capi").glob("*.so*"):
            library.write_bytes(_made_illegal(library))
        begun.rename(copy)


def _features(python: Path, left: str) -> str:
    done = subprocess.run([python, "-c", _FEATURES], check=True, capture_output=True, text=True)
    return " ".join(name for name in done.stdout.split() if name.startswith(_VARIABLES[left][0]))


def _made_illegal(library: Path) -> bytes:
    code = subprocess.run(["objdump", "-d", str(library)], check=True, capture_output=True, text=True).stdout
    heads = subprocess.run(["readelf", "-lW", str(library)], check=True, capture_output=True, text=True).stdout
    segments = [[int(word, 16) for word in words] for words in re.findall(r"LOAD +(\S+) (\S+) \S+ (\S+)", heads)]
    content = bytearray(library.read_bytes())
    for found in re.findall(r"^ *([0-9a-f]+):.*\tcpuid", code, re.MULTILINE):
        address = int(found, 16)
        (place,) = [offset + address - begin for offset, begin, size in segments if begin <= address < begin + size]
        assert content[place : place + 2] == _ASKS
        content[place : place + 2] = _ILLEGAL
    return bytes(content)


@click.command(context_settings={"ignore_unknown_options": True})
@click.option("--left", type=click.Choice([*_VARIABLES]), default="avx2", show_default=True)
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def main(left: str, command: tuple[str, ...]) -> None:
    make(left)
    os.execvpe(command[0], command, environment(left))  # noqa: S606 - what the user asks for


if __name__ == "__main__":
    main()
