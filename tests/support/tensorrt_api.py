"""Lists the API of the real TensorRT bindings without a GPU: as a script it prints {class: names} as JSON.

usage: tensorrt_api.py FOLDER VERSION      (the unpacked wheel of tensorrt_cu13_bindings, and its major version; or rtx,
                                            with tensorrt_rtx_cu13_bindings and its libraries, which load)

The bindings want three libraries of several GB, those of 8.6 a fourth. Stand-ins that export the symbols they look for
are enough to import them and to see every class.
"""

import ctypes
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

_SYMBOLS = {
    "nvinfer": (
        "createInferBuilder_INTERNAL createInferRuntime_INTERNAL createInferRefitter_INTERNAL getPluginRegistry "
        "getBuilderPluginRegistry"
    ),
    "nvinfer_plugin": "initLibNvInferPlugins",
    "nvonnxparser": "createNvOnnxParser_INTERNAL createNvOnnxParserRefitter_INTERNAL getNvOnnxParserVersion",
}
# Of 8.6 only.
_PARSERS = {
    "nvparsers": (
        "_ZN11nvuffparser15createUffParserEv _ZN11nvuffparser8FieldMapC1EPKcPKvNS_9FieldTypeEi "
        "_ZN14nvcaffeparser117createCaffeParserEv _ZN14nvcaffeparser123shutdownProtobufLibraryEv"
    ),
}


def main() -> None:
    folder, major = Path(sys.argv[1]), sys.argv[2]
    if major == "rtx":
        sys.path.insert(0, str(folder))
        import tensorrt_rtx_bindings

        _print(tensorrt_rtx_bindings)
        return
    for name, symbols in (_SYMBOLS | _PARSERS if major == "8" else _SYMBOLS).items():
        library = folder / f"lib{name}.so.{major}"
        source = "".join(f"void* {symbol}(void) {{ return 0; }}\n" for symbol in symbols.split())
        own = folder / f".{os.getpid()}-{name}"  # another process may look for, load or make the same one now
        command = ["gcc", "-shared", "-fPIC", f"-Wl,-soname,{library.name}", "-x", "c", "-", "-o", str(own)]
        subprocess.run(command, input=source.encode(), check=True)
        own.rename(library)
        ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
    sys.path.insert(0, str(folder))
    import tensorrt_bindings

    _print(tensorrt_bindings)


def _print(trt: Any) -> None:
    classes = {name: sorted(dir(getattr(trt, name))) for name in dir(trt) if isinstance(getattr(trt, name), type)}
    sys.stdout.write(json.dumps({"": sorted(dir(trt)), **classes}))


main()
