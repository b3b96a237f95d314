"""Make the models of tests/data/heads, and what their frameworks find with them.

    python -m tests.frameworks.export DIR [NAME...]

It needs torch, onnx, onnxruntime and onnxslim, and each family's framework: ultralytics, transformers or torchvision.
A model of another version of its framework is left out, and so is a family whose framework is missing.
"""

from __future__ import annotations

import argparse
import logging
import sys
import warnings
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

_ALL = ("torch", "onnx", "onnxruntime", "onnxslim")
_FAMILIES = {
    "yolo": ("ultralytics",),
    "detr": ("transformers",),
    "classifiers": ("torchvision",),
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.frameworks.export", description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("names", nargs="*", metavar="NAME", help="all, if none is named")
    args = parser.parse_args()
    if lacking := _lacking(_ALL):
        return _say(f"needs {lacking}: pip install {lacking}")
    models = _models()
    if unknown := [name for name in args.names if name not in models]:
        return _say(f"there is no {', '.join(unknown)}; there are {', '.join(models)}")
    args.folder.mkdir(parents=True, exist_ok=True)
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    folder = args.folder.resolve()
    made = [_make(name, models[name], folder) for name in args.names or models]
    return 0 if all(made) or not args.names else 1


def _models() -> dict[str, Any]:
    """All models of the frameworks that are here."""
    found: dict[str, Any] = {}
    for family, needed in _FAMILIES.items():
        if lacking := _lacking(needed):
            _say(f"left out what needs {lacking}: pip install {lacking}")
        else:
            found.update(import_module(f"tests.frameworks.{family}").MODELS)
    return found


def _make(name: str, model: Any, folder: Path) -> bool:
    from tests.frameworks.runtime import OtherVersionError

    path = folder / f"{name}.onnx"
    try:
        model.export(path)
    except OtherVersionError as error:
        _say(f"left out {name}: it {error}")
        return False
    expected = model.expected(path)
    expected.save(path.with_suffix(".npz"))
    sizes = [file.stat().st_size // 1000 for file in (path, path.with_suffix(".npz"))]
    rows, sure = len(expected.rows), expected.sure.mean()
    sys.stdout.write(f"{name}: {sizes[0]} and {sizes[1]} kB, {rows} rows, {sure:.0%} of pictures sure\n")
    return True


def _lacking(modules: tuple[str, ...]) -> str:
    return " ".join(module for module in modules if find_spec(module) is None)


def _say(line: str) -> int:
    sys.stderr.write(f"{line}\n")
    return 2


if __name__ == "__main__":
    sys.exit(main())
