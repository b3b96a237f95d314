"""Stand-ins for the libraries of NVIDIA's driver, compiled from its headers."""

from __future__ import annotations

import subprocess
from pathlib import Path

_SUPPORT = Path(__file__).parent


def built(folder: Path, *names: str) -> Path:
    """The folder, with libNAME.so.1 of each name: cuda, nvcuvid."""
    for name in names:
        soname, source = f"lib{name}.so.1", _SUPPORT / f"{name}_stub.cpp"
        flags = ("-std=c++17", "-shared", "-fPIC", f"-Wl,-soname,{soname}")
        subprocess.run(["g++", *flags, "-o", str(folder / soname), str(source), "-ldl"], check=True)
    return folder
